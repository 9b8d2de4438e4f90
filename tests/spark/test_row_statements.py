"""Goal: DELETE, UPDATE and MERGE do what Spark says they do, in one commit, lose nothing that others write
meanwhile, and refuse by name what would be left to chance.

Method: statements run on small tables in one session; where another writer matters, it commits between the
statement's look and its write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import mainstem
from mainstem import spark as ms
from mainstem.errors import Invalid, Unsupported
from mainstem.spark import row_statements
from mainstem.spark.row_syntax import equal_sides, parts_of, verb_of, without_marks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.supports("Engines", "Spark SQL: DELETE, UPDATE, MERGE with every clause"),
]

SCHEMA = pa.schema([
    ("id", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("ts", pa.int64()),
    ("city", pa.string()),
])  # fmt: skip
COLUMNS = ["id", "name", "price", "ts", "city"]
EXECUTORS = {"hoodie.mainstem.spark.driver.rows.max": "0"}


def _table(
    path: Path, *, partition: str = "city", ordering: str = "ts", **properties: Any
) -> mainstem.Table:
    """Rows 0 to 5: even ones in oslo, odd ones in rome."""
    kept = {key.replace("__", "."): value for key, value in properties.items()}
    buckets = None if "hoodie.index.type" in kept else 2
    table = mainstem.create_table(
        str(path), SCHEMA, record_key="id", partition_by=[partition] if partition else [],
        ordering=[ordering] if ordering else [], buckets=buckets,
        properties=kept,
    )  # fmt: skip
    table.upsert(
        [
            {"id": i, "name": f"n{i}", "price": float(i), "ts": 10, "city": ("oslo", "rome")[i % 2]}
            for i in range(6)
        ]
    )
    return table


def _rows(path: Path, *names: str) -> list[tuple[Any, ...]]:
    found = mainstem.open_table(str(path)).scan(columns=list(names or COLUMNS)).to_arrow()
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _in(path: Path) -> str:
    return f"mainstem.`{path}`"


def _commits(path: Path) -> int:
    return sum(i.action == "deltacommit" for i in mainstem.open_table(str(path)).timeline())


# -- what statements do ------------------------------------------------------------------------------------


def test_update_and_delete_change_the_rows_that_where_names(spark: SparkSession, tmp_path: Path):
    _table(tmp_path)
    answer = ms.sql(
        spark,
        f"update {_in(tmp_path)} as t set Price = t.price * 2 + 1, name = upper(t.name) -- all of it\n"
        " where city = 'rome' and id in (select explode(array(1, 5)))",
    )
    assert [row.num_affected_rows for row in answer.collect()] == [2]
    assert _rows(tmp_path, "id", "name", "price") == [
        (0, "n0", 0.0), (1, "N1", 3.0), (2, "n2", 2.0), (3, "n3", 3.0), (4, "n4", 4.0), (5, "N5", 11.0),
    ]  # fmt: skip
    spark.read.format("mainstem").load(str(tmp_path)).createOrReplaceTempView("trips")
    ms.sql(spark, "DELETE FROM trips WHERE trips.id >= ? AND name <> ?", args=[3, "N5"])
    assert [row[0] for row in _rows(tmp_path, "id")] == [0, 1, 2, 5]
    assert _commits(tmp_path) == 3
    nothing = ms.sql(spark, "DELETE FROM trips WHERE id > :most", args={"most": 100}).collect()
    assert [(row.num_affected_rows, row.instant) for row in nothing] == [(0, None)]
    ms.sql(spark, "DELETE FROM trips")
    assert not _rows(tmp_path) and _commits(tmp_path) == 4


MERGE = """
    WITH fresh AS (SELECT * FROM {source})
    MERGE INTO {table} AS t USING fresh AS s ON t.id = s.id
    WHEN MATCHED AND s.name = 'WHEN NOT MATCHED' THEN DELETE
    WHEN MATCHED AND s.price IS NULL THEN UPDATE SET t.ts = s.ts, name = CASE WHEN t.id = 1 THEN 'one' END
    WHEN MATCHED THEN UPDATE SET *
    WHEN NOT MATCHED AND s.id < 100 THEN INSERT *
    WHEN NOT MATCHED BY TARGET THEN INSERT (id, ts, city) VALUES (s.id, 0, 'oslo')
    WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN DELETE
    WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = concat(t.name, ' stays')
"""
SOURCE = [
    (0, "WHEN NOT MATCHED", 9.0, 20, "oslo"), (1, "x", None, 20, "rome"), (2, "all", 22.0, 20, "oslo"),
    (7, "new", 7.0, 20, "rome"), (100, "far", 1.0, 20, "rome"),
]  # fmt: skip
MERGED = [
    (1, "one", 1.0, 20, "rome"), (2, "all", 22.0, 20, "oslo"), (3, "n3 stays", 3.0, 10, "rome"),
    (5, "n5 stays", 5.0, 10, "rome"), (7, "new", 7.0, 20, "rome"), (100, None, None, 0, "oslo"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "given"),
    [
        ({"hoodie.metadata.enable": "true"}, {}),
        ({}, EXECUTORS),
        ({"hoodie.index.type": "SIMPLE"}, {"hoodie.index.type": "SIMPLE"}),
    ],
    ids=["in the driver, with a metadata table", "in tasks", "without buckets"],
)
def test_each_row_of_a_merge_goes_by_the_first_clause_that_fits_in_one_commit(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str], given: dict[str, str]
):
    table = _table(tmp_path, **properties)
    if "hoodie.metadata.enable" in properties:
        table.create_index("record_index")
        table.create_index("column_stats", ["price"])
    source = spark.createDataFrame(SOURCE, "id long, name string, price double, ts long, city string")
    before = _commits(tmp_path)
    ms.sql(spark, MERGE.replace("{table}", _in(tmp_path)), properties=given, source=source)
    assert _rows(tmp_path) == MERGED and _commits(tmp_path) == before + 1
    if "hoodie.metadata.enable" in properties:
        report = mainstem.open_table(str(tmp_path)).validate_metadata()
        assert report is not None and not report.differences


def test_only_the_columns_and_rows_that_a_statement_needs_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _table(tmp_path)
    asked = []
    told = row_statements.needs
    monkeypatch.setattr(row_statements, "needs", lambda *of: asked.append(told(*of)) or asked[-1])
    ms.sql(spark, f"DELETE FROM {_in(tmp_path)} WHERE price >= 2 AND (id = 3 OR id = 4) AND name LIKE 'n%'")
    ms.sql(
        spark,
        f"MERGE INTO {_in(tmp_path)} t USING (SELECT 2 AS id) s ON t.id = s.id AND t.city IN ('oslo', 'bonn')"
        " WHEN MATCHED THEN DELETE",
    )
    assert [one.columns for one in asked] == [("id", "name", "price", "ts", "city"), ("id", "ts", "city")]
    assert "(`id` = 3 or `id` = 4)" in asked[0].filter and "`city` in ('oslo', 'bonn')" in asked[1].filter
    assert [row[0] for row in _rows(tmp_path, "id")] == [0, 1, 5]


@pytest.mark.parametrize(
    "source, on, by_keys, joined",
    [
        ("(SELECT * FROM VALUES (2, 'x'), (9, 'y'), (NULL, 'z') AS v(id, name) WHERE name <> 'z') s",
         "(s.ID = t.id) AND t.ts > 0", True, False),
        ("(SELECT * FROM VALUES (2, 'x'), (9, 'y') AS v(id, name)) s", "t.id = s.id + 0", False, True),
        ("(SELECT * FROM VALUES ('2', 'x'), ('9', 'y') AS v(id, name)) s", "t.id = s.id", False, True),
        ("(SELECT 2 + CAST(rand() * 0 AS INT) AS id, 'x' AS name UNION ALL SELECT 9, 'y') s", "t.id = s.id",
         False, False),
        ("(SELECT * FROM VALUES (2, 'x'), (9, 'y') AS v(id, name) WHERE now() > TIMESTAMP '2026-01-01') s",
         "t.id = s.id", False, False),
        ("(SELECT * FROM VALUES (2, 'x'), (9, 'y') AS v(id, name) LIMIT 2) s", "t.id = s.id", False, False),
    ],
)  # fmt: skip
def test_rows_that_nothing_matches_are_left_out_early_if_two_looks_at_a_small_source_agree(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, on: str,
    by_keys: bool, joined: bool,
):  # fmt: skip
    _table(tmp_path)
    read: list[int] = []
    rows = row_statements.read_in_tasks

    def read_in_tasks(*of: Any) -> Any:
        found = rows(*of)
        read.append(found.count())
        return found

    monkeypatch.setattr(row_statements, "read_in_tasks", read_in_tasks)
    plans: list[str] = []
    told = row_statements.needs

    def needs(query: Any, table: Any) -> Any:
        plans.append(query._jdf.queryExecution().optimizedPlan().toString())
        return told(query, table)

    monkeypatch.setattr(row_statements, "needs", needs)
    ms.sql(
        spark,
        f"""MERGE INTO {_in(tmp_path)} t USING {source} ON {on}
        WHEN MATCHED THEN UPDATE SET name = s.name
        WHEN NOT MATCHED THEN INSERT (id, name, ts, city) VALUES (CAST(s.id AS BIGINT), s.name, 1, 'rome')""",
    )
    assert ["LeftSemi" in plan for plan in plans] == [joined] and read == [1 if by_keys else 6]
    assert _rows(tmp_path, "id", "name") == [
        (0, "n0"), (1, "n1"), (2, "x"), (3, "n3"), (4, "n4"), (5, "n5"), (9, "y"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "source, fixed",
    [
        ("few_files", True),
        ("parquet.`{files}`", False),  # each look lists the folder
        ("mainstem.`{ours}`", True),
        ("few_of_ours", False),  # each look takes the newest rows
        ("(SELECT * FROM few_files WHERE id > (SELECT min(id) - 1 FROM few_of_ours))", False),
    ],
)
def test_a_source_that_may_change_between_two_looks_is_looked_at_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, fixed: bool
):
    _table(tmp_path / "t")
    files = f"{tmp_path}/files"
    spark.createDataFrame([(2, "x"), (9, "y")], "id bigint, name string").write.parquet(files)
    spark.read.parquet(files).createOrReplaceTempView("few_files")
    fields = pa.schema([("id", pa.int64()), ("name", pa.string())])
    ours = mainstem.create_table(str(tmp_path / "ours"), fields, record_key="id", buckets=1)
    ours.upsert(pa.table({"id": [2, 9], "name": ["x", "y"]}, schema=fields))
    spark.read.format("mainstem").load(ours.path).createOrReplaceTempView("few_of_ours")
    among: list[Any] = []
    read = row_statements.read_in_tasks
    monkeypatch.setattr(
        row_statements, "read_in_tasks", lambda *of: among.append(of[-1]) or read(*of)
    )
    spark.conf.set("spark.sql.defaultSizeInBytes", "1000")  # what Spark does not know the size of is small
    try:
        ms.sql(
            spark,
            f"""MERGE INTO {_in(tmp_path / "t")} t USING {source.format(files=files, ours=ours.path)} s
            ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name
            WHEN NOT MATCHED THEN INSERT (id, name, ts, city) VALUES (s.id, s.name, 1, 'rome')""",
        )
    finally:
        spark.conf.unset("spark.sql.defaultSizeInBytes")
    assert [one is not None for one in among] == [fixed]
    assert _rows(tmp_path / "t", "id", "name") == [
        (0, "n0"), (1, "n1"), (2, "x"), (3, "n3"), (4, "n4"), (5, "n5"), (9, "y"),
    ]  # fmt: skip


def test_a_merge_that_does_the_same_to_old_and_new_rows_reads_nothing_of_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _table(tmp_path)
    reads: list[Any] = []
    read = row_statements.read_in_tasks
    monkeypatch.setattr(row_statements, "read_in_tasks", lambda *of: reads.append(of) or read(*of))
    on = "t.id = s.id AND (s.city = t.city)"
    listed = "name = s.name, price = s.price, ts = s.ts"
    values = "(id, name, price, ts, city) VALUES (s.id, S.name, s.price, s.ts, s.city)"
    cases = (
        (on, "UPDATE SET *", "INSERT *", False),
        (on, f"UPDATE SET {listed}", f"INSERT {values}", False),
        (on, f"UPDATE SET {listed}", f"INSERT {values.replace('s.price', 's.price + 0')}", True),
        (on, "UPDATE SET name = s.name, ts = s.ts", "INSERT *", True),
        (f"{on} AND t.price > -1", "UPDATE SET *", "INSERT *", True),
        ("t.id = s.id", "UPDATE SET *", "INSERT *", True),
    )
    for number, (condition, update, insert, reading) in enumerate(cases):
        name, ts = f"m{number}", 20 + number
        rows = f"""(1L, '{name}', 7D, {ts}L, 'rome'), ({100 + number}L, '{name}', 7D, 1L, 'oslo'),
            (2L, 'late', 7D, 1L, 'oslo')"""
        source = f"(SELECT * FROM VALUES {rows} AS v(id, name, price, ts, city))"
        reads.clear()
        ms.sql(spark, f"MERGE INTO {_in(tmp_path)} t USING {source} s ON {condition}"
                      f" WHEN MATCHED THEN {update} WHEN NOT MATCHED THEN {insert}")  # fmt: skip
        assert bool(reads) == reading, condition + update + insert
        found = {row[0]: row[1:] for row in _rows(tmp_path, "id", "name", "ts")}
        assert (found[1], found[2], found[100 + number]) == ((name, ts), ("n2", 10), (name, 1))


def test_a_text_of_the_source_is_stored_as_the_number_that_it_is(spark: SparkSession, tmp_path: Path):
    _table(tmp_path)
    text = f"""MERGE INTO {_in(tmp_path)} t USING (SELECT id, '1000' AS ts FROM (SELECT 1L AS id) UNION ALL
        SELECT 2L, {{}}) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET ts = s.ts"""
    ms.sql(spark, text.format("'1001'"))
    assert {(1, 1000), (2, 1001), (3, 10)} <= set(_rows(tmp_path, "id", "ts"))
    for other in ("'much'", "concat('1', '0')"):
        with pytest.raises(Invalid, match="type string is assigned to 'ts', which is bigint: cast it"):
            ms.sql(spark, text.format(other))


# -- what others write meanwhile ---------------------------------------------------------------------------


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What is called between a statement's look at the table and its write."""
    steps: list[Any] = []
    write = row_statements.write_statement

    def written(*of: Any) -> Any:
        while steps:
            steps.pop(0)()
        return write(*of)

    monkeypatch.setattr(row_statements, "write_statement", written)
    yield steps


def test_a_newer_row_of_another_writer_outlives_delete_update_and_merge(
    spark: SparkSession, tmp_path: Path, meanwhile: list[Any]
):
    table = _table(tmp_path)

    def newer(key: int, ts: int = 11) -> None:
        city = ("oslo", "rome")[key % 2]
        table.upsert([{"id": key, "name": "newer", "price": 0.0, "ts": ts, "city": city}])

    meanwhile.append(lambda: newer(0))
    ms.sql(spark, f"DELETE FROM {_in(tmp_path)} WHERE id < 2")
    meanwhile.append(lambda: newer(2))
    ms.sql(spark, f"UPDATE {_in(tmp_path)} SET name = 'mine' WHERE id IN (2, 3)")
    meanwhile.append(lambda: newer(4))
    ms.sql(spark, f"MERGE INTO {_in(tmp_path)} t USING (SELECT explode(array(4, 5)) AS k) s ON t.id = s.k"
                  " WHEN MATCHED THEN DELETE")  # fmt: skip
    assert _rows(tmp_path, "id", "name") == [(0, "newer"), (2, "newer"), (3, "mine"), (4, "newer")]


def test_a_key_that_another_writer_inserts_behind_the_statements_view_is_one_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    table = _table(tmp_path)
    newest = row_statements.newest_moment

    def looked(one: mainstem.Table) -> str | None:
        moment = newest(one)
        table.upsert([{"id": 8, "name": "theirs", "price": 0.0, "ts": 11, "city": "oslo"}])
        return moment

    monkeypatch.setattr(row_statements, "newest_moment", looked)
    ms.sql(spark, f"MERGE INTO {_in(tmp_path)} t USING (SELECT 8L AS k) s ON t.id = s.k AND t.price > 0"
                  " WHEN NOT MATCHED THEN INSERT (id, name, price, ts, city)"
                  " VALUES (s.k, 'mine', 1, 12, 'oslo')")  # fmt: skip
    assert [row for row in _rows(tmp_path, "id", "name") if row[0] == 8] == [(8, "mine")]


def test_without_an_ordering_field_an_update_takes_back_what_was_written_since_it_looked(
    spark: SparkSession, tmp_path: Path, meanwhile: list[Any]
):
    """The lost update that docs/sql.md tells of: both add to what they saw, and the later one counts."""
    table = _table(tmp_path, ordering="")
    meanwhile.append(
        lambda: table.upsert([{"id": 1, "name": "n1", "price": 101.0, "ts": 10, "city": "rome"}])
    )
    ms.sql(spark, f"UPDATE {_in(tmp_path)} SET price = price + 10 WHERE id = 1")
    assert (1, 11.0) in _rows(tmp_path, "id", "price")


def test_two_updates_that_look_at_each_others_rows_both_happen(
    spark: SparkSession, tmp_path: Path, meanwhile: list[Any]
):
    """The write skew that docs/sql.md tells of: one after the other, only one of them would change a row."""
    _table(tmp_path, partition="")
    spark.read.format("mainstem").load(str(tmp_path)).createOrReplaceTempView("pair")
    text = "UPDATE pair SET name = 'off' WHERE id = {} AND (SELECT count(*) FROM pair WHERE name = 'off') = 0"
    meanwhile.append(lambda: ms.sql(spark, text.format(0)))
    seen = spark.sql("SELECT count(*) FROM pair WHERE name = 'off'").collect()
    ms.sql(spark, text.format(1).replace("(SELECT count(*) FROM pair WHERE name = 'off')", str(seen[0][0])))
    assert [row for row in _rows(tmp_path, "id", "name") if row[1] == "off"] == [(0, "off"), (1, "off")]


def test_where_rows_merge_by_columns_an_update_leaves_other_columns_to_others(
    spark: SparkSession, tmp_path: Path, meanwhile: list[Any]
):
    table = _table(tmp_path, **{"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"})
    one = pa.table({"id": [1], "ts": [10], "city": ["rome"], "name": ["theirs"]})
    meanwhile.append(lambda: table.update_columns(one))
    ms.sql(spark, f"UPDATE {_in(tmp_path)} SET price = 9 WHERE id = 1")
    assert (1, "theirs", 9.0) in _rows(tmp_path, "id", "name", "price")
    with pytest.raises(Invalid, match=r"would set a column of the row with id=1, city='rome' to null"):
        ms.sql(spark, f"UPDATE {_in(tmp_path)} SET price = NULL WHERE id = 1")
    meanwhile.append(lambda: table.update_columns(one.set_column(3, "name", pa.array(["lost"]))))
    whole = {"hoodie.spark.sql.merge.into.partial.updates": "false"}
    ms.sql(spark, f"UPDATE {_in(tmp_path)} SET price = 8 WHERE id = 1", properties=whole)
    assert (1, "theirs", 8.0) in _rows(tmp_path, "id", "name", "price")


def test_with_markers_update_and_merge_leave_texts_to_others_and_write_the_other_columns(
    spark: SparkSession, tmp_path: Path, meanwhile: list[Any]
):
    marker = {"hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value": "__same"}
    table = _table(tmp_path, **{"hoodie.table.partial.update.mode": "FILL_UNAVAILABLE", **marker})
    theirs = {"id": [1], "ts": [10], "city": ["rome"], "name": ["theirs"], "price": [1.0]}
    meanwhile.append(lambda: table.update_columns(pa.table(theirs)))
    ms.sql(spark, f"UPDATE {_in(tmp_path)} SET price = 9 WHERE id = 1")
    assert (1, "theirs", 9.0) in _rows(tmp_path, "id", "name", "price")
    merge = f"""MERGE INTO {_in(tmp_path)} t USING (SELECT explode(array(1, 7)) AS id, 'rome' AS city) s
        ON t.id = s.id AND t.city = s.city WHEN MATCHED THEN UPDATE SET price = price + 1
        WHEN NOT MATCHED THEN INSERT (id, city, ts, name) VALUES (s.id, s.city, 1, 'new')"""
    meanwhile.append(lambda: table.update_columns(pa.table({**theirs, "name": ["again"], "price": [5.0]})))
    ms.sql(spark, merge)
    assert {(1, "again", 10.0), (7, "new", None)} <= set(_rows(tmp_path, "id", "name", "price"))
    ms.sql(spark, f"UPDATE {_in(tmp_path)} SET name = NULL WHERE id = 1")
    assert (1, None, 10.0) in _rows(tmp_path, "id", "name", "price")


def test_a_statement_of_a_micro_batch_that_is_replayed_changes_rows_once(spark: SparkSession, tmp_path: Path):
    _table(tmp_path)
    given = {
        "hoodie.datasource.write.streaming.checkpoint.identifier": "prices",
        "hoodie.mainstem.stream.batch.id": "7", "hoodie.mainstem.stream.ordinal": "0",
    }  # fmt: skip
    text = f"UPDATE {_in(tmp_path)} SET price = price + 1 WHERE id = 1"
    first, again = (ms.sql(spark, text, properties=given).collect()[0] for _ in range(2))
    assert (first.num_affected_rows, again.num_affected_rows) == (1, 0) and first.instant == again.instant
    assert (1, 2.0) in _rows(tmp_path, "id", "price")


# -- what is refused ---------------------------------------------------------------------------------------

_ON = "ON t.id = s.id"
TWICE = "(SELECT 1L AS id, explode(array(1D, 2D)) AS price, 20L AS ts)"


@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_a_source_that_holds_a_key_twice_is_refused_and_nothing_is_written(
    spark: SparkSession, tmp_path: Path, way: str
):
    _table(tmp_path)
    before = _rows(tmp_path)
    given = EXECUTORS if way == "tasks" else {}
    with pytest.raises(Invalid, match=r"several rows of the source match one row, with id=1, city='rome'"):
        ms.sql(spark, f"MERGE INTO {_in(tmp_path)} t USING {TWICE} s {_ON}"
                      " WHEN MATCHED THEN UPDATE SET price = s.price", properties=given)  # fmt: skip
    with pytest.raises(Invalid, match=r"several rows of the source insert one row, with id=8, city='bonn'"):
        ms.sql(spark, f"MERGE INTO {_in(tmp_path)} t USING {TWICE.replace('1L', '8L')} s {_ON}"
                      " WHEN NOT MATCHED THEN INSERT (id, ts, city) VALUES (s.id, s.ts, 'bonn')",
               properties=given)  # fmt: skip
    assert _rows(tmp_path) == before and _commits(tmp_path) == 1
    # Deletes may meet, and rows for which no clause fits.
    ms.sql(spark, f"MERGE INTO {_in(tmp_path)} t USING {TWICE} s {_ON} WHEN MATCHED THEN DELETE",
           properties=given)  # fmt: skip
    assert [row[0] for row in _rows(tmp_path, "id")] == [0, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("UPDATE {t} SET name = 'x',\n id = 7", r"line 2, column 2, .*'id' is a record key or partition"),
        ("UPDATE {t} SET city = 'x'", "INSERT the row with its new value, and DELETE the old one"),
        ("UPDATE {t} SET price = 'much'", "type string is assigned to 'price', which is double: cast it"),
        ("UPDATE {t} SET nmae = 'x'", "the table has no column 'nmae' to assign; it has id, name"),
        ("UPDATE {t} SET name = 'x', name = 'y'", "'name' is assigned twice"),
        ("UPDATE {t} SET ts = 9 WHERE id = 2", "a smaller ordering value than it has"),
        (
            "MERGE INTO {t} t USING (SELECT 1 AS id, 'bonn' AS city) s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET city = s.city",
            r"the row with id=1, city='rome' another record key or partition: id, city cannot be updated",
        ),
        (
            "MERGE INTO {t} t USING (SELECT 1L AS id) s ON t.id = s.id AND t.price > 100"
            " WHEN NOT MATCHED THEN INSERT (id, ts, city) VALUES (s.id, 99, 'rome')",
            "would insert a row with id=1, city='rome', which the table has already",
        ),
        (
            "MERGE INTO {t} t USING (SELECT 1.5D AS id) s ON t.id = s.id"
            " WHEN NOT MATCHED THEN INSERT (id, ts, city) VALUES (s.id, 99, 'rome')",
            "would insert a row with id=1, city='rome', which the table has already",
        ),
        ("MERGE WITH SCHEMA EVOLUTION INTO {t} t USING {t} s ON true WHEN MATCHED THEN DELETE",
         "WITH SCHEMA EVOLUTION"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, text: str, match: str
):
    path = tmp_path_factory.getbasetemp() / "refusing"
    if not path.exists():
        _table(path)
    with pytest.raises((Invalid, Unsupported), match=match):
        ms.sql(spark, text.replace("{t}", _in(path)))
    assert _commits(path) == 1


# -- the parts of statements -------------------------------------------------------------------------------


def test_parts_are_cut_at_the_statements_own_keywords_and_keep_their_text():
    found = parts_of(
        "with w as (select 1) merge into `a b`.c using (select * from d where x = 'ON' -- on\n) as s"
        " on c.id = s.`when matched` and case when 1 = 1 then true end /* when */ when matched and"
        " (s.x in (1, 2)) then update set c.`x,y` = f(1, '=', s.`)`), z = case when a then b end"
        " when not matched by source then delete when not matched then insert (`p`, q) values (1, (2)) ;"
    )
    assert (found.table, found.qualifier, found.source_name) == (("a b", "c"), "c", "s")
    assert found.head.strip() == "with w as (select 1)"
    assert found.condition.startswith("c.id = s.`when matched` and case when 1 = 1 then true end")
    matched, gone, new = found.clauses
    assert [(a.column, a.value.strip()) for a in matched.assignments] == [
        (("c", "x,y"), "f(1, '=', s.`)`)"), (("z",), "case when a then b end"),
    ]  # fmt: skip
    assert (matched.condition.strip(), gone.kind, gone.action) == ("(s.x in (1, 2))", "BY SOURCE", "DELETE")
    assert [(a.column, a.value) for a in new.assignments] == [(("p",), "1"), (("q",), "(2)")]


@pytest.mark.parametrize(
    ("text", "verb"),
    [
        ("-- a\nDELETE FROM t", "DELETE"), ("with a as (delete) update t set x = 1", "UPDATE"),
        ("SELECT 'DELETE FROM t'", None), ("INSERT INTO t SELECT 1", None), ("", None),
        ("WITH a AS (SELECT 1) SELECT * FROM a", None),
    ],
)  # fmt: skip
def test_other_statements_are_left_to_spark(text: str, verb: str | None):
    assert verb_of(text) == verb


@pytest.mark.parametrize(
    ("text", "sides"),
    [
        ("t.id = s.id", [("t.id", "s.id")]),
        ("((a = f(b, '=')) and `c` = d + 1)", [("a", "f(b, '=')"), ("`c`", "d + 1")]),
        ("a = b OR c = d", None), ("a <=> b", None), ("a = b = c", None), ("NOT a = b", None),
        ("a = b AND c BETWEEN 1 AND 2", None), ("a = b AND (c = d OR e)", None), ("true", None),
        ("a >= b", None), ("a = b AND c IS NULL", None),
    ],
)  # fmt: skip
def test_conditions_that_are_equalities_alone_are_told_from_others(
    text: str, sides: list[tuple[str, str]] | None
):
    assert equal_sides(text) == sides


def test_parameters_without_names_get_names_in_their_order():
    text, values = without_marks("UPDATE t SET a = ?, b = '?' WHERE c = ?", [1, 2])
    assert text == "UPDATE t SET a = :mainstem_parameter_0, b = '?' WHERE c = :mainstem_parameter_1"
    assert values == {"mainstem_parameter_0": 1, "mainstem_parameter_1": 2}
    with pytest.raises(Invalid, match="has 1 parameters"):
        without_marks("DELETE FROM t WHERE a = ?", [])
