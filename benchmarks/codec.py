"""Avro log blocks: our encoder and decoder against fastavro, in rows per second.

Three tables: eleven flat columns without nulls, the same with 30 % nulls in every user column but
the key, and lists, structs, maps, lists of structs and decimals with 30 % nulls at every level.

Both sides start and end with Arrow tables and the same bytes. fastavro works in pieces of 20,000
rows, which is its fastest way. The repeats of all contenders take turns in one process; medians
are compared. ``python -m benchmarks.codec [--rows N]`` prints the table alone.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from collections.abc import Callable, Sequence
from decimal import Decimal

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import Row, data, row
from benchmarks.report import finish, table
from mainstem.formats.avro_columns import decode_many, decode_records, encode_records
from mainstem.formats.avro_schema import META_FIELDS, arrow_to_avro

FLAT = ""
FLAT_TARGETS, NULLS_TARGETS, NESTED_TARGETS = (20, 18), (15, 15), (5, 5)
_NULLS = 0.3
_PIECE = 20_000
_INSTANT = "20260102030405678"


def log_rows(count: int) -> pa.Table:
    """What an upsert of ``count`` rows into one bucket appends: five meta and six user columns."""
    rows = data.rows(np.arange(count))
    meta = [
        pa.array([_INSTANT] * count),
        pa.array([f"{_INSTANT}_3_{i}" for i in range(1, count + 1)]),
        rows[data.KEY],
        pa.array(["city=san_francisco"] * count),
        pa.array(["00000003-0000-0000-0000-000000000000-0"] * count),
    ]
    return pa.table([*meta, *rows.columns], names=[*META_FIELDS, *rows.column_names])


def rows_with_nulls(count: int) -> pa.Table:
    """``log_rows`` with 30 % nulls in all columns behind the record key."""
    rows, chance = log_rows(count), np.random.default_rng(7)
    first = rows.column_names.index(data.KEY) + 1
    columns = [column.combine_chunks() for column in rows.columns]
    columns[first:] = [_with_nulls(column, chance) for column in columns[first:]]
    return pa.table(columns, names=rows.column_names)


def nested_rows(count: int) -> pa.Table:
    """Meta columns and key, then lists, a struct, a map, a list of structs and two decimals."""
    chance = np.random.default_rng(11)
    flat = log_rows(count)
    first = flat.column_names.index(data.KEY) + 1
    point = pa.StructArray.from_arrays(
        [
            _with_nulls(pa.array(chance.random(count)), chance),
            _with_nulls(_words(count, chance), chance),
            _with_nulls(pa.array(chance.integers(0, 10**9, count)), chance),
        ],
        names=["x", "label", "at"],
    )
    columns = {
        "tags": _lists(count, chance, _words),
        "counts": _lists(count, chance, lambda n, c: pa.array(c.integers(0, 5000, n), pa.int32())),
        "point": _with_nulls(point, chance),
        "scores": _maps(count, chance),
        "lines": _lists(count, chance, _lines),
        "price": _with_nulls(_decimals(count, chance, 18, 2), chance),
        "total": _with_nulls(_decimals(count, chance, 30, 10), chance),
    }
    made = {name: flat[name] for name in flat.column_names[:first]} | columns
    return pa.table(made)


def _with_nulls(column: pa.Array, chance: np.random.Generator) -> pa.Array:
    """30 % nulls with nothing behind them, as in what is read from files."""
    kept = chance.random(len(column)) >= _NULLS
    return column.take(pa.array(np.arange(len(column)), mask=~kept))


def _words(count: int, chance: np.random.Generator) -> pa.Array:
    words = pa.array([f"{'abcdefgh'[i % 8] * (i % 13)}-{i}" for i in range(500)])
    return words.take(pa.array(chance.integers(0, 500, count)))


def _decimals(count: int, chance: np.random.Generator, precision: int, scale: int) -> pa.Array:
    cents = pa.array(chance.integers(-(10**9), 10**9, count)).cast(pa.decimal128(19, 0))
    hundredths = pa.array([Decimal("0.01")], pa.decimal128(3, 2))[0]
    return pc.multiply(cents, hundredths).cast(pa.decimal128(precision, scale))


def _lines(count: int, chance: np.random.Generator) -> pa.Array:
    return pa.StructArray.from_arrays(
        [
            _with_nulls(_words(count, chance), chance),
            _with_nulls(pa.array(chance.integers(1, 9, count)), chance),
        ],
        names=["sku", "quantity"],
    )


def _offsets(count: int, chance: np.random.Generator) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(chance.integers(0, 7, count))]), pa.int32())


def _lists(
    count: int,
    chance: np.random.Generator,
    items: Callable[[int, np.random.Generator], pa.Array],
) -> pa.Array:
    offsets = _offsets(count, chance)
    values = _with_nulls(items(offsets[-1].as_py(), chance), chance)
    kind = pa.list_(pa.field("element", values.type))
    return _with_nulls(pa.ListArray.from_arrays(offsets, values, type=kind), chance)


def _maps(count: int, chance: np.random.Generator) -> pa.Array:
    offsets = _offsets(count, chance)
    total = offsets[-1].as_py()
    keys = pa.array([f"k{i}" for i in range(7)]).take(pa.array(np.arange(total) % 7))
    values = _with_nulls(pa.array(chance.random(total)), chance)
    return _with_nulls(pa.MapArray.from_arrays(offsets, keys, values), chance)


class Fastavro:
    """The same work, row by row."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self.parsed = fastavro.parse_schema(json.loads(text))
        self.schema = schema
        self.maps = [field.name for field in schema if pa.types.is_map(field.type)]
        self.options = {"maps_as_pydicts": "strict"} if self.maps else {}

    def encode(self, rows: pa.Table) -> bytes:
        """Framed records; lengths are filled in after each record is written."""
        out = []
        write = fastavro.schemaless_writer
        for batch in rows.to_batches(max_chunksize=_PIECE):
            sink = io.BytesIO()
            for record in batch.to_pylist(**self.options):
                begin = sink.tell()
                sink.write(b"\0\0\0\0")
                write(sink, self.parsed, record)
                end = sink.tell()
                sink.seek(begin)
                sink.write((end - begin - 4).to_bytes(4, "big"))
                sink.seek(end)
            out.append(sink.getvalue())
        return b"".join(out)

    def decode(self, content: bytes, count: int) -> pa.Table:
        """A table of the framed records."""
        source = io.BytesIO(content)
        read = fastavro.schemaless_reader
        parts = []
        for low in range(0, count, _PIECE):
            records = []
            for _ in range(min(_PIECE, count - low)):
                source.read(4)
                records.append(read(source, self.parsed, None))
            for name in self.maps:  # what pyarrow takes as a map
                for record in records:
                    if record[name] is not None:
                        record[name] = list(record[name].items())
            parts.append(pa.Table.from_pylist(records, self.schema))
        return pa.concat_tables(parts)


def _medians(contenders: dict[str, Callable[[], object]], repeats: dict[str, int]) -> dict:
    """Seconds per contender; they take turns, fast ones more often."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for contender in contenders.values():
        contender()
    for _ in range(max(repeats.values())):
        for name, contender in contenders.items():
            if len(seconds[name]) < repeats[name]:
                began = time.perf_counter()
                contender()
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def _measure(rows: pa.Table, what: str, targets: tuple[float, float], reduced: bool) -> list[Row]:
    """Encode and decode; ``targets`` count from 10,000 rows on."""
    count = rows.num_rows
    text = arrow_to_avro(rows.schema, table_name="trips", meta_fields=True)
    peer = Fastavro(text, rows.schema)
    content = peer.encode(rows)
    view = memoryview(content)
    if b"".join(encode_records(rows, text)) != content:
        raise RuntimeError("our bytes differ from fastavro's")
    if not decode_records(view, count, text).equals(rows):
        raise RuntimeError("our rows differ from those that went in")
    slow, fast = (3, 9) if reduced else (7, 15)
    contenders = {
        "encode": (lambda: encode_records(rows, text), fast),
        "fastavro encode": (lambda: peer.encode(rows), slow),
        "decode": (lambda: decode_records(view, count, text), fast),
        "fastavro decode": (lambda: peer.decode(content, count), slow),
    }
    some = ["_hoodie_record_key", rows.column_names[-1]]
    if what == FLAT:
        some = ["_hoodie_record_key", "ts"]
    contenders["two columns"] = (lambda: decode_records(view, count, text, some), fast)
    seconds = _medians(
        {name: contender for name, (contender, _) in contenders.items()},
        {name: repeats for name, (_, repeats) in contenders.items()},
    )
    speed = {name: count / value for name, value in seconds.items()}
    work = f"{count:,} rows x {rows.num_columns} columns{what}"
    per_row = f"{len(content) / count:.0f} bytes per row"
    if count < 10_000:
        targets = (None, None)
    return [
        _against(f"encode {work}", speed["encode"], speed["fastavro encode"], targets[0], per_row),
        _against(f"decode {work}", speed["decode"], speed["fastavro decode"], targets[1]),
        _against(f"decode 2 of {rows.num_columns} columns{what}, {count:,} rows",
                 speed["two columns"], speed["fastavro decode"], targets[1] if what == FLAT else None),
    ]  # fmt: skip


def _against(work: str, ours: float, theirs: float, target: float | None, note: str = "") -> Row:
    return row(work, ours, "rows/s", against="fastavro", baseline=theirs, target=target, note=note)


def _small_blocks(reduced: bool) -> list[Row]:
    """100,000 rows in blocks of 100, as many small commits leave them."""
    rows = log_rows(100_000)
    text = arrow_to_avro(rows.schema, table_name="trips", meta_fields=True)
    peer = Fastavro(text, rows.schema)
    parts = [
        (memoryview(b"".join(encode_records(rows.slice(low, 100), text))), 100)
        for low in range(0, 100_000, 100)
    ]

    def one_by_one() -> pa.Table:
        return pa.concat_tables([peer.decode(bytes(part), count) for part, count in parts])

    seconds = _medians(
        {"ours": lambda: decode_many(parts, text), "fastavro": one_by_one},
        {"ours": 9, "fastavro": 2 if reduced else 5},
    )
    speed = {name: 100_000 / value for name, value in seconds.items()}
    return [
        row(
            "decode 1,000 blocks of 100 rows",
            speed["ours"],
            "rows/s",
            against="fastavro",
            baseline=speed["fastavro"],
        )
    ]


def _sizes(sizes: Sequence[int], reduced: bool) -> list[Row]:
    return [line for n in sizes for line in _measure(log_rows(n), FLAT, FLAT_TARGETS, reduced)]


def _nulls_and_nested(count: int, reduced: bool) -> list[Row]:
    nulls = _measure(rows_with_nulls(count), ", 30 % nulls", NULLS_TARGETS, reduced)
    name = ", lists, structs, maps, decimals, 30 % nulls"
    return nulls + _measure(nested_rows(count), name, NESTED_TARGETS, reduced)


def run(reduced: bool) -> list[Row]:
    """Rows of the table for batches of 100 to 100,000 rows; targets count from 10,000 on."""
    sizes = (1_000, 10_000, 100_000) if reduced else (100, 1_000, 10_000, 100_000, 300_000)
    found = _sizes(sizes, reduced) + _nulls_and_nested(10_000 if reduced else 100_000, reduced)
    return found + _small_blocks(reduced)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.codec", description=__doc__)
    parser.add_argument("--rows", type=int, action="append", help="rows per batch; may be repeated")
    parser.add_argument("--nested", type=int, help="rows of the tables with nulls and nesting only")
    parser.add_argument("--full", action="store_true", help="more repeats")
    arguments = parser.parse_args()
    if arguments.nested:
        rows = _nulls_and_nested(arguments.nested, not arguments.full)
    elif arguments.rows:
        rows = _sizes(arguments.rows, not arguments.full)
    else:
        rows = run(not arguments.full)
    print(table(finish(rows)))


if __name__ == "__main__":
    main()
