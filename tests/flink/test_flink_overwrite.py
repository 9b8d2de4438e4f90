"""Goal: INSERT OVERWRITE of a query that ends is one commit that hides what was there, beside other writers.

Method: statements as Hudi's documentation writes them, in batch mode and of bounded queries; the table is
read by mainstem.
"""

from __future__ import annotations

import itertools

import pytest

import mainstem
from mainstem.errors import Unsupported

_names = itertools.count()


@pytest.fixture(params=["BATCH", "STREAMING"])
def t(request, environment):
    return environment(**{"execution.runtime-mode": request.param})


@pytest.fixture
def path(tmp_path):
    """Rows a, b of partition oslo and c of bergen."""
    return str(tmp_path / "t")


def declared(t, path, more="", columns="id STRING, n INT, city STRING"):
    name = f"over_{next(_names)}"
    t.execute_sql(f"""
        CREATE TABLE {name} ({columns}, PRIMARY KEY (id) NOT ENFORCED) PARTITIONED BY (city)
        WITH ('connector' = 'hudi', 'path' = '{path}', 'table.type' = 'MERGE_ON_READ',
              'index.type' = 'BUCKET', 'hoodie.bucket.index.num.buckets' = '2' {more})
    """)
    return name


def filled(t, path, more=""):
    name = declared(t, path, more)
    t.execute_sql(f"INSERT INTO {name} VALUES ('a', 1, 'oslo'), ('b', 1, 'oslo'), ('c', 1, 'bergen')").wait()
    return name


def shown(path):
    found = mainstem.open_table(path).scan(columns=["id", "n"]).to_arrow().to_pylist()
    return {row["id"]: row["n"] for row in found}


@pytest.mark.supports("Writing", "Flink: INSERT OVERWRITE, static and dynamic")
def test_the_whole_table_is_overwritten_by_default(t, path):
    name = filled(t, path)
    result = t.execute_sql(f"INSERT OVERWRITE {name} VALUES ('b', 2, 'oslo'), ('d', 2, 'oslo')")
    result.wait()
    assert result.get_job_client() is None and result.error is None
    assert shown(path) == {"b": 2, "d": 2}
    (outcome,) = result.outcomes
    last = mainstem.open_table(path).history().to_pylist()[-1]
    assert (last["requested"], last["operation"]) == (outcome.instant, "INSERT_OVERWRITE_TABLE")
    t.execute_sql(f"INSERT INTO {name} VALUES ('d', 3, 'oslo')").wait()
    assert shown(path) == {"b": 2, "d": 3}


def test_partitions_that_get_rows_are_overwritten_dynamically_or_by_name(t, path):
    name = filled(t, path, ", 'write.partition.overwrite.mode' = 'DYNAMIC'")
    t.execute_sql(f"INSERT OVERWRITE {name} VALUES ('b', 2, 'oslo')").wait()
    assert shown(path) == {"b": 2, "c": 1}
    other = declared(t, path)
    t.execute_sql(f"INSERT OVERWRITE {other} PARTITION (city = 'bergen') SELECT 'e', 3").wait()
    assert shown(path) == {"b": 2, "e": 3}


def test_a_query_that_reads_the_table_which_it_overwrites_sees_what_was_there(t, path):
    name = filled(t, path)
    t.execute_sql(f"INSERT OVERWRITE {name} SELECT id, n + 10, city FROM {name} WHERE id <> 'a'").wait()
    assert shown(path) == {"b": 11, "c": 11}


def test_rows_arrive_as_they_are_whatever_their_type(t, path):
    nested = "m MAP<STRING, INT>, r ROW<x INT, y STRING>, l ARRAY<DOUBLE>"
    columns = f"id STRING, {nested}, `at` TIMESTAMP(6), city STRING"
    name = declared(t, path, columns=columns)
    t.execute_sql(f"""
        INSERT OVERWRITE {name} SELECT 'a', MAP['k', 7], CAST(ROW(5, 'five') AS ROW<x INT, y STRING>),
            ARRAY[1.5E0, 2.5E0], TIMESTAMP '2026-11-27 10:00:00.123456', 'oslo'
    """).wait()
    (row,) = mainstem.open_table(path).scan().to_arrow().to_pylist()
    assert (dict(row["m"]), row["r"], row["l"]) == ({"k": 7}, {"x": 5, "y": "five"}, [1.5, 2.5])
    assert row["at"].isoformat().startswith("2026-11-27T10:00:00.123456")


def test_a_query_that_fails_hides_nothing(t, path):
    name = filled(t, path)
    with pytest.raises(Exception, match=r"(?s)by zero|ArithmeticException|failed"):
        t.execute_sql(f"INSERT OVERWRITE {name} SELECT id, n / (n - 1), city FROM {name}").wait()
    assert shown(path) == {"a": 1, "b": 1, "c": 1}
    assert not [i for i in mainstem.open_table(path).timeline() if not i.is_completed]


def test_what_does_not_end_or_is_part_of_a_job_is_refused(environment, path):
    t = environment(every="1 s")
    name = filled(t, path)
    t.execute_sql(
        "CREATE TEMPORARY TABLE endless (id STRING, n INT, city STRING) WITH ('connector' = 'datagen')"
    )
    with pytest.raises(Unsupported, match="does not end"):
        t.execute_sql(f"INSERT OVERWRITE {name} SELECT * FROM endless")
    together = t.create_statement_set()
    with pytest.raises(Unsupported, match="in a statement set"):
        together.add_insert_sql(f"INSERT OVERWRITE {name} VALUES ('b', 2, 'oslo')")
    assert "overwritten in one commit" in t.explain_sql(f"INSERT OVERWRITE {name} VALUES ('b', 2, 'oslo')")
    t.execute_sql("DROP TEMPORARY TABLE endless")
    assert shown(path) == {"a": 1, "b": 1, "c": 1}
