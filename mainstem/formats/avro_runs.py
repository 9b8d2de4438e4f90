"""Decodes neighbouring columns together if each takes the same number of bytes in every record.

Meta columns, keys of one length, nulls, doubles and numbers of one size make up most of a record. A few
sampled records show which columns these may be. The bytes of such a run of columns are then gathered once,
and every column is *checked* in all records before it is used (union branch, length prefix, continuation
bits). A column that fails the check ends the run and is decoded the general way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mainstem.formats.avro_cursors import Cursors, compress_varints, unzigzag
from mainstem.formats.avro_read_flat import arrow_of_bytes, decimals, primitive
from mainstem.formats.avro_rows import Malformed, read_long, reader_of
from mainstem.formats.avro_schema import AvroType, arrow_type

_SAMPLES = 12
_WIDTH_MAX = 4096
_FIXED_SIZES = {"boolean": 1, "float": 4, "double": 8}


@dataclass(frozen=True, slots=True)
class Shape:
    """The layout of one value in a record: ``prefix`` (branch and length), ``size`` with the value."""

    prefix: bytes
    size: int
    null: bool = False


def sample_shapes(
    data: memoryview, starts: np.ndarray, fields: Sequence[tuple[str, AvroType]]
) -> list[Shape | None]:
    """For each column the shape that all sampled records share; None if they differ or it is nested.

    ``starts`` are the starts of the framed records in ``data``, followed by its end.
    """
    rows = len(starts) - 1
    picked = sorted({i * (rows - 1) // (_SAMPLES - 1) for i in range(_SAMPLES)})
    shapes: list[Shape | None] | None = None
    for row in picked:
        record = bytes(data[int(starts[row]) + 4 : int(starts[row + 1])])
        if shapes is None:
            shapes = _shapes_of(record, fields)
        else:
            _narrow(shapes, record, fields)
    return shapes or []


def _narrow(shapes: list[Shape | None], data: bytes, fields: Sequence[tuple[str, AvroType]]) -> None:
    """Set to None the shapes that this record does not have."""
    at, end = 0, len(data)
    try:
        for i, (_, kind) in enumerate(fields):
            known = shapes[i]
            if (known is not None and kind.kind not in ("int", "long")) or (known and known.null):
                if data.startswith(known.prefix, at):
                    at += known.size
                    continue
                shapes[i] = None
            found, at = _shape(data, at, end, kind)
            if found != known:
                shapes[i] = None
    except (Malformed, IndexError):
        shapes[i:] = [None] * (len(fields) - i)


def _shapes_of(data: bytes, fields: Sequence[tuple[str, AvroType]]) -> list[Shape | None]:
    found: list[Shape | None] = []
    at, end = 0, len(data)
    try:
        for _, kind in fields:
            shape, at = _shape(data, at, end, kind)
            found.append(shape)
    except (Malformed, IndexError):
        pass  # the general decoder reports the damage
    return found + [None] * (len(fields) - len(found))


def _shape(data: bytes, at: int, end: int, kind: AvroType) -> tuple[Shape | None, int]:
    first = at
    if kind.nullable:
        at += 1
        if data[first] == kind.null_tag:
            return Shape(data[first:at], 1, null=True), at
        if data[first] != kind.value_tag:
            raise Malformed("no such union branch")
    if kind.kind in ("string", "bytes") and not kind.logical:
        size, at = read_long(data, at, end)
        prefix = data[first:at]
        at += size
        if size < 0 or at > end:
            raise Malformed("too long")
        return Shape(prefix, at - first), at
    if kind.kind in ("int", "long"):
        after = read_long(data, at, end)[1]
        return Shape(data[first:at], after - first), after
    size = kind.size if kind.kind == "fixed" else _FIXED_SIZES.get(kind.kind, 0)
    if size and size <= 16 and kind.logical != "vector":
        return Shape(data[first:at], at - first + size), at + size
    return None, reader_of(kind)(data, first, end)[1]


def run_end(shapes: Sequence[Shape | None], first: int, bytes_per_row: float) -> int:
    """The end of the run that begins at ``first``; a run is no wider than the average record.

    The limit keeps a few wide sampled records from making the gathered bytes larger than the block.
    """
    width, column = 0, first
    limit = min(_WIDTH_MAX, bytes_per_row)
    while column < len(shapes) and (shape := shapes[column]) is not None:
        width += shape.size
        if width > limit:
            break
        column += 1
    return column


class Run:
    """The gathered bytes of one run: uint8[rows, width]."""

    def __init__(self, cursors: Cursors, shapes: Sequence[Shape]) -> None:
        self.rows = cursors.rows
        self.width = sum(shape.size for shape in shapes)
        self.cells = cursors.gather(f"V{self.width}", cursors.at)

    def view(self, dtype: str, at: int) -> np.ndarray:
        """One value per record from byte ``at`` of the run, without copying."""
        return np.ndarray((self.rows,), dtype, self.cells, at, (self.width,))

    def has(self, expected: bytes, at: int) -> bool:
        """Whether every record has these bytes at ``at`` of the run."""
        for i in range(0, len(expected), 2):
            part = expected[i : i + 2]
            found = self.view(f"<u{len(part)}", at + i)
            if not (found == int.from_bytes(part, "little")).all():
                return False
        return True


def read_run(
    cursors: Cursors,
    fields: Sequence[tuple[str, AvroType]],
    shapes: Sequence[Shape],
    wanted: Sequence[bool],
) -> list[pa.Array | None]:
    """Decode columns for as long as they have their shapes, and move the cursors past these."""
    try:
        run = Run(cursors, shapes)
    except (IndexError, ValueError):
        return []
    made: list[pa.Array | None] = []
    at = 0
    for (_, kind), shape, keep in zip(fields, shapes, wanted, strict=True):
        if not run.has(shape.prefix, at):
            break
        ok, column = _column(run, kind, shape, at + len(shape.prefix), keep)
        if not ok:
            break
        made.append(column)
        at += shape.size
    cursors.at = cursors.at + at
    return made


def _column(run: Run, kind: AvroType, shape: Shape, at: int, keep: bool) -> tuple[bool, pa.Array | None]:
    if shape.null:
        return True, pa.nulls(run.rows, arrow_type(kind)) if keep else None
    size = shape.size - len(shape.prefix)
    if kind.kind in ("int", "long"):
        return _numbers(run, kind, at, size, keep)
    if kind.kind == "boolean":
        values = run.view("u1", at)
        if int(values.max()) > 1:
            return False, None
        return True, _booleans(values) if keep else None
    if not keep:
        return True, None
    if kind.kind in ("float", "double"):
        return True, primitive(kind, run.view(f"<f{size}", at).copy(), None)
    if kind.logical == "decimal":
        raw = np.zeros((run.rows, 16), np.uint8)
        raw[:, 16 - size :] = run.view(f"V{size}", at).copy().view(np.uint8).reshape(-1, size)
        return True, decimals(raw, size, None, arrow_type(kind))
    return True, _texts(run, kind, at, size)


def _booleans(values: np.ndarray) -> pa.Array:
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def _texts(run: Run, kind: AvroType, at: int, size: int) -> pa.Array:
    offsets = np.arange(run.rows + 1, dtype=np.int32) * np.int32(size)
    data = run.view(f"V{size}", at).copy() if size else np.zeros(0, np.uint8)
    return arrow_of_bytes(arrow_type(kind), run.rows, None, pa.py_buffer(offsets), pa.py_buffer(data))


def _numbers(run: Run, kind: AvroType, at: int, size: int, keep: bool) -> tuple[bool, pa.Array | None]:
    """Decode varints that have ``size`` bytes in all records; (False, None) if some have not."""
    if size > 8:
        return False, None
    if size == 1:
        words = run.view("u1", at).astype(np.uint64)
        more = 0x80
    else:
        raw = np.zeros((run.rows, 8), np.uint8)
        np.ndarray((run.rows,), f"V{size}", raw, 0, (8,))[:] = run.view(f"V{size}", at)
        words = raw.reshape(-1).view("<u8")
        more = 0x8080808080808080 >> 8 * (8 - size)
    bits = words & np.uint64(more)
    if not (bits == np.uint64(more & ((1 << 8 * (size - 1)) - 1))).all():
        return False, None
    if kind.kind == "long" and not keep:
        return True, None
    values = unzigzag(compress_varints(words) if size > 1 else words)
    if kind.kind == "int":
        if int(values.min()) < -(2**31) or int(values.max()) >= 2**31:
            return False, None
        values = values.astype(np.int32)
    return True, primitive(kind, values, None) if keep else None
