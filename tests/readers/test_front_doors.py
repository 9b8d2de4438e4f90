"""Goal: whichever way a table is asked, from Arrow, pandas, DuckDB, Polars or Spark, files that indexes rule
out are not opened, and the rows are the right ones.

Method: it is remembered of which partitions data files are opened. Of a range that column
statistics bound, a key and a value of a secondary index one file group of each is left.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from tests.storage.steps import OPENING, storage_at

pytestmark = pytest.mark.versions
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("name", pa.string())])
QUICK = {"hoodie.mainstem.exclusive": "true", "hoodie.mainstem.fsync": "false"}
CITIES = ("bern", "oslo", "rome", "turin")
#: what is asked, as a filter, in SQL, and the ids of the rows
RANGE = (pc.field("ts") >= 3020, "ts >= 3020", ["k32", "k33", "k34", "k35", "k36", "k37", "k38", "k39"])
KEY = (pc.field("id") == "k15", "id = 'k15'", ["k15"])
VALUE = (pc.field("name") == "name27", "name = 'name27'", ["k27"])
ASKED = {"range": RANGE, "key": KEY, "value": VALUE}
QUESTIONS = pytest.mark.parametrize(("wanted", "sql", "ids"), ASKED.values(), ids=ASKED)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file group per city, of which only that of turin has a log file."""
    folder = tmp_path_factory.mktemp("doors") / "t"
    table = mainstem.create_table(
        folder, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=1, properties=QUICK
    )
    table.upsert(rows(range(40)))
    table.compact()
    mainstem.open_table(folder, QUICK).create_index("column_stats", ["ts"])
    mainstem.open_table(folder, QUICK).create_index("secondary_index", ["name"], name="by_name")
    mainstem.open_table(folder, QUICK).upsert(rows(range(38, 40), 1))
    return folder


def rows(numbers: range, later: int = 0) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{n:02d}" for n in numbers],
            "city": [CITIES[n // 10] for n in numbers],
            "ts": [1000 * (n // 10) + 10 * (n % 10) + later for n in numbers],
            "name": [f"name{n}" for n in numbers],
        },
        schema=SCHEMA,
    )


@pytest.fixture
def asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str], list[str]], None]:
    """Checks ids that came out, and that the file group of their city alone was opened."""
    opened, storage = set[str](), storage_at(path)
    kind = type(getattr(storage, "inner", storage))
    for name in OPENING:
        real = getattr(kind, name, None)
        if real is None:
            continue

        def watched(self: Storage, file: str, *more: object, real: Callable = real) -> object:
            opened.add(file.partition("/")[0])
            return real(self, file, *more)

        monkeypatch.setattr(kind, name, watched)

    def check(found: list[str], ids: list[str]) -> None:
        assert sorted(found) == ids
        assert opened - {paths.HOODIE} == {CITIES[int(ids[0][1])]}
        opened.clear()

    return check


@pytest.mark.supports("Engines", "pandas")
@QUESTIONS
def test_arrow_and_pandas_open_what_is_left(path, asked, wanted, sql, ids) -> None:
    table = mainstem.open_table(path)
    asked(table.scan(columns=["id"], filter=wanted).to_arrow()["id"].to_pylist(), ids)
    pytest.importorskip("pandas")
    asked(list(table.to_pandas(columns=["id"], filter=wanted)["id"]), ids)


@QUESTIONS
def test_duckdb_and_polars_open_what_is_left_of_a_plan(path, asked, wanted, sql, ids) -> None:
    duckdb, pl = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    plan = mainstem.open_table(path).scan(columns=["id"], filter=wanted)
    asked([key for (key,) in duckdb.from_arrow(plan).fetchall()], ids)
    asked(pl.DataFrame(plan)["id"].to_list(), ids)


@pytest.mark.supports("Engines", "DuckDB, with columns and filters pushed down")
@QUESTIONS
def test_duckdb_opens_what_its_own_condition_leaves(path, asked, wanted, sql, ids) -> None:
    duckdb = pytest.importorskip("duckdb")
    trips = mainstem.open_table(path).dataset()  # noqa: F841 - DuckDB finds it by its name
    asked([key for (key,) in duckdb.sql(f"select id from trips where {sql}").fetchall()], ids)


@pytest.mark.supports("Engines", "Polars, with columns and filters pushed down")
@QUESTIONS
def test_polars_opens_what_its_own_condition_leaves(path, asked, wanted, sql, ids) -> None:
    pl = pytest.importorskip("polars")
    trips = pl.scan_pyarrow_dataset(mainstem.open_table(path).dataset())
    asked(trips.filter(pl.sql_expr(sql)).select("id").collect()["id"].to_list(), ids)


@pytest.mark.spark
@QUESTIONS
def test_spark_makes_tasks_for_what_is_left(path, asked, wanted, sql, ids) -> None:
    """As its planner and its tasks do, without a JVM."""
    pytest.importorskip("pyspark")
    from mainstem.spark import source_readers
    from mainstem.spark.options import ReadOptions
    from mainstem.spark.types import spark_schema

    parsed = ReadOptions.parse({"path": str(path), "filter": sql})
    reader = source_readers.Reader(parsed, spark_schema(mainstem.open_table(path).scan().schema))
    tasks = reader.partitions()
    batches = [batch for task in tasks for batch in reader.read(task)]
    asked([key for batch in batches for key in batch.column("id").to_pylist()], ids)
    assert len(tasks) == 1
