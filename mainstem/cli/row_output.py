"""Writes rows of a query as an aligned table, CSV, JSON lines or Parquet.

Rows pass through batch by batch, so memory is bounded by a file slice. The table is for people: cells
are cut, control characters stripped, numbers right-aligned. The other formats keep every value exactly;
values that CSV and JSON cannot represent become text.
"""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from mainstem.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "csv", "json", "parquet")
CELL_WIDTH_MAX = 60
SAMPLE_ROWS = 1000  # rows whose widths decide the columns; later ones may be wider
_CONTROL = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))


def plain(text: str) -> str:
    """``text`` without control, formatting and line-breaking characters; tabs and newlines become
    blanks.

    Covers C0 and C1 controls (terminal escapes), bidirectional overrides and lone surrogates.
    """
    if text.isascii() and text.isprintable():
        return text
    spaced = text.replace("\t", " ").replace("\n", " ").replace("\r", " ")
    return "".join(c for c in spaced if unicodedata.category(c) not in _CONTROL)


def write_rows(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    form: str,
    limit: int,
    out: TextIO,
    output: str | None,
) -> int:
    """Writes at most ``limit`` rows (0: all) to ``out`` or the new file ``output``; returns their number.

    Raises ``Invalid`` if the file exists, and for Parquet without a file.
    """
    if form == "parquet" and output is None:
        raise Invalid("--format parquet needs --output FILE")
    if output is None:
        return _TEXT[form](batches, schema, out, limit)
    with _new_file(output) as file:
        if form == "parquet":
            return _parquet(batches, schema, file, limit)
        text = open(file.fileno(), "w", encoding="utf-8", newline="", closefd=False)  # noqa: SIM115
        count = _TEXT[form](batches, schema, text, limit)
        text.flush()
        return count


@contextmanager
def _new_file(name: str) -> Iterator[BinaryIO]:
    """A file that gets its name once it is complete, and never replaces another."""
    part = f"{name}.{os.getpid()}.part"
    if os.path.lexists(name):
        raise Invalid(f"--output {name} exists already; remove it, or write to another file")
    try:
        with open(part, "xb") as file:
            yield file
        os.link(part, name)
    except FileExistsError as error:
        raise Invalid(f"--output {name}: {error.filename} appeared meanwhile; try again") from error
    finally:
        if os.path.lexists(part):
            os.unlink(part)


def _limited(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """The first ``limit`` rows (0: all); nothing is read beyond them."""
    left = limit
    for batch in batches:
        part = batch.slice(0, left) if limit else batch
        yield part
        left -= part.num_rows
        if limit and not left:
            return


def _rows(part: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Rows one by one, for formats without Arrow kernels; holds a bounded number of rows."""
    for start in range(0, part.num_rows, SAMPLE_ROWS):
        yield from part.slice(start, SAMPLE_ROWS).to_pylist()


# -- JSON ----------------------------------------------------------------------------------------


def print_json(items: Iterable[Mapping[str, Any]], out: TextIO) -> int:
    """One object per line. ASCII only, so that every control character is an escape."""
    count = 0
    for item in items:
        out.write(json.dumps(plain_json(item), allow_nan=False) + "\n")
        count += 1
    return count


def plain_json(value: Any) -> Any:
    """A value as JSON data; what JSON lacks becomes text: times in ISO 8601, decimals, bytes in hex."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # NaN and infinities have no JSON
    if isinstance(value, Mapping):
        return {str(k): plain_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(v) for v in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _json(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: TextIO, limit: int) -> int:
    return print_json(chain.from_iterable(map(_rows, _limited(batches, limit))), out)


# -- CSV and Parquet -----------------------------------------------------------------------------


def _csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: TextIO, limit: int) -> int:
    """RFC 4180 with a header line; nulls are empty, empty strings ``""``, nested values JSON."""
    import pyarrow as pa
    from pyarrow import csv

    target = pa.schema([(f.name, f.type if _csv_knows(f.type) else pa.string()) for f in schema])
    sink = pa.BufferOutputStream()
    csv.write_csv(target.empty_table(), sink)
    out.write(sink.getvalue().to_pybytes().decode())
    count = 0
    bare = csv.WriteOptions(include_header=False)
    for part in _limited(batches, limit):
        columns = [
            column if _csv_knows(column.type) else pa.array(map(_csv_text, column.to_pylist()), pa.string())
            for column in part.columns
        ]
        sink = pa.BufferOutputStream()
        csv.write_csv(pa.table(columns, schema=target), sink, bare)
        out.write(sink.getvalue().to_pybytes().decode())
        count += part.num_rows
    return count


def _csv_knows(kind: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind)
    return text or types.is_integer(kind) or types.is_boolean(kind) or types.is_floating(kind)


def _csv_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, (dict, list)):
        return json.dumps(plain_json(value), ensure_ascii=False)
    return str(plain_json(value))


def _parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: BinaryIO, limit: int) -> int:
    import pyarrow.parquet as pq

    count = 0
    with pq.ParquetWriter(file, schema) as writer:
        for part in _limited(batches, limit):
            writer.write_batch(part)
            count += part.num_rows
    return count


# -- tables --------------------------------------------------------------------------------------


def _table(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: TextIO, limit: int) -> int:
    """Prints a table, and below it the number of rows and whether there are more."""
    total = 0

    def shown() -> Iterator[dict[str, Any]]:
        nonlocal total
        for part in _limited(batches, limit + 1 if limit else 0):  # one extra row shows that there are more
            rows = part.slice(0, max(0, limit - total)) if limit else part
            total += part.num_rows
            yield from _rows(rows)

    right = [_is_number(field.type) for field in schema]
    print_table(shown(), schema.names, out, right=right, cut=CELL_WIDTH_MAX)
    count = min(total, limit) if limit else total
    more = "; there are more, --limit 0 shows all" if total > count else ""
    out.write(f"({count} row{'' if count == 1 else 's'}{more})\n")
    return count


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def print_table(
    items: Iterable[Mapping[str, Any]],
    heads: Sequence[str],
    out: TextIO,
    *,
    right: Sequence[bool] | None = None,
    cut: int | None = None,
) -> None:
    """Prints aligned columns, as wide as the first rows need, at most 60; ``cut``: a cell's maximum width."""
    sides = list(right or [False] * len(heads))
    source = iter(items)
    sample = []
    for item in source:
        sample.append([_cell(item[h], cut) for h in heads])
        if len(sample) == SAMPLE_ROWS:
            break
    names = [_shortened(plain(h), cut) for h in heads]
    widths = [
        min(CELL_WIDTH_MAX, max(map(display_width, column))) for column in zip(names, *sample, strict=True)
    ]
    for cells in chain([names], sample):
        _print_line(cells, widths, sides, out)
    for item in source:
        _print_line([_cell(item[h], cut) for h in heads], widths, sides, out)


def display_width(text: str) -> int:
    """Columns of a terminal: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def _cell(value: Any, cut: int | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (dict, list)):
        return _shortened(plain(json.dumps(plain_json(value), ensure_ascii=False)), cut)
    if isinstance(value, (bytes, bytearray)):
        return _shortened(bytes(value).hex(), cut)
    return _shortened(plain(str(value)), cut)


def _shortened(text: str, cut: int | None) -> str:
    if cut is None or display_width(text) <= cut:
        return text
    kept, width = [], 3
    for c in text:
        width += display_width(c)
        if width > cut:
            break
        kept.append(c)
    return "".join(kept) + "..."


def _print_line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], out: TextIO) -> None:
    padded = []
    for cell, width, side in zip(cells, widths, right, strict=True):
        blanks = " " * max(0, width - display_width(cell))
        padded.append(blanks + cell if side else cell + blanks)
    out.write("  ".join(padded).rstrip() + "\n")


_TEXT = {"table": _table, "csv": _csv, "json": _json}
