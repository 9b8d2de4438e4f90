"""From a request for data to its answer. It knows no sockets: ``page_server`` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from mainstem.errors import CorruptTable, Invalid, MainstemError, Unsupported
from mainstem.forks import Mutex
from mainstem.storage.location import Location
from mainstem.truetime.clock import Clock
from mainstem.ui.found_tables import found_tables
from mainstem.ui.shown_table import Answer, ShownTable, trouble

#: where data is; everything else is the page
API = "/api/"
BODY_BYTES_MAX = 64 * 1024
_FOUND_S = 10.0
_WRONG = {Invalid: 400, Unsupported: 422, CorruptTable: 422}
_UNAVAILABLE, _UNKNOWN, _OUR_FAULT = 503, 404, 500


class NotThere(Exception):
    """Nothing is at this path."""


@dataclass(frozen=True)
class _Asked:
    """What a request gives: values by name, of its query or its body."""

    values: Mapping[str, Any]

    def text(self, name: str, default: str | None = "") -> Any:
        found = self.values.get(name, default)
        if found is not None and not isinstance(found, str):
            raise Invalid(f"{name}: expected text, found {type(found).__name__}")
        return found

    def number(self, name: str, default: int) -> int:
        found = self.values.get(name, default)
        if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) <= 15:
            return int(found)
        if not isinstance(found, int) or isinstance(found, bool):
            raise Invalid(f"{name}={str(found)[:80]!r}: expected a whole number from 0")
        return found


_Ask = Callable[[ShownTable, _Asked], Answer]
_GETS: dict[str, _Ask] = {
    "": lambda table, asked: table.overview(),
    "card": lambda table, asked: table.card(),
    "timeline": lambda table, asked: table.instants(asked.text("view"), asked.number("since", 0)),
    "instant": lambda table, asked: table.instant(asked.text("requested"), asked.text("action")),
    "partitions": lambda table, asked: table.partitions(
        asked.text("search"), asked.text("sort", "partition"), asked.number("offset", 0),
        asked.number("limit", 100),
    ),
    "groups": lambda table, asked: table.groups(
        asked.text("partition", None), asked.text("search"), asked.text("sort", "partition"),
        asked.number("offset", 0), asked.number("limit", 100),
    ),
    "group": lambda table, asked: table.group(asked.text("partition"), asked.text("file_id")),
    "indexes": lambda table, asked: table.indexes(),
    "streams": lambda table, asked: table.streams(),
    "properties": lambda table, asked: table.properties(),
    "doctor": lambda table, asked: table.doctor(),
    "query": lambda table, asked: table.query_terms(),
}  # fmt: skip
_POSTS: dict[str, _Ask] = {
    "explain": lambda table, asked: table.explain(
        asked.text("key"), asked.text("partition", None), asked.text("as_of", None)
    ),
    "query": lambda table, asked: table.query(asked.text("sql"), asked.number("limit", 200)),
}


@dataclass
class Answers:
    """Answers for the tables at ``places``; ``given``: options with which each is opened."""

    places: Sequence[Location]
    given: Mapping[str, str]
    clock: Clock
    _tables: dict[str, ShownTable] = field(default_factory=dict)
    _troubles: list[str] = field(default_factory=list)
    _until_ms: float = -1.0
    _mutex: Mutex = field(default_factory=Mutex)
    _turns: Mutex = field(default_factory=Mutex)

    def answer(self, method: str, target: str, body: bytes = b"") -> tuple[int, Answer]:
        """Status and JSON data. Errors are answers too; nothing is raised."""
        path, _, query = target.partition("?")
        try:
            return 200, self._found(method, path.removeprefix(API), _asked(method, query, body))
        except NotThere:
            return _UNKNOWN, {"error": {"kind": "NotThere", "message": "nothing is here", "table": None}}
        except MainstemError as error:
            status = next((s for kind, s in _WRONG.items() if isinstance(error, kind)), _UNAVAILABLE)
            return status, trouble(error)
        except OSError as error:
            return _UNAVAILABLE, trouble(error)
        except Exception as error:  # a page must not lose its server
            return _OUR_FAULT, trouble(error)

    def _found(self, method: str, path: str, asked: _Asked) -> Answer:
        parts = [unquote(part) for part in path.split("/")]
        asks = _GETS if method == "GET" else _POSTS
        match parts:
            case ["tables"] if method == "GET":
                return self._list()
            case ["tables", id_, *rest] if len(rest) <= 1 and "/".join(rest) in asks:
                table = self._table(id_)
                return asks["/".join(rest)](table, asked)
        raise NotThere

    def _list(self) -> Answer:
        self._look()
        told = [
            {"id": one.found.id, "name": one.found.name, "path": one.found.location.base}
            for one in self._tables.values()
        ]
        return {"tables": told, "troubles": self._troubles[:50]}

    def _table(self, id_: str) -> ShownTable:
        if id_ not in self._tables:
            self._look()
        found = self._tables.get(id_)
        if found is None:
            raise NotThere
        return found

    def _look(self) -> None:
        """Find the tables again, at most once in some seconds."""
        with self._mutex.held:
            if self.clock.monotonic_ms() < self._until_ms:
                return
            found, self._troubles = found_tables(self.places)
            self._tables = {
                one.id: self._tables.get(one.id) or ShownTable(one, self.given, self.clock, self._turns)
                for one in found
            }
            self._until_ms = self.clock.monotonic_ms() + _FOUND_S * 1000


def _asked(method: str, query: str, body: bytes) -> _Asked:
    if method == "GET":
        try:
            return _Asked(dict(parse_qsl(query, keep_blank_values=True, max_num_fields=20)))
        except ValueError as error:
            raise Invalid(f"the query of the address cannot be read: {error}") from None
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Invalid("the body is no JSON") from None
    if not isinstance(found, dict):
        raise Invalid("the body is no JSON object")
    return _Asked(found)
