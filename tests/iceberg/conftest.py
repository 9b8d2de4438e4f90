"""Iceberg's view of a table, read by pyiceberg through the table's own storage, so on every store."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadataUtil

import mainstem
from mainstem.iceberg.metadata_versions import newest_number
from mainstem.iceberg.store_io import StoreIO
from mainstem.storage import paths


def iceberg_table(table: mainstem.Table) -> StaticTable:
    """The newest version in the table's folder."""
    storage = table.opened.seams.storage
    path = paths.iceberg_version(newest_number(storage))
    metadata = TableMetadataUtil.parse_raw(storage.read(path, max_bytes=1 << 24).decode())
    io = StoreIO(storage, metadata.location)
    return StaticTable(("t",), metadata, io.location(path), io, None)


def rows_of(found: pa.Table, columns: list[str]) -> list[str]:
    """Rows as text, of which a NaN equals another, in an order of their own."""
    return sorted(map(repr, found.select(columns).to_pylist()))


def check_shows_base_files(table: mainstem.Table, but: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Iceberg shows what a read optimized query shows, in the columns of its newest version (``but`` some);
    returns it."""
    shown = iceberg_table(table)
    columns = [field.name for field in shown.schema().fields if field.name not in but]
    wanted = table.scan(columns, mode="read_optimized").to_arrow()
    assert rows_of(shown.scan().to_arrow(), columns) == rows_of(wanted, columns)
    return wanted.to_pylist()
