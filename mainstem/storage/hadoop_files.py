"""Options of stores in Hadoop's files, ``core-site.xml`` and ``hdfs-site.xml`` in ``HADOOP_CONF_DIR``.

Every process that makes a store reads its own files; nothing of them travels to another one. A document type,
and with it every entity, is refused: it is what makes small files of XML grow, or read other files.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from xml.parsers import expat

from mainstem.errors import Invalid
from mainstem.limits import HADOOP_FILE_BYTES_MAX
from mainstem.options import stores

VARIABLE = "HADOOP_CONF_DIR"
#: those of later files count
FILES = ("core-site.xml", "hdfs-site.xml")
_OF_STORES = tuple(prefix for prefix in stores.PREFIXES if not prefix.startswith("hoodie."))
_REFERENCE = re.compile(r"\$\{([^}$]{1,200})\}")

_seen: dict[str, tuple[tuple[int, int], dict[str, str]]] = {}


def hadoop_options(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The options of stores in this process's files of Hadoop's; none without ``HADOOP_CONF_DIR``.

    ``${env.NAME}`` in place of a value becomes ``env:NAME``. Other references are filled in, from the same
    files, where they can be. Raises ``Invalid`` for a file that is too long or does not parse.
    """
    folder = environment.get(VARIABLE, "")
    if not folder:
        return {}
    found: dict[str, str] = {}
    for name in FILES:
        found.update(_properties(os.path.join(folder, name)))
    of_stores = {name: text for name, text in found.items() if name.startswith(_OF_STORES)}
    return {name: _filled(name, text, found, environment) for name, text in of_stores.items()}


def by_variable(text: str) -> str:
    """``env:NAME`` for Hadoop's ``${env.NAME}``; other texts as they are."""
    match = _REFERENCE.fullmatch(text.strip())
    return f"env:{match.group(1)[4:]}" if match and match.group(1).startswith("env.") else text


def _filled(name: str, text: str, known: Mapping[str, str], environment: Mapping[str, str]) -> str:
    if by_variable(text) != text:
        return by_variable(text)

    def value(match: re.Match[str]) -> str:
        word = match.group(1)
        inner = environment.get(word[4:]) if word.startswith("env.") else known.get(word)
        return match.group(0) if inner is None else inner

    filled = _REFERENCE.sub(value, text)
    if _REFERENCE.search(filled):
        warnings.warn(f"{name} in Hadoop's files refers to what is not known here", stacklevel=5)
    return filled


def _properties(path: str) -> dict[str, str]:
    """Names and values in a file; none if it cannot be read."""
    try:
        now = os.stat(path)
        look = (now.st_mtime_ns, now.st_size)
        if (seen := _seen.get(path)) is not None and seen[0] == look:
            return seen[1]
        with open(path, "rb") as file:
            data = file.read(HADOOP_FILE_BYTES_MAX + 1)
    except OSError:
        return {}
    if len(data) > HADOOP_FILE_BYTES_MAX:
        raise Invalid(f"{path} has more than {HADOOP_FILE_BYTES_MAX} bytes: no file of options is as long")
    found = parse_properties(data, path)
    _seen[path] = (look, found)
    return found


def parse_properties(data: bytes, path: str) -> dict[str, str]:
    """The properties of a file of Hadoop's; ``path`` is for messages. Raises ``Invalid``."""
    found: dict[str, str] = {}
    one: dict[str, str] = {}
    texts: list[str] = []

    def refuse(*_: object) -> None:
        raise Invalid(f"{path} has a document type or entities: remove them, options need none")

    def start(tag: str, _: object) -> None:
        texts.clear()
        if tag == "property":
            one.clear()
        elif tag.endswith("include"):
            warnings.warn(f"{path} includes another file, which is not read", stacklevel=7)

    def end(tag: str) -> None:
        if tag in ("name", "value"):
            one[tag] = "".join(texts).strip()
        elif tag == "property" and one.get("name") and "value" in one:
            found[one["name"]] = one["value"]

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = texts.append
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise Invalid(f"{path} is no file of Hadoop's options: {error}") from None
    return found
