"""Goal: a commit that a validator refuses leaves nothing, and everybody else's commit stands.

Method: Hudi's three kinds of queries on tables with history, on what each operation brings.
"""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid, Unsupported, ValidationFailed

SCHEMA = pa.schema([
    ("id", pa.string()), ("ts", pa.int64()), ("city", pa.string()), ("fare", pa.float64()),
])  # fmt: skip
CLASSES = "org.apache.hudi.client.validator.SqlQuery{}PreCommitValidator"
OPTION = "hoodie.precommit.validators"
VALUE = {OPTION: CLASSES.format("SingleResult")}
SAME = {OPTION: CLASSES.format("Equality")}
OTHER = {OPTION: CLASSES.format("Inequality")}


def rows(ids: str, ts: int = 1, fare: float = 5.0, city: str = "oslo") -> dict:
    return {"id": list(ids), "ts": [ts] * len(ids), "city": [city] * len(ids), "fare": [fare] * len(ids)}


def value(*queries: str) -> dict[str, str]:
    return VALUE | {f"{OPTION}.single.value.sql.queries": ";".join(queries)}


@pytest.fixture(params=["", "SIMPLE"], ids=["buckets", "without buckets"])
def path(tmp_path, request) -> str:
    how = {"properties": {"hoodie.index.type": request.param}} if request.param else {"buckets": 2}
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="city", **how
    )
    made.upsert(rows("abc"))
    made.upsert(rows("xy", city="rome"))
    return str(made.path)


def ids(path: str) -> list[str]:
    return sorted(mainstem.open_table(path).scan(columns=["id"]).to_arrow()["id"].to_pylist())


@pytest.mark.supports("Writing", "SQL pre-commit validators")
def test_what_a_commit_adds_decides_and_a_refused_one_leaves_nothing(path) -> None:
    table = mainstem.open_table(path, properties=value("select count(*) from <ADDED_ROWS> where fare < 0#0"))
    table.upsert(rows("de"))
    with pytest.raises(ValidationFailed, match=r"expected '0', found '1'.*Nothing of this transaction"):
        table.upsert(rows("f", fare=-1))
    assert ids(path) == list("abcdexy")
    assert not [i for i in table.timeline() if not i.is_completed]
    table.upsert(rows("g"))
    mainstem.open_table(path).upsert(rows("h", fare=-2))  # nobody else's job
    assert ids(path) == list("abcdeghxy")


def test_the_table_is_the_partitions_that_the_commit_changes_with_its_rows_merged(path) -> None:
    told = "select string_agg(id || ts, ' ' order by id) from <TABLE_NAME>#"
    table = mainstem.open_table(path, properties=value(told + "a2 b1 c1 d1"))
    with table.begin() as txn:
        txn.write(rows("ad", ts=2) | {"ts": [2, 1]})
        txn.write(rows("b", ts=0))  # late: the row that is there stays
        txn.commit()
    mainstem.open_table(path, properties=value(told + "a2 c1 d1")).delete({"id": ["b"], "city": ["oslo"]})
    mainstem.open_table(path, properties=value(told + "z1")).insert_overwrite(rows("z"))
    assert ids(path) == ["x", "y", "z"]
    empty = value("select count(*) from <TABLE_NAME>#0")
    mainstem.open_table(path, properties=empty).delete_partition("oslo")
    assert ids(path) == ["x", "y"]


@pytest.mark.parametrize("exclusive", ["true", "false"])
def test_base_files_are_checked_before_they_have_their_names(tmp_path, exclusive) -> None:
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2,
        properties={"hoodie.mainstem.exclusive": exclusive},
    )  # fmt: skip
    made.upsert(rows("abc"))
    told = value("select string_agg(id, ' ' order by id) from <TABLE_NAME>#y z")
    table = mainstem.open_table(made.path, properties=told)
    table.insert_overwrite(rows("yz"))
    table.bulk_insert(rows("yz", city="rome"))
    for write in (table.insert_overwrite, lambda some: table.bulk_insert(some | {"city": ["bern"]})):
        with pytest.raises(ValidationFailed, match="expected 'y z', found 'x'"):
            write(rows("x"))
    assert ids(made.path) == ["y", "y", "z", "z"]
    assert not [i for i in made.timeline() if not i.is_completed]


def test_a_result_must_stay_or_must_change(path) -> None:
    query = f"{OPTION}.equality.sql.queries"
    same = mainstem.open_table(path, properties=SAME | {query: "select id from <TABLE_NAME>"})
    same.upsert(rows("cba", ts=2))
    with pytest.raises(ValidationFailed, match="1 rows of its result differ before and after"):
        same.upsert(rows("d"))
    query = f"{OPTION}.inequality.sql.queries"
    other = mainstem.open_table(path, properties=OTHER | {query: "select max(ts) from <TABLE_NAME>"})
    other.upsert(rows("a", ts=3))
    with pytest.raises(ValidationFailed, match="the same before and after"):
        other.upsert(rows("b", ts=3))
    assert ids(path) == list("abcxy")


def test_columns_that_the_commit_adds_can_be_asked_for(path) -> None:
    table = mainstem.open_table(path, properties=value("select sum(tip) from <ADDED_ROWS>#3"))
    table.upsert(rows("ab", ts=2) | {"tip": [1, 2]})
    with pytest.raises(ValidationFailed, match="found '7'"):
        table.upsert(rows("a", ts=3) | {"tip": [7]})


def test_a_warning_is_enough_if_the_policy_says_so(path, caplog) -> None:
    properties = value("select count(*) from <ADDED_ROWS>#0") | {f"{OPTION}.failure.policy": "warn_log"}
    with caplog.at_level(logging.WARNING, "mainstem.services"):
        mainstem.open_table(path, properties=properties).upsert(rows("d"))
    assert "is committed although" in caplog.text and "d" in ids(path)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("select nothing from <ADDED_ROWS>#1", "nothing"),
        ("select * from <ADDED_ROWS>#1", "expected one row of one column"),
        ("select count(*) from <ADDED_ROWS>, read_text('/etc/hostname')#1", "disabled"),
    ],
)
def test_a_query_that_cannot_be_run_refuses_the_commit(query, told, path) -> None:
    with pytest.raises(ValidationFailed, match=told):
        mainstem.open_table(path, properties=value(query)).upsert(rows("de"))
    assert ids(path) == list("abcxy")


@pytest.mark.parametrize(
    ("properties", "error", "told"),
    [
        (VALUE, Invalid, "single.value.sql.queries are not given"),
        (value("select 1#1"), Invalid, "names neither <TABLE_NAME> nor <ADDED_ROWS>"),
        (value("select count(*) from <TABLE_NAME>"), Invalid, "expected query#result"),
        (SAME | {f"{OPTION}.equality.sql.queries": "from <ADDED_ROWS>"}, Invalid, "before and after"),
        ({OPTION: "com.example.Mine"}, Unsupported, "which does not run here"),
        (VALUE | {f"{OPTION}.failure.policy": "maybe"}, Invalid, "FAIL or WARN_LOG"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(properties, error, told, path) -> None:
    with pytest.raises(error, match=told):
        mainstem.open_table(path, properties=properties).upsert(rows("d"))
    assert ids(path) == list("abcxy")


def test_a_query_reads_no_file_where_duckdb_would_put_what_it_spills(path, tmp_path, monkeypatch) -> None:
    (tmp_path / ".tmp").mkdir()
    (tmp_path / ".tmp" / "secret.csv").write_text("a\n1\n")
    monkeypatch.chdir(tmp_path)
    query = "select count(*) from read_csv('.tmp/secret.csv'), <ADDED_ROWS>#1"
    with pytest.raises(ValidationFailed, match="cannot be run"):
        mainstem.open_table(path, properties=value(query)).upsert(rows("d"))
