"""Reading change data: what one instant changed in one file group (Java's CDCFileGroupIterator).

Images are whole rows. Depending on the table's supplemental logging mode, a change log (``.cdc``) holds
both images, the image before, or only keys. Missing images are looked up by key in the base files before
and after. The changes of log files are the difference between the slice before them and the slice with
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.formats.log_file import BlockKind
from mainstem.formats.native_log import NativeBlock
from mainstem.formats.schema_resolution import project_to
from mainstem.merge.log_entries import joined_keys
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.changes.json_images import avro_texts, row_texts
from mainstem.readers.rows.native_logs import blocks_of
from mainstem.readers.rows.split import ReadSpec, Split, log_entries
from mainstem.storage.protocol import Storage

AS_IS = "AS_IS"  # change logs
INSERTED = "BASE_FILE_INSERT"  # every row of the file after is new
DELETED = "BASE_FILE_DELETE"  # every row before is gone (also REPLACE_COMMIT)
LOGGED = "LOG_FILE"
REWRITTEN = "REWRITTEN"  # a base file without a change log: compared with the one before
COMPACTED = "COMPACTED"  # two base files, of which some keys are compared
JSON, STRUCT = "json", "struct"
INSERT, UPDATE, DELETE = "i", "u", "d"


def cdc_schema(spec: ReadSpec, images: str, bare: bool = False) -> pa.Schema:
    """Columns of change rows: ``op``, ``ts_ms`` (requested time of the instant), ``before``, ``after``.

    ``bare``: images have no meta fields.
    """
    fields = [field for field in spec.schema if not (bare and field.name in META_FIELDS)]
    image = pa.string() if images == JSON else pa.struct(fields)
    return pa.schema([("op", pa.string()), ("ts_ms", pa.string()), ("before", image), ("after", image)])


@dataclass(frozen=True)
class ChangeSplit:
    """The changes of one instant in one file group; picklable.

    ``case``: Java's HoodieCDCInferenceCase. ``files``: change logs or log files, relative to the
    table. ``before``, ``after``: the group's file slice before and after the instant. ``bare``: as Java reads
    tables of version 10, images have no meta fields, which native change logs do not hold.
    """

    partition: str
    file_id: str
    instant: str
    case: str
    spec: ReadSpec = field(repr=False)
    files: tuple[str, ...] = ()
    before: Split | None = None
    after: Split | None = None
    images: str = JSON
    bare: bool = False
    columns: tuple[str, ...] = ("op", "ts_ms", "before", "after")
    filter: pc.Expression | None = None

    def read(self, storage: Storage) -> Iterator[pa.Table]:
        """Change rows that match the filter, in the query's columns; empty tables are left out."""
        for table in self._all(storage):
            rows = table if self.filter is None else table.filter(self.filter)
            if rows.num_rows:
                yield rows.select(list(self.columns))

    def _all(self, storage: Storage) -> Iterator[pa.Table]:
        if self.case == AS_IS:
            yield from _from_change_logs(storage, self)
        elif self.case == INSERTED:
            for rows in _rows(storage, self.after):
                yield self.made(INSERT, None, rows)
        elif self.case == DELETED:
            for rows in _rows(storage, self.before):
                yield self.made(DELETE, rows, None)
        else:
            keys = None
            if self.case == LOGGED:
                logs = Split(self.partition, self.file_id, None, self.files, keys_only(self.spec))
                keys = pc.unique(joined_keys(log_entries(storage, logs)))
            for change in compared(storage, self, keys):
                yield self.made(*change)

    def made(self, op: str, before: pa.Table | None, after: pa.Table | None) -> pa.Table:
        """Change rows of one kind from whole rows."""
        rows = before if before is not None else after
        assert rows is not None
        count = rows.num_rows
        ops = pa.repeat(pa.scalar(op), count)
        return self.assembled(ops, count, self.image(before, count), self.image(after, count))

    def image(self, rows: pa.Table | None, count: int) -> pa.Array:
        """Whole rows as one column of images; null where there is no row."""
        kind = self.image_type
        if rows is None:
            return pa.nulls(count, kind)
        if self.bare:
            rows = rows.select([name for name in rows.schema.names if name not in META_FIELDS])
        return row_texts(rows) if self.images == JSON else as_struct(rows, kind)

    def assembled(self, ops: pa.Array, count: int, before: pa.Array, after: pa.Array) -> pa.Table:
        """The four columns."""
        instants = pa.repeat(pa.scalar(self.instant), count)
        schema = cdc_schema(self.spec, self.images, self.bare)
        return pa.table([ops, instants, before, after], schema=schema)

    @property
    def image_type(self) -> pa.DataType:
        """Type of the images."""
        return cdc_schema(self.spec, self.images, self.bare).field("before").type


def _rows(storage: Storage, split: Split | None, keys: pa.Array | None = None) -> Iterator[pa.Table]:
    """Whole rows of a slice, or those of some keys."""
    if split is None:
        return
    if keys is not None:
        if not len(keys):
            return
        wanted = replace(split.spec, filter=pc.field(KEY_COLUMN).isin(keys), extra=(KEY_COLUMN,))
        split = replace(split, spec=wanted)
    yield from split.read(storage)


def _table(storage: Storage, split: Split | None, spec: ReadSpec, keys: pa.Array | None) -> pa.Table:
    parts = list(_rows(storage, split, keys))
    return pa.concat_tables([spec.read_schema.empty_table(), *parts])


def as_struct(rows: pa.Table, kind: pa.DataType) -> pa.Array:
    """Rows as a column of structs of this type."""
    rows = project_to(rows, pa.schema([kind.field(i) for i in range(kind.num_fields)]))
    columns = [_flat(column) for column in rows.columns]
    return pa.StructArray.from_arrays(columns, fields=[kind.field(i) for i in range(kind.num_fields)])


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def compared(
    storage: Storage, change: ChangeSplit, keys: pa.Array | None
) -> Iterator[tuple[str, pa.Table | None, pa.Table | None]]:
    """Compares the slice before with the slice after: operation, rows before and rows after. Deleted rows
    come first, then inserted, then changed ones. ``keys``: None compares all."""
    before = _table(storage, change.before, change.spec, keys)
    after = _table(storage, change.after, change.spec, keys)
    old, new = _flat(before.column(KEY_COLUMN)), _flat(after.column(KEY_COLUMN))
    gone = pc.invert(pc.is_in(old, value_set=new))
    yield DELETE, before.filter(gone), None
    was = pc.index_in(new, value_set=old)
    yield INSERT, None, after.filter(pc.is_null(was))
    kept = after.filter(pc.is_valid(was))
    earlier = before.take(pc.drop_null(was))
    changed = pa.array(_differs(earlier, kept))
    yield UPDATE, earlier.filter(changed), kept.filter(changed)


def keys_only(spec: ReadSpec) -> ReadSpec:
    """What reads the record keys alone."""
    return replace(spec, columns=(KEY_COLUMN,), filter=None, extra=())


def _differs(one: pa.Table, other: pa.Table) -> np.ndarray:
    """Mask of the rows that differ between two tables of one schema; nested values compare as text."""
    differs = np.zeros(one.num_rows, bool)
    for name in one.schema.names:
        left, right = one.column(name), other.column(name)
        if pa.types.is_nested(left.type):
            left, right = row_texts(one.select([name])), row_texts(other.select([name]))
        both = pc.fill_null(pc.not_equal(left, right), False)
        nulls = pc.xor(pc.is_null(left), pc.is_null(right))
        differs |= np.asarray(both) | np.asarray(nulls)
    return differs


def _from_change_logs(storage: Storage, change: ChangeSplit) -> Iterator[pa.Table]:
    """Rows of change logs; missing images are looked up in the base files before and after."""
    for path in change.files:
        for block in blocks_of(storage, path, damaged=change.spec.damaged):
            if block.kind is not BlockKind.CDC_DATA:
                raise CorruptTable(
                    f"a block of kind {block.kind.name} in a change log; expected CDC_DATA",
                    path=path,
                    offset=block.offset,
                )
            table = block.table()
            if table.num_rows:
                yield _completed(storage, change, table, path, native=isinstance(block, NativeBlock))


def _completed(
    storage: Storage, change: ChangeSplit, logged: pa.Table, path: str, *, native: bool
) -> pa.Table:
    ops = _flat(logged.column("op")).cast(pa.string())
    names, count = logged.schema.names, logged.num_rows
    images = []
    for side, present, ops_with_image, split in (
        ("before", "before" in names, (UPDATE, DELETE), change.before),
        ("after", "after" in names, (INSERT, UPDATE), change.after),
    ):
        if present:
            images.append(_logged_image(change, _flat(logged.column(side)), native))
            continue
        keys = _flat(logged.column("record_key")).cast(pa.string())
        wanted = pc.is_in(ops, value_set=pa.array(ops_with_image))
        keys = pc.if_else(wanted, keys, None)
        images.append(_looked_up(storage, change, split, keys, path))
    return change.assembled(ops, count, *images)


def _logged_image(change: ChangeSplit, image: pa.Array, native: bool) -> pa.Array:
    """An image from a change log; as in Java, one that a log of blocks lacks reads as the text ``null``."""
    if change.images == JSON and not native:
        return avro_texts(image)
    fields = [image.type.field(i).name for i in range(image.type.num_fields)]
    rows = pa.table(dict(zip(fields, image.flatten(), strict=True)))
    if change.images == JSON:
        return pc.if_else(image.is_valid(), row_texts(rows), None)
    kind = change.image_type
    made = as_struct(rows, kind)
    mask = image.is_null()
    return pa.StructArray.from_arrays(
        made.flatten(), fields=[kind.field(i) for i in range(kind.num_fields)], mask=mask
    )


def _looked_up(
    storage: Storage, change: ChangeSplit, split: Split | None, keys: pa.Array, path: str
) -> pa.Array:
    """Image of each key from a base file; null for a null key."""
    asked = pc.drop_null(keys)
    rows = _table(storage, split, change.spec, asked)
    found = pc.index_in(keys, value_set=_flat(rows.column(KEY_COLUMN)), skip_nulls=True)
    lost = pc.sum(pc.and_(pc.is_null(found), pc.is_valid(keys))).as_py()
    if lost:
        raise CorruptTable(
            f"{lost} records of a change log are not in the base file that it belongs to", path=path
        )
    return change.image(rows, rows.num_rows).take(found)
