"""Partitions, file groups and file slices as the page shows them: ``Table.files`` summed up, by pages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid

PAGE_MAX = 500
_SUMS = (
    "files", "bytes", "base_bytes", "log_bytes", "log_files", "older_bytes", "replaced_bytes",
    "pending_bytes", "unused_bytes",
)  # fmt: skip
_SORTS = {"partition", "file_id", "slices", "groups", "newest", *_SUMS}


class ShownFiles:
    """The files of one table at one moment, and their sums."""

    def __init__(self, files: pa.Table) -> None:
        self._files = files
        counted = _counted(files)
        self._groups = _summed(counted, ["partition", "file_id"])
        self._partitions = _summed(counted, ["partition"])

    def totals(self) -> dict[str, int]:
        """Of the whole table, in bytes and counts."""
        sums = {name: int(pc.sum(self._partitions[name]).as_py() or 0) for name in _SUMS}
        return {**sums, "partitions": self._partitions.num_rows, "groups": self._groups.num_rows}

    def partitions(self, search: str, sort: str, offset: int, limit: int) -> dict[str, Any]:
        """A page of partitions with their sums."""
        return _page(_containing(self._partitions, ("partition",), search), sort, offset, limit)

    def groups(
        self, partition: str | None, search: str, sort: str, offset: int, limit: int
    ) -> dict[str, Any]:
        """A page of file groups with their sums; of one ``partition``, or all."""
        found = self._groups
        if partition is not None:
            found = found.filter(pc.equal(found["partition"], partition))
        return _page(_containing(found, ("partition", "file_id"), search), sort, offset, limit)

    def group(self, partition: str, file_id: str) -> dict[str, Any]:
        """The files of one file group, by slice and instant; at most 5,000, the newest."""
        asked = pc.and_(
            pc.equal(self._files["partition"], partition), pc.equal(self._files["file_id"], file_id)
        )
        found = self._files.filter(asked).sort_by("instant")
        told = found.slice(max(0, found.num_rows - 5_000)).drop_columns(["partition", "file_id"])
        rows = told.set_column(
            told.schema.get_field_index("modified"), "modified", pc.cast(told["modified"], pa.int64())
        )
        told = rows.to_pylist()
        return {"partition": partition, "file_id": file_id, "count": found.num_rows, "files": told}


def _counted(files: pa.Table) -> pa.Table:
    """A column for each sum."""
    size, state, kind = files["size"], files["state"], files["kind"]
    current, log = pc.equal(state, "current"), pc.equal(kind, "log")
    ones = pa.chunked_array([pa.repeat(1, files.num_rows)]).cast(pa.int64())
    none = pa.scalar(0, pa.int64())
    columns = {
        "files": ones, "bytes": size,
        "base_bytes": pc.if_else(pc.and_(current, pc.equal(kind, "base")), size, none),
        "log_bytes": pc.if_else(pc.and_(current, log), size, none),
        "log_files": pc.if_else(pc.and_(current, log), ones, none),
        **{f"{one}_bytes": pc.if_else(pc.equal(state, one), size, none)
           for one in ("older", "replaced", "pending", "unused")},
    }  # fmt: skip
    made = files.select(["partition", "file_id", "slice", "completion"])
    for name, column in columns.items():
        made = made.append_column(name, column)
    return made


def _summed(counted: pa.Table, by: list[str]) -> pa.Table:
    asked = [(name, "sum") for name in _SUMS]
    asked += [("slice", "count_distinct"), ("file_id", "count_distinct"), ("completion", "max")]
    made = counted.group_by(by).aggregate(asked) if counted.num_rows else _nothing(by)
    names = {f"{name}_sum": name for name in _SUMS}
    names |= {"slice_count_distinct": "slices", "file_id_count_distinct": "groups"}
    names |= {"completion_max": "newest"}
    return made.rename_columns([names.get(name, name) for name in made.column_names])


def _nothing(by: list[str]) -> pa.Table:
    texts = [(name, pa.string()) for name in (*by, "completion_max")]
    numbers = [f"{name}_sum" for name in _SUMS] + ["slice_count_distinct", "file_id_count_distinct"]
    return pa.schema([*texts, *((name, pa.int64()) for name in numbers)]).empty_table()


def _containing(table: pa.Table, columns: tuple[str, ...], search: str) -> pa.Table:
    """Rows that have the text in one of the columns, in any case."""
    if not search:
        return table
    found = None
    for name in columns:
        one = pc.match_substring(table[name], search, ignore_case=True)
        found = one if found is None else pc.or_(found, one)
    return table.filter(found)


def _page(table: pa.Table, sort: str, offset: int, limit: int) -> dict[str, Any]:
    """``sort``: a column, with ``-`` before it the greatest first."""
    name = sort.removeprefix("-")
    if name not in _SORTS or name not in table.column_names:
        there = ", ".join(sorted(_SORTS & set(table.column_names)))
        raise Invalid(f"sort={sort!r}: expected one of {there}, with - before it for the greatest first")
    if offset < 0 or not 0 < limit <= PAGE_MAX:
        raise Invalid(f"offset={offset}, limit={limit}: expected an offset from 0 and 1 to {PAGE_MAX} rows")
    keys = [(name, "descending" if sort.startswith("-") else "ascending")]
    keys += [(k, "ascending") for k in ("partition", "file_id") if k in table.column_names and k != name]
    order = pc.sort_indices(table, sort_keys=keys)
    rows = table.take(order.slice(offset, limit)).to_pylist()
    return {"count": table.num_rows, "offset": offset, "rows": rows}
