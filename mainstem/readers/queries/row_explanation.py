"""What ``Table.explain_row`` tells: the versions of one row, which of them a query shows, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

_ARROW = pa.schema([
    ("number", pa.int32()), ("kind", pa.string()), ("wins", pa.bool_()), ("read", pa.bool_()),
    ("why", pa.string()), ("partition", pa.string()), ("file_id", pa.string()), ("slice", pa.string()),
    ("why_slice", pa.string()), ("file", pa.string()), ("block", pa.int32()), ("offset", pa.int64()),
    ("row", pa.int64()), ("instant", pa.string()), ("completion", pa.string()), ("operation", pa.string()),
    ("writer", pa.string()), ("commit_time", pa.string()), ("unconditional", pa.bool_()),
    ("ordering", pa.string()), ("values", pa.string()), ("extra_metadata", pa.string()),
])  # fmt: skip
_AS_JSON = ("ordering", "values", "extra_metadata")


@dataclass(frozen=True)
class RowVersion:
    """One version of a row: a row of a base file or of a log block, or a delete.

    ``kind``: ``base``, ``row``, ``partial row`` (some columns) or ``delete``. ``block`` counts the blocks of
    the log file from 0, ``offset`` is where it begins, ``row`` counts the rows, or deleted keys, of the file
    or block. ``instant`` is the requested time of the file or block, ``commit_time`` that of the write that
    made the row: they differ after a compaction. ``operation``, ``writer`` and ``extra_metadata`` are from
    the commit metadata of ``commit_time`` (of ``instant`` for deletes), empty if it is gone. ``slice`` is the
    base instant of the file slice. ``read``: a query reads this version; ``wins``: it shows it (as a
    delete: it hides the others).
    """

    number: int
    kind: str
    partition: str
    file_id: str
    file: str
    block: int | None
    offset: int | None
    row: int
    instant: str
    completion: str | None
    commit_time: str | None
    operation: str
    writer: str
    extra_metadata: Mapping[str, str]
    ordering: Mapping[str, object]
    unconditional: bool
    values: Mapping[str, object]
    slice: str
    why_slice: str
    read: bool
    wins: bool
    why: str


@dataclass(frozen=True)
class ChangeRecord:
    """What a change log (``.cdc``) has of the key: ``op`` is ``i``, ``u`` or ``d``.

    An image is None where the log has none: a table's supplemental logging mode may leave out one or both.
    """

    op: str
    partition: str
    file_id: str
    file: str
    block: int
    offset: int
    row: int
    instant: str
    completion: str | None
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None


@dataclass(frozen=True)
class IndexEntry:
    """What an index, of the metadata table or of vectors, says of the key now. ``agrees``: whoever goes by it
    finds what a query shows."""

    index: str
    entry: Mapping[str, object]
    agrees: bool
    what: str


@dataclass(frozen=True)
class LookedAt:
    """A file group that was looked through: ``files`` of it that were read, ``slices`` it has."""

    partition: str
    file_id: str
    slices: int
    files: int


@dataclass(frozen=True)
class Trouble:
    """A file, or a part of it, that could not be read; a query of it fails, or leaves it out."""

    path: str
    what: str


@dataclass(frozen=True)
class RowExplanation:
    """Every version of a row that is still there. ``str()`` of it is for people.

    ``rows`` is what a query shows of the key: no row, one, or one in each partition that has it. ``columns``
    says for rows that partial updates made which version (by ``number``) a column's value is from.
    ``omitted`` counts versions beyond the limit: the oldest ones. ``troubles``: what could not be read; the
    winner is that of the rest. ``changes``: what change logs have of the key. ``indexes``: what the record
    index, secondary and vector indexes say of it; empty where there are none, or as of a time.
    """

    key: str
    table: str
    as_of: str | None
    merge: str
    versions: tuple[RowVersion, ...]
    rows: pa.Table = field(repr=False)
    columns: Mapping[str, int]
    looked_at: tuple[LookedAt, ...]
    looked_for: str
    troubles: tuple[Trouble, ...]
    omitted: int = 0
    changes: tuple[ChangeRecord, ...] = ()
    indexes: tuple[IndexEntry, ...] = ()

    @property
    def found(self) -> bool:
        """Whether there is any version."""
        return bool(self.versions)

    @cached_property
    def winners(self) -> tuple[RowVersion, ...]:
        """The versions that win, one in each file group that has any; none where a merger makes the row."""
        return tuple(version for version in self.versions if version.wins)

    def to_arrow(self) -> pa.Table:
        """The versions as a table; mappings are JSON texts."""
        items = [asdict(version) for version in self.versions]
        for item in items:
            for name in _AS_JSON:
                item[name] = json.dumps(_plain(item[name]), allow_nan=False)
        return pa.Table.from_pylist(items, schema=_ARROW)

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON data."""
        told = {name: getattr(self, name) for name in _TOLD} | {"rows": self.rows.to_pylist()}
        for name in ("versions", "changes", "indexes", "looked_at", "troubles"):
            told[name] = [asdict(item) for item in getattr(self, name)]
        made = _plain(told)
        assert isinstance(made, dict)
        return made

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        as_of = f" as of {self.as_of}" if self.as_of else ""
        yield f"key {self.key!r} of {self.table}{as_of}"
        yield f"merge: {self.merge}"
        if not self.found:
            yield f"no version is there; {self.looked_for}"
        elif not self.rows.num_rows:
            yield "a query shows no row"
        for row in self.rows.to_pylist():
            shown = {name: value for name, value in row.items() if not name.startswith("_hoodie_")}
            yield f"a query shows {json.dumps(_plain(shown), ensure_ascii=False)}"
        if self.omitted:
            yield f"{self.omitted} older versions are not told"
        for version in self.versions:
            yield from _version_lines(version)
        for name, number in self.columns.items():
            yield f"column {name!r} is from version {number}"
        for change in self.changes:
            yield from _change_lines(change)
        for said in self.indexes:
            told = json.dumps(_plain(said.entry), ensure_ascii=False)
            yield f"index {said.index}{'' if said.agrees else ' DIFFERS'}: {said.what} {told}"
        if self.found:
            yield self.looked_for
        for trouble in self.troubles:
            yield f"NOT READ: {trouble.path}: {trouble.what}"


_TOLD = ("key", "table", "as_of", "merge", "columns", "looked_for", "omitted")


def _version_lines(version: RowVersion) -> Iterator[str]:
    at = f"row {version.row}"
    if version.block is not None:
        at = f"block {version.block} at offset {version.offset}, {at}"
    yield f"{version.number}. {'WINS ' if version.wins else ''}{version.kind}: {version.why}"
    yield f"   {version.partition or '.'}/{version.file}, {at}"
    done = f"completed {version.completion}" if version.completion else "not completed"
    by = f" by {version.writer}" if version.writer else ""
    made = f", row of {version.commit_time}" if version.commit_time not in (None, version.instant) else ""
    yield f"   instant {version.instant}, {done}{made}: {version.operation or 'no metadata'}{by}"
    yield f"   slice {version.slice}: {version.why_slice}"
    if version.ordering:
        yield f"   ordering {json.dumps(_plain(version.ordering), ensure_ascii=False)}"
    if version.kind != "delete":
        yield f"   {json.dumps(_plain(version.values), ensure_ascii=False)}"
    if version.extra_metadata:
        yield f"   metadata {json.dumps(_plain(version.extra_metadata), ensure_ascii=False)}"


def _change_lines(change: ChangeRecord) -> Iterator[str]:
    done = f"completed {change.completion}" if change.completion else "not completed"
    yield f"change {change.op}: instant {change.instant}, {done}"
    yield (
        f"   {change.partition or '.'}/{change.file}, block {change.block} at offset {change.offset},"
        f" row {change.row}"
    )
    for name, image in (("before", change.before), ("after", change.after)):
        if image is not None:
            yield f"   {name} {json.dumps(_plain(image), ensure_ascii=False)}"


def _plain(value: object) -> object:
    """A value as JSON data; what JSON lacks becomes text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
