"""``java.util.Properties`` text: the form of ``hoodie.properties`` and partition metafiles."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mainstem.errors import CorruptTable

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def parse_properties(data: bytes, *, path: str) -> dict[str, str]:
    """Keys and values by the rules of ``Properties.load`` (comments, continuation lines, ``\\uXXXX``)."""
    result: dict[str, str] = {}
    lines = iter(re.split(r"\r\n|\n|\r", data.decode("latin-1")))
    for raw in lines:
        line = raw.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while _odd_backslashes(line):
            line = line[:-1] + next(lines, "").lstrip(" \t\f")
        key, value = _split(line)
        result[_unescape(key, path)] = _unescape(value, path)
    return result


def _odd_backslashes(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=: \t\f":
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    rest = line[end:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return line[:end], rest


def _unescape(text: str, path: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at >= len(text):
            out.append(char)
            continue
        char = text[at]
        at += 1
        if char == "u":
            digits = text[at : at + 4]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise CorruptTable(f"malformed escape \\u{digits} in {text[:100]!r}", path=path)
            out.append(chr(int(digits, 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(char, char))
    joined = "".join(out)
    # A surrogate pair is written as two escapes; in Python it is one character.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def format_properties(pairs: Mapping[str, str], *, comments: tuple[str, ...] = ()) -> bytes:
    """The text that ``Properties.store`` writes, with sorted keys."""
    lines = [f"#{text}" for text in comments]
    lines += [f"{_escape(k, True)}={_escape(v, False)}" for k, v in sorted(pairs.items())]
    return ("\n".join(lines) + "\n").encode("latin-1")


def _escape(text: str, is_key: bool) -> str:
    out: list[str] = []
    for at, char in enumerate(text):
        if char == " ":
            out.append("\\ " if is_key or at == 0 else " ")
        elif char in "\\:=#!":
            out.append("\\" + char)
        elif char in _SHORT:
            out.append(_SHORT[char])
        elif 0x20 <= ord(char) <= 0x7E:
            out.append(char)
        else:
            units = char.encode("utf-16-be")
            out += [f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2)]
    return "".join(out)
