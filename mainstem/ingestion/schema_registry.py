"""Schemas by their ids: of a registry that speaks Confluent's protocol, or of a folder.

A message begins with a zero byte and the id of its schema, four bytes, the highest first. A registry
(Confluent's, Karapace, Apicurio's compatible interface) answers ``GET /schemas/ids/ID``. A folder holds
``ID.avsc``. A schema never changes, so each is asked for once.
"""

from __future__ import annotations

import base64
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.limits import SCHEMA_BYTES_MAX

HEADER = 5
_ASK_S = 30.0


def ids_of(values: Sequence[bytes]) -> dict[bytes, list[int]]:
    """Header -> places of the messages with it. A header of another length or kind is among the keys."""
    heads = [value[:HEADER] for value in values]
    if len(set(heads)) == 1:
        return {heads[0]: list(range(len(values)))}
    found: dict[bytes, list[int]] = {}
    for place, head in enumerate(heads):
        found.setdefault(head, []).append(place)
    return found


def parse_header(head: bytes) -> int | None:
    """The schema's id; None if it is no header."""
    return int.from_bytes(head[1:], "big") if len(head) == HEADER and head[0] == 0 else None


class Registry:
    """``place``: the registry's URL, in which a user and a password may stand, or a folder."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._known: dict[int, str] = {}

    def avro(self, number: int) -> str:
        """The text of an Avro schema. Raises ``Invalid`` if there is none, ``Unavailable``."""
        if number not in self._known:
            if self._is_url:
                self._known[number] = self._asked(number, "AVRO", "")
            else:
                self._known[number] = self._read(f"{number}.avsc").decode("utf-8", "replace")
        return self._known[number]

    def protobuf(self, number: int) -> bytes:
        """A set of file descriptors, the schema's own last. Raises as ``avro``."""
        if not self._is_url:
            return self._read(f"{number}.desc")
        text = self._asked(number, "PROTOBUF", "?format=serialized")
        try:
            file = base64.b64decode(text, validate=True)
        except ValueError as error:
            raise Unsupported(f"schema {number}: the registry does not serialize it: {error}") from error
        size, length = len(file), b""
        while size >= 0x80:
            length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
        return b"\x0a" + length + bytes([size]) + file  # a set of one

    @property
    def _is_url(self) -> bool:
        return self._place.startswith(("http://", "https://"))

    def _read(self, name: str) -> bytes:
        path = Path(self._place) / name
        try:
            if os.path.getsize(path) > SCHEMA_BYTES_MAX:
                raise Invalid(f"{path} is larger than {SCHEMA_BYTES_MAX} bytes")
            return path.read_bytes()
        except FileNotFoundError as error:
            raise Invalid(f"schema {name}: there is no {path}; put it there, or give a registry") from error
        except OSError as error:
            raise Unavailable(f"schema {name}: {path} cannot be read: {error}") from error

    def _asked(self, number: int, wanted: str, form: str) -> str:
        parts = urllib.parse.urlsplit(self._place)
        host = parts.netloc.rpartition("@")[2]
        path = f"{parts.path.rstrip('/')}/schemas/ids/{number}{form}"
        url = urllib.parse.urlunsplit((parts.scheme, host, path, "", ""))
        request = urllib.request.Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
        if parts.username is not None:
            pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            request.add_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=_ASK_S) as answer:
                found = json.loads(answer.read(4 * SCHEMA_BYTES_MAX))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise Invalid(f"schema {number}: the registry {host} does not know it") from error
            if error.code in (401, 403):
                why = f"the registry {host} refuses us ({error.code}): check user and password"
                raise Invalid(why) from error
            raise Unavailable(f"schema {number}: the registry {host} answers {error.code}") from error
        except (OSError, ValueError) as error:
            raise Unavailable(f"schema {number}: the registry {host} does not answer: {error}") from error
        kind = found.get("schemaType", "AVRO")
        if kind != wanted:
            raise Unsupported(f"schema {number} is {kind}, not {wanted}: give --format as the topic has it")
        if found.get("references"):
            raise Unsupported(f"schema {number} refers to other schemas; register it as one")
        return str(found["schema"])
