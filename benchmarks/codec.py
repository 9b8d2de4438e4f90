"""Avro log blocks of eleven flat columns: our encoder and decoder against fastavro, in rows per
second.

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
from collections.abc import Callable

import fastavro
import numpy as np
import pyarrow as pa

from benchmarks import Row, data, row
from benchmarks.report import finish, table
from mainstem.formats.avro_columns import decode_many, decode_records, encode_records
from mainstem.formats.avro_schema import META_FIELDS, arrow_to_avro

ENCODE_TARGET, DECODE_TARGET = 20, 18
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


class Fastavro:
    """The same work, row by row."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self.parsed = fastavro.parse_schema(json.loads(text))
        self.schema = schema

    def encode(self, rows: pa.Table) -> bytes:
        """Framed records; lengths are filled in after each record is written."""
        out = []
        write = fastavro.schemaless_writer
        for batch in rows.to_batches(max_chunksize=_PIECE):
            sink = io.BytesIO()
            for record in batch.to_pylist():
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


def _measure(count: int, reduced: bool) -> list[Row]:
    rows = log_rows(count)
    text = arrow_to_avro(rows.schema, table_name="trips", meta_fields=True)
    peer = Fastavro(text, rows.schema)
    content = peer.encode(rows)
    view = memoryview(content)
    if b"".join(encode_records(rows, text)) != content:
        raise RuntimeError("our bytes differ from fastavro's")
    if not decode_records(view, count, text).equals(rows):
        raise RuntimeError("our rows differ from those that went in")
    some = ["_hoodie_record_key", "ts"]
    slow = 3 if reduced else 7
    seconds = _medians(
        {
            "encode": lambda: encode_records(rows, text),
            "fastavro encode": lambda: peer.encode(rows),
            "decode": lambda: decode_records(view, count, text),
            "fastavro decode": lambda: peer.decode(content, count),
            "two columns": lambda: decode_records(view, count, text, some),
        },
        {"encode": 15, "fastavro encode": slow, "decode": 15, "fastavro decode": slow}
        | {"two columns": 15},
    )
    speed = {name: count / value for name, value in seconds.items()}
    work = f"{count:,} rows x 11 columns"
    per_row = f"{len(content) / count:.0f} bytes per row"
    return [
        _against(f"encode {work}", speed["encode"], speed["fastavro encode"], count, per_row),
        _against(f"decode {work}", speed["decode"], speed["fastavro decode"], count),
        _against(f"decode 2 of 11 columns, {count:,} rows", speed["two columns"],
                 speed["fastavro decode"], count),
    ]  # fmt: skip


def _against(work: str, ours: float, theirs: float, count: int, note: str = "") -> Row:
    target = ENCODE_TARGET if work.startswith("encode") else DECODE_TARGET
    return row(
        work,
        ours,
        "rows/s",
        against="fastavro",
        baseline=theirs,
        target=target if count >= 10_000 else None,
        note=note,
    )


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


def run(reduced: bool) -> list[Row]:
    """Rows of the table for batches of 100 to 100,000 rows; targets count from 10,000 on."""
    sizes = (1_000, 10_000, 100_000) if reduced else (100, 1_000, 10_000, 100_000, 300_000)
    found = [line for count in sizes for line in _measure(count, reduced)]
    return found + _small_blocks(reduced)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.codec", description=__doc__)
    parser.add_argument("--rows", type=int, action="append", help="rows per batch; may be repeated")
    parser.add_argument("--full", action="store_true", help="more repeats")
    arguments = parser.parse_args()
    if arguments.rows:
        rows = [line for count in arguments.rows for line in _measure(count, not arguments.full)]
    else:
        rows = run(not arguments.full)
    print(table(finish(rows)))


if __name__ == "__main__":
    main()
