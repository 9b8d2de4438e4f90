"""The order of the fields in a value of a metadata file: one walk, used by ``encoding`` with columns and by
``encoding_few`` with rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from mainstem.formats.avro_put_flat import branch
from mainstem.formats.avro_rows import zigzag
from mainstem.formats.avro_schema import AvroType
from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.records.record_schema import (
    FILE_NAME,
    FLAT_COLUMNS,
    PAYLOADS,
    TYPES,
    UNIONS,
    RecordSchema,
)


class Parts(Protocol):
    """Receives the parts of values, in order; ``columns``: the columns that the rows have."""

    @property
    def columns(self) -> Collection[str]: ...

    def constant(self, data: bytes) -> None:
        """Bytes that are the same in every row."""

    def null(self, kind: AvroType, name: str) -> None:
        """A field that no row has; ``Invalid`` if it may not be null."""

    def column(self, kind: AvroType, name: str, column: str) -> None:
        """A field whose values are in this column."""

    def union(self, which: str, known: tuple[int, ...]) -> None:
        """The smallest or largest value in statistics; ``known``: kind of value of each branch."""

    def value_type(self, kind: AvroType, name: str) -> None:
        """The type of the column that the statistics describe."""


def lay_out(content: Content, layout: RecordSchema, file_name: str | None, parts: Parts) -> None:
    """Pass every field of a record to ``parts``. ``file_name``: value of Java's meta column, if any."""
    for name, kind in layout.record.fields:
        if name == PAYLOADS[content]:
            _lay_out_payload(content, layout, kind, parts)
        elif name == "type" and content in (Content.FILES, Content.STATS):
            parts.column(kind, name, name)
        elif name == "type":
            parts.constant(zigzag(TYPES[content][0]))
        elif name == FILE_NAME and file_name is not None:
            text = file_name.encode()
            parts.constant(branch(kind) + zigzag(len(text)) + text)
        elif kind.kind == "string" and not kind.nullable:  # ``key``: the real one is the file entry's
            parts.constant(b"\0")
        else:
            parts.null(kind, name)


def _lay_out_payload(content: Content, layout: RecordSchema, kind: AvroType, parts: Parts) -> None:
    if content == Content.FILES:
        parts.column(kind, "files", "files")
        return
    parts.constant(branch(kind))
    for name, child in kind.fields:
        column = name if name in parts.columns else FLAT_COLUMNS.get(name, name)
        if name in UNIONS and name in layout.branches:
            parts.union(name.removesuffix("Value"), layout.branches[name])
        elif name == "valueType":
            parts.value_type(child, name)
        elif column in parts.columns:
            parts.column(child, name, column)
        else:
            parts.null(child, name)
