"""Goal: Spark SQL has Hudi's vector searches, answered by the index, and the join of nearest neighbours.

Method: one small session and one table of vectors with an index that was made by Spark's tasks and rows newer
than it; answers are held against ``Table.search`` with ``exact=True``. Calls are also read without a session.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import mainstem
from mainstem import spark as ms
from mainstem.errors import Invalid
from mainstem.spark.vector_sql import calls_in

pytestmark = pytest.mark.spark

ROWS, DIMENSION = 400, 4
QUICK = {"hoodie.time.generator.max_expected_clock_skew_ms": 0, "hoodie.mainstem.fsync": False}


def rows_of(first: int, end: int, seed: int) -> pa.Table:
    vectors = np.random.default_rng(seed).normal(size=(end - first, DIMENSION)).astype(np.float32)
    return pa.table(
        {
            "id": [f"k{number}" for number in range(first, end)],
            "price": pa.array([float(number) for number in range(first, end)]),
            "embedding": pa.FixedSizeListArray.from_arrays(vectors.ravel(), DIMENSION),
        }
    )


@pytest.fixture(scope="module")
def path(spark, tmp_path_factory) -> Path:
    """A table whose index holds all rows but the ten newest."""
    place = tmp_path_factory.mktemp("vectors") / "t"
    rows = rows_of(0, ROWS, 1)
    table = mainstem.create_table(
        place, schema=rows.schema, record_key="id", buckets=2, properties=QUICK,
        vectors={"embedding": f"VECTOR({DIMENSION})"},
    )  # fmt: skip
    table.upsert(rows)
    ms.sql(
        spark,
        f"CREATE INDEX v ON mainstem.`{place}` USING vector(embedding) OPTIONS (engine='flat', clusters=2)",
    )
    mainstem.open_table(place).upsert(rows_of(ROWS - 5, ROWS + 5, 2))
    return place


def exact(path: Path, query: list[float], k: int, **given) -> list[tuple[str, float]]:
    found = mainstem.open_table(path).search("embedding", query, k, exact=True, columns=["id"], **given)
    return list(zip(*(found.column(name).to_pylist() for name in ("id", "_hudi_distance")), strict=True))


def test_a_vector_index_is_made_by_tasks_and_listed(spark, path: Path) -> None:
    name = f"mainstem.`{path}`"
    shown = ms.sql(spark, f"SHOW INDEXES FROM {name}").collect()
    assert [(row.index_name, row.index_type, row.col_name, row.state) for row in shown] == [
        ("v", "vector", "embedding", "ready")
    ]
    ms.sql(spark, f"CREATE INDEX IF NOT EXISTS v ON {name} USING vector(embedding)")
    with pytest.raises(Invalid, match="called 'v' already"):
        ms.sql(spark, f"CREATE INDEX v ON {name} USING vector(embedding)")
    other = f"CREATE INDEX w ON {name} USING vector(price)"
    with pytest.raises(Invalid, match="price"):
        ms.sql(spark, other)


@pytest.mark.supports("Vectors", "search: in Spark SQL (`hudi_vector_search`), by the index")
def test_the_table_function_answers_with_the_index_and_what_is_newer(spark, path: Path) -> None:
    query = [0.5, -1.0, 0.25, 2.0]
    call = f"hudi_vector_search('{path}', 'embedding', ARRAY(0.5, -1, 0.25, 2.0), 5, 'l2')"
    found = ms.sql(spark, f"SELECT * FROM {call}")
    assert found.columns[-3:] == ["id", "price", "_hudi_distance"]
    assert [(row.id, row["_hudi_distance"]) for row in found.collect()] == exact(path, query, 5, metric="l2")
    brute = call.replace("'l2'", "'euclidean', 'brute_force'")
    joined = ms.sql(
        spark,
        f"WITH near AS (SELECT id FROM {call} AS a) SELECT b.id, b.price FROM near JOIN {brute} b USING (id)"
        f" WHERE b.id NOT LIKE '%hudi_vector_search(%'",
    )
    assert {row.id for row in joined.collect()} == {key for key, _ in exact(path, query, 5, metric="l2")}
    assert not spark.catalog.listTables()


def test_filters_and_distances_bound_the_answer_and_parameters_are_taken(spark, path: Path) -> None:
    query = [1.0, 0.0, 0.0, 0.0]
    spark.read.format("mainstem").load(str(path)).createOrReplaceTempView("rows")
    found = ms.sql(
        spark,
        "SELECT id, price FROM hudi_vector_search('rows', 'embedding', :query, 7, filter => 'price < 50')",
        args={"query": _array(query)},
    ).collect()
    assert len(found) == 7 and all(row.price < 50 for row in found)
    wanted = "id LIKE ''k1%'' AND NOT (Price IN (1, 11) OR price BETWEEN 100 AND 150) OR id IS NULL"
    call = f"hudi_vector_search('rows', 'embedding', ARRAY(1, 0, 0, 0), 500, filter => '{wanted}')"
    found = ms.sql(spark, f"SELECT id FROM {call} WHERE price <> 10").collect()
    plain = spark.table("rows").where(wanted.replace("''", "'")).where("price <> 10").select("id")
    assert sorted(found) == sorted(plain.collect()) and found
    spark.catalog.dropTempView("rows")
    every = exact(path, query, 20)
    near = ms.sql(
        spark,
        f"SELECT count(*) AS n FROM hudi_vector_search('{path}', 'embedding', ARRAY(1D, 0D, 0D, 0D), 20,"
        f" 'cosine', 'index', NULL, {every[9][1]!r}D)",
    ).collect()
    assert near[0].n == 10


def _array(values: list[float]):
    from pyspark.sql import functions as F

    return F.array(*[F.lit(value) for value in values])


@pytest.mark.supports("Vectors", "search: nearest-neighbour join of two tables on Spark")
def test_the_batch_function_and_the_join_find_the_neighbours_of_every_query(spark, path: Path) -> None:
    queries = rows_of(0, 9, 3).to_pylist()
    asked = [(row["id"], 7, row["embedding"]) for row in queries]
    frame = spark.createDataFrame(asked, "id string, n int, q array<float>")
    frame = frame.union(spark.createDataFrame([("none", 8, None)], frame.schema))
    frame.createOrReplaceTempView("questions")
    found = ms.sql(
        spark, f"SELECT * FROM hudi_vector_search_batch('{path}', 'embedding', 'questions', 'q', 3)"
    )
    assert found.columns[-6:] == ["id", "price", "_hudi_query_id", "n", "_hudi_query_index", "_hudi_distance"]
    answers = found.collect()
    assert answers == sorted(answers, key=lambda row: (row["_hudi_query_index"], row["_hudi_distance"]))
    for row in queries:
        mine = [(r.id, r["_hudi_distance"]) for r in answers if r["_hudi_query_id"] == row["id"]]
        assert mine == exact(path, row["embedding"], 3)
    assert len(answers) == 27
    joined = ms.vector_join(
        str(path), "embedding", frame, "q", 3, metric="l2", columns=["id"], filter="price < 100", exact=True
    )
    assert joined.columns == ["id", "_hudi_query_id", "n", "_hudi_query_index", "_hudi_distance"]
    assert joined.count() == 27
    spark.catalog.dropTempView("questions")


def test_what_is_wrong_with_a_call_is_told(spark, path: Path) -> None:
    def search(arguments: str) -> None:
        ms.sql(spark, f"SELECT * FROM hudi_vector_search({arguments})")

    for arguments, message in [
        (f"'{path}', 'embedding', ARRAY(1, 2), 3", "4 values"),
        (f"'{path}', 'embedding', ARRAY('a'), 3", "query_vector must be numbers"),
        (f"'{path}', 'embedding', ARRAY(1, 2, 3, 4), 0", "k must be a whole number"),
        (f"'{path}', 'embedding', ARRAY(1, 2, 3, 4), 3, 'hamming'", "unknown metric 'hamming'"),
        (f"'{path}', 'embedding', ARRAY(1, 2, 3, 4), 3, 'l2', 'annoy'", "unknown algorithm 'annoy'"),
        (f"'{path}', 'vector', ARRAY(1, 2, 3, 4), 3", "no column 'vector'"),
        ("'nowhere', 'embedding', ARRAY(1, 2, 3, 4), 3", "'nowhere' is no table"),
    ]:
        with pytest.raises(Invalid, match=message):
            search(arguments)
    with pytest.raises(Invalid, match="no column 'q' of arrays"):
        ms.vector_join(str(path), "embedding", spark.range(1), "q", 3)


def test_an_index_is_refreshed_by_tasks_and_dropped(spark, path: Path) -> None:
    name = f"mainstem.`{path}`"
    ms.sql(spark, f"REFRESH INDEX v ON {name}")
    said = mainstem.open_table(path).explain_search("embedding", [1, 2, 3, 4], 1)
    assert (said.version, said.rows, said.fresh) == (2, ROWS + 5, 0)
    ms.sql(spark, f"DROP INDEX v ON {name}")
    assert ms.sql(spark, f"SHOW INDEXES FROM {name}").collect() == []


def tasks_of_jobs(spark, known: set[int]) -> list[int]:
    """The number of tasks of each stage of the jobs that came since; they become known."""
    tracker = spark.sparkContext.statusTracker()
    new = sorted(set(tracker.getJobIdsForGroup(None)) - known)
    known.update(new)
    stages = (stage for job in new for stage in tracker.getJobInfo(job).stageIds)
    return [tracker.getStageInfo(stage).numTasks for stage in stages]


def test_each_of_eight_clusters_is_a_task_of_a_create_a_reindex_and_a_refresh(spark, tmp_path: Path) -> None:
    rows, place = rows_of(0, 2000, 5), tmp_path / "t"
    table = mainstem.create_table(
        place, schema=rows.schema, record_key="id", buckets=2, properties=QUICK,
        vectors={"embedding": f"VECTOR({DIMENSION})"},
    )  # fmt: skip
    table.upsert(rows)
    name, known, told = f"mainstem.`{place}`", set(), []
    tasks_of_jobs(spark, known)
    for statement in (
        f"CREATE INDEX v ON {name} USING vector(embedding) OPTIONS (engine='hnsw', metric='l2', clusters=8)",
        f"REINDEX INDEX v ON {name}",  # anew, though no file changed
        f"REINDEX ON {name}",
        f"REFRESH INDEX v ON {name}",  # where no file changed nothing is built
    ):
        ms.sql(spark, statement, progress=lambda what, done, total: told.append((done, total)))
    assert tasks_of_jobs(spark, known).count(8) == 3, "one job of eight tasks for each version"
    assert told.count((8, 8)) >= 3
    table.upsert(rows_of(1990, 2010, 6))
    ms.sql(spark, f"REFRESH INDEX v ON {name}")
    assert tasks_of_jobs(spark, known).count(8) == 1

    said = mainstem.open_table(place).explain_search("embedding", [0, 0, 0, 0], 3)
    assert (said.version, said.rows, said.fresh, said.clusters) == (4, 2010, 0, 8), str(said)
    (shown,) = ms.sql(spark, f"SHOW INDEXES FROM {name}").collect()
    assert (shown.index_name, shown.state) == ("v", "ready")
    asked = f"hudi_vector_search('{place}', 'embedding', ARRAY(0, 0, 0, 0), 3)"
    found = [(r.id, r["_hudi_distance"]) for r in ms.sql(spark, f"SELECT * FROM {asked}").collect()]
    assert found == exact(place, [0, 0, 0, 0], 3, metric="l2")
    with pytest.raises(Invalid, match=r"REINDEX.*'w'"):
        ms.sql(spark, f"REINDEX INDEX w ON {name}")


def test_calls_are_found_where_sql_has_them_and_nowhere_else() -> None:
    text = (
        "SELECT 'hudi_vector_search(1)' /* hudi_vector_search(2) */ FROM HUDI_VECTOR_SEARCH('t', 'c',"
        " ARRAY(1, (2)), 3) x, hudi_vector_search_batch('a', 'b', 'c', k => 5, query_col => 'd')"
    )
    first, second = calls_in(text)
    assert text[first.start : first.end].endswith(" 3)") and text[second.end :] == ""
    assert first.arguments == {
        "table": "'t'", "embedding_col": "'c'", "query_vector": "ARRAY(1, (2))", "k": "3"
    }  # fmt: skip
    assert second.arguments["k"] == "5" and second.arguments["query_col"] == "'d'"
    assert calls_in("SELECT hudi_vector_search FROM t") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM hudi_vector_search('t', 'c'", r"line 1, column 15.*expected \) at its end"),
        ("SELECT * FROM hudi_vector_search('t', 'c')", "query_vector, k missing"),
        ("SELECT * FROM hudi_vector_search('t', , 1, 2)", "an argument is empty"),
        ("SELECT * FROM hudi_vector_search(1, 2, 3, 4, 5, 6, 7, 8, 9)", "9 arguments"),
        ("SELECT * FROM hudi_vector_search(1, 2, 3, 4, probes => 5)", "no such argument"),
        ("CREATE VIEW v AS SELECT * FROM hudi_vector_search(1, 2, 3, 4)", "a view cannot hold a search"),
    ],
)
def test_calls_that_cannot_be_read_are_told_with_their_place(text: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        calls_in(text)
