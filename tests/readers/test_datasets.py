"""Goal: DuckDB, Polars, pandas and pyarrow take a table lazily, and read what they asked for only.

Method: a storage that records which base and log files are opened stands under the table; plans record
which columns and filters engines passed on. Answers are compared with the whole table's.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import mainstem
from mainstem.errors import Invalid, Unsupported
from mainstem.readers.queries import snapshot
from mainstem.readers.queries.scan_plan import ScanPlan
from tests.storage.steps import Opening, storage_at, store_kind

pytestmark = pytest.mark.versions
SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64()), ("name", pa.string())])
FAST = {"hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false"}
CITIES = ("Bern", "Oslo", "Rome", "São Paulo", "a b")
field = pc.field


def rows(count=50, name="old"):
    numbers = range(count)
    return pa.table(
        [
            pa.array(numbers, pa.int64()),
            pa.array([CITIES[n % 5] for n in numbers]),
            pa.array([n * 10 for n in numbers], pa.int64()),
            pa.array([f"{name}{n}" for n in numbers]),
        ],
        schema=SCHEMA,
    )


def create(folder, partition_by=("city",), **properties):
    options = {**FAST, **properties}
    mainstem.create_table(
        folder, SCHEMA, record_key=["id"], ordering=["ts"], partition_by=list(partition_by), buckets=1,
        properties=options,
    )  # fmt: skip
    table = mainstem.open_table(folder, properties=options)
    table.upsert(rows())
    table.upsert(rows(10, "new"))
    return table


class Watched(Opening):
    """Remembers the partitions whose files were opened."""

    def __init__(self, base):
        super().__init__(storage_at(base))

    @property
    def seen(self):
        return {path.rpartition("/")[0] for path in self.opened}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return create(tmp_path_factory.mktemp("tables") / "t")


@pytest.fixture
def asked(monkeypatch):
    """(columns, filter as text) of every query that an engine made of a dataset."""
    found = []
    refined = ScanPlan.refined

    def recorded(self, columns, filter):
        found.append((tuple(columns), None if filter is None else str(filter)))
        return refined(self, columns, filter)

    monkeypatch.setattr(ScanPlan, "refined", recorded)
    return found


# -------------------- engines


@pytest.mark.supports("Engines", "DuckDB, with columns and filters pushed down")
def test_duckdb_pushes_columns_and_filters_into_the_table(table, asked):
    duckdb = pytest.importorskip("duckdb")
    trips = table.dataset()  # noqa: F841 - DuckDB finds it by its name
    query = "select id, name from trips where city = 'Oslo' and ts < 120 order by id"
    found = duckdb.sql(query).fetchall()
    assert found == [(1, "new1"), (6, "new6"), (11, "old11")]
    columns, expression = asked[-1]
    assert set(columns) <= {"id", "name", "city", "ts"} and {"id", "name"} <= set(columns)
    assert "Oslo" in expression and "ts < 120" in expression
    assert duckdb.sql("select count(*) from trips").fetchall() == [(50,)]
    assert len(asked[-1][0]) == 1
    assert duckdb.sql("select name from trips where id = 3").fetchall() == [("new3",)]


@pytest.mark.supports("Engines", "DuckDB, with columns and filters pushed down")
def test_duckdb_takes_a_plan_as_a_stream(table):
    duckdb = pytest.importorskip("duckdb")
    plan = table.scan(columns=["city", "ts"], filter=field("city") == "Rome")
    for source in (plan, plan.to_reader()):
        found = duckdb.from_arrow(source).aggregate("count(*), max(ts)")
        assert found.fetchall() == [(10, 470)]


@pytest.mark.supports("Engines", "Polars, with columns and filters pushed down")
def test_polars_pushes_columns_and_filters_into_the_table(table, asked):
    pl = pytest.importorskip("polars")
    lazy = pl.scan_pyarrow_dataset(table.dataset())
    found = lazy.filter(pl.col("ts") < 30).select("id", "name").sort("id").collect()
    assert found.rows() == [(0, "new0"), (1, "new1"), (2, "new2")]
    columns, expression = asked[-1]
    assert set(columns) == {"id", "name", "ts"} and "ts < 30" in expression
    assert pl.DataFrame(table.scan(columns=["id"])).height == 50


@pytest.mark.supports("Engines", "pandas")
def test_pandas_gets_a_frame_in_one_line(table):
    pytest.importorskip("pandas")
    frame = table.to_pandas(columns=["id", "name"], filter=field("id") < 2)
    assert sorted(frame["name"]) == ["new0", "new1"] and list(frame.columns) == ["id", "name"]
    assert len(table.scan().to_pandas()) == 50


def test_the_page_on_reading_runs_as_it_stands(tmp_path):
    pytest.importorskip("duckdb"), pytest.importorskip("polars"), pytest.importorskip("pandas")
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64())])
    table = mainstem.create_table(tmp_path / "t", schema, record_key=["id"], properties=FAST)
    table.upsert(pa.table({"id": [1, 2, 3], "city": ["Oslo", "Rome", "Oslo"], "fare": [9.5, 30.0, 20.0]}))
    page = (Path(__file__).parents[2] / "docs" / "reading.md").read_text("utf-8")
    known = {"table": table}
    exec(page.split("```python\n")[1].split("```")[0], known)
    assert sorted(known["best"].fetchall()) == [("Oslo", 20.0), ("Rome", 30.0)]
    assert sorted(known["lazy"]["id"]) == [1, 3] and known["frame"]["id"].tolist() == [1]


# -------------------- the dataset itself


@pytest.mark.supports("Engines", "pyarrow datasets and scanners")
def test_a_dataset_answers_as_pyarrows_own(table):
    lazy, whole = table.dataset(), ds.dataset(table.scan().to_arrow())
    for columns in (None, ["name", "id"], [], {"twice": field("ts") * 2, "id": field("id")}):
        for expression in (None, field("id") < 7, field("city").isin(["Bern", "a b"])):
            ours = lazy.to_table(columns=columns, filter=expression)
            theirs = whole.to_table(columns=columns, filter=expression)
            assert ours.schema == theirs.schema and ours.num_rows == theirs.num_rows
            if theirs.schema.names:
                assert ours.sort_by(by(ours)) == theirs.sort_by(by(theirs))
    assert lazy.count_rows() == 50 and lazy.count_rows(filter=field("id") < 7) == 7
    assert lazy.head(3, columns=["id"]).num_rows == 3
    assert lazy.take([0, 4], columns=["id"]).num_rows == 2
    assert lazy.filter(field("id") < 7).filter(field("id") > 3).count_rows() == 3
    assert lazy.sort_by("id").to_table()["id"].to_pylist() == list(range(50))
    other = ds.dataset(pa.table({"id": [1, 2], "more": ["x", "y"]}))
    assert lazy.join(other, "id", join_type="inner").to_table().num_rows == 2
    assert sum(f.count_rows() for f in lazy.get_fragments()) == 50


def by(table):
    return [(name, "ascending") for name in table.schema.names]


def test_functions_that_scan_the_object_underneath_get_the_rows_too(table):
    made = table.dataset()
    assert ds.Scanner.from_dataset(made).to_table().num_rows == 50
    few = ds.Scanner.from_dataset(made, columns=["id"], filter=field("id") < 7)
    assert few.to_table().num_rows == 7
    with pytest.raises(Unsupported, match="read only"):
        table.dataset().filesystem.delete_file("table.arrow")


def test_nothing_is_read_before_a_dataset_is_asked(table, monkeypatch):
    def read(*given):
        raise AssertionError(given)

    monkeypatch.setattr(store_kind(), "open_input", read)
    assert table.dataset().filter(field("id") < 7).schema.names[-4:] == SCHEMA.names


def test_a_dataset_shows_what_was_committed_meanwhile_and_as_of_does_not(tmp_path):
    table = create(tmp_path / "t")
    first = table.timeline()[-1].requested
    now, then = table.dataset(), table.dataset(as_of=first)
    table.upsert(rows(60))
    assert now.count_rows() == 60 and then.count_rows() == 50


def test_what_a_dataset_cannot_do_is_refused(table):
    with pytest.raises(Unsupported):
        table.dataset().replace_schema(SCHEMA)
    with pytest.raises(Unsupported):
        pickle.dumps(table.dataset())
    with pytest.raises(Invalid, match="no column"):
        table.dataset().to_table(columns=["nothing"])


# -------------------- what is left unread


STYLES = {
    "plain": {},
    "hive": {"hoodie.datasource.write.hive_style_partitioning": "true"},
    "encoded": {"hoodie.datasource.write.partitionpath.urlencode": "true"},
    "hive, encoded": {
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
    },
}


@pytest.mark.supports("Queries", "filters pushed down to partitions")
@pytest.mark.parametrize("style", STYLES)
def test_a_filter_on_the_partition_column_opens_that_partition_only(tmp_path, style):
    table = create(tmp_path / "t", **STYLES[style])
    whole = table.scan().to_arrow()
    for expression, count in (
        (field("city") == "São Paulo", 1),
        (field("city").isin(["a b", "Rome"]), 2),
        ((field("city") > "Oslo") & (field("id") >= 0), 3),
        (field("city").is_null(), 0),
        ((field("city") == "Bern") | (field("id") == 1), 5),
        (pc.starts_with(field("city"), "R"), 1),
    ):
        storage = Watched(tmp_path / "t")
        found = snapshot.scan(storage, filter=expression).to_arrow()
        assert len(storage.seen) == count, (expression, storage.seen)
        assert found.sort_by("id") == whole.filter(expression).sort_by("id")


def test_numbers_in_paths_are_compared_as_numbers_and_nulls_are_found(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("year", pa.int32()), ("ts", pa.int64())])
    mainstem.create_table(
        tmp_path / "t", schema, record_key=["id"], ordering=["ts"], partition_by=["year"], buckets=1,
        properties=FAST,
    )  # fmt: skip
    table = mainstem.open_table(tmp_path / "t", properties=FAST)
    years = [1999, 2005, 2005, -3, None]
    table.upsert(pa.table({"id": range(5), "year": years, "ts": [1] * 5}, schema=schema))
    for expression, count, ids in (
        (field("year") > 2000, 1, [1, 2]),
        (field("year") < 0, 1, [3]),
        (field("year").is_null(), 1, [4]),
        (~(field("year") == 1999), 2, [1, 2, 3]),
    ):
        storage = Watched(tmp_path / "t")
        found = snapshot.scan(storage, columns=["id"], filter=expression).to_arrow()
        assert sorted(found["id"].to_pylist()) == ids and len(storage.seen) == count


@pytest.mark.parametrize("style", ["hive", "encoded"])
def test_paths_of_another_style_than_the_table_says_leave_nothing_unread(tmp_path, style):
    create(tmp_path / "t", **STYLES[style])
    properties = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    lines = properties.read_text("utf-8").splitlines()
    hidden = (*STYLES[style], "hoodie.table.checksum")
    properties.write_text("\n".join(li for li in lines if not li.startswith(hidden)), "utf-8")
    for city in CITIES:
        found = snapshot.scan(storage_at(tmp_path / "t"), filter=field("city") == city).to_arrow()
        assert found.num_rows == 10, city
