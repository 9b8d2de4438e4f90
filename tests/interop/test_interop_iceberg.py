"""Goal: Iceberg's metadata beside a table is read by DuckDB and by Spark with Iceberg as Hudi's read
optimized query reads the table, and Java Hudi goes on with the table as if it were not there.

Method: a table of ours with every type that both know, after compactions, deletes and new columns, and one
that Java writes, compacts and cleans; cells are compared.
"""

from __future__ import annotations

import datetime as dt
import os
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from java_hudi import PYTHON, JavaHudi, nbcc_options

import mainstem

READERS = Path(__file__).with_name("iceberg_readers.py")
OPTIONS = {"hoodie.mainstem.services": "off", "hoodie.mainstem.fsync": "false"}
SCHEMA = pa.schema([
    ("id", pa.string()), ("city", pa.string()), ("n", pa.int32()), ("l", pa.int64()), ("f", pa.float32()),
    ("d", pa.float64()), ("ok", pa.bool_()), ("day", pa.date32()), ("price", pa.decimal128(12, 2)),
    ("us", pa.timestamp("us", "UTC")), ("ms", pa.timestamp("ms", "UTC")), ("local", pa.timestamp("us")),
    ("raw", pa.binary()), ("tags", pa.list_(pa.string())), ("marks", pa.map_(pa.string(), pa.float64())),
    ("who", pa.struct([("age", pa.int32()), ("names", pa.list_(pa.string()))])),
])  # fmt: skip


def row(number: int, n: int) -> dict[str, Any]:
    at = dt.datetime(2026, 1, 1, 12, 0, 0, 123000) + dt.timedelta(hours=number)
    full = {
        "id": f"k{number}", "city": ("oslo", "rome & co/x", None)[number % 3], "n": n, "l": 1 << 40, "f": 0.1,
        "d": number / 7, "ok": number % 2 == 0, "day": at.date(), "price": Decimal("12.50"),
        "us": at.replace(tzinfo=dt.UTC), "ms": at.replace(tzinfo=dt.UTC), "local": at, "raw": b"\0\xff",
        "tags": ["a", None, "é"], "marks": {"x": 1.5, "y": None}, "who": {"age": number, "names": []},
    }  # fmt: skip
    return full if number % 5 else {"id": full["id"], "city": full["city"], "n": n}


def read_by(engine: str, table: mainstem.Table, condition: str, folder: Path) -> tuple[pa.Table, int]:
    """All rows, and how many of them fit the condition."""
    out = folder / f"{engine}.parquet"
    command = [str(PYTHON), str(READERS), engine, table.path, str(out), condition]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(os.environ))
    assert done.returncode == 0, done.stderr[-3000:]
    return pq.read_table(out), int(done.stdout.split()[-1])


def as_text(rows: pa.Table, columns: list[str]) -> list[str]:
    return sorted(map(repr, rows.select(columns).to_pylist()))


@pytest.mark.supports("Engines", "Iceberg: read by DuckDB")
@pytest.mark.supports("Engines", "Iceberg: read by Spark with Iceberg 1.9")
@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_cells_are_those_of_a_read_optimized_query(engine: str, tmp_path: Path) -> None:
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", partition_by=["city"], buckets=2,
        properties={**OPTIONS, "hoodie.mainstem.iceberg.enable": "true"},
    )  # fmt: skip
    table.upsert(pa.Table.from_pylist([row(number, 1) for number in range(40)], SCHEMA))
    table.services.compact()
    wider = SCHEMA.set(2, pa.field("n", pa.int64())).append(pa.field("more", pa.string()))
    changed = [{**row(number, 1 << 35), "more": "x"} for number in range(0, 40, 12)]
    table.upsert(pa.Table.from_pylist(changed, wider))
    table.delete(pa.Table.from_pylist([row(1, 0)], SCHEMA).select(["id", "city"]))
    table.services.compact()
    table.upsert(pa.Table.from_pylist([row(2, 99)], wider))  # in a log file, which is not shown
    columns = [field.name for field in table.schema if not field.name.startswith("_hoodie")]
    wanted = table.scan(columns, mode="read_optimized").to_arrow()
    condition = "city = 'oslo' AND n >= 2 AND day < DATE '2026-01-02'"
    found, fits = read_by(engine, table, condition, tmp_path)
    assert found.num_rows == 39 and as_text(found, columns) == as_text(wanted, columns)
    assert fits == sum(
        r["city"] == "oslo" and r["n"] >= 2 and r["day"] is not None and r["day"] < dt.date(2026, 1, 2)
        for r in wanted.to_pylist()
    )


def test_java_goes_on_beside_icebergs_metadata(java: JavaHudi, path: str, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])

    def rows(first: int, ts: int) -> pa.Table:
        made = [{"id": f"k{i}", "city": ("oslo", "rome")[i % 2], "ts": ts} for i in range(first, first + 10)]
        return pa.Table.from_pylist(made, schema)

    of_java = nbcc_options(
        "beside", record_key=["id"], partition_by=["city"], ordering=["ts"], buckets=2,
        extra={"hoodie.clean.commits.retained": "1"},
    )  # fmt: skip
    java.write(path, rows(0, 1), of_java)
    java.compact(path, of_java)
    table = mainstem.open_table(path, OPTIONS)
    assert table.services.publish_iceberg().rows == 10
    # Java looks for partitions now, and finds none in the folder `metadata`.
    of_java = {**of_java, "hoodie.metadata.enable": "true"}
    for ts in (2, 3, 4):
        java.write(path, rows(5, ts), of_java)
        java.compact(path, of_java)
    java.clean(path, of_java)
    again = mainstem.open_table(path, OPTIONS)
    report = again.validate_metadata()
    assert report is not None and report.partitions and not report.differences
    assert len(java.read_by_default(path)) == 15
    again.services.publish_iceberg()
    columns = ["id", "city", "ts"]
    found, fits = read_by("duckdb", again, "ts = 4", tmp_path)
    assert as_text(found, columns) == as_text(java.read_optimized(path), columns)
    assert fits == 10
