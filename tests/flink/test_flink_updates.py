"""Goal: a table shows what an updating query has in the end: also after a filter, and where a row's key or
partition changes.

Method: real jobs in one MiniCluster, with batches that end within updates, and one that fails between
checkpoints and starts again; read back by mainstem. The pairing of updates alone is in ``test_update_pairs``.
"""

from __future__ import annotations

import pytest

import mainstem
from tests.flink.test_flink_writers import WAIT_MS, numbers

pytestmark = [pytest.mark.versions]

COUNTS = "SELECT MOD(id, 3) AS id, COUNT(*) AS n FROM source GROUP BY MOD(id, 3)"
# Of the table's own type. Rows that Flink has to cast have no key in its plan: a materializer gives them one.
TYPED = "SELECT k AS id, COUNT(*) AS n FROM (SELECT CAST(MOD(id, 3) AS BIGINT) AS k FROM source) GROUP BY k"
FILTERED = f"SELECT * FROM ({COUNTS}) WHERE n < 30 OR id > 0"
CUT = {"python.fn-execution.arrow.batch.size": "7"}


def declare(env, path, columns: str, more: str = "", by: str = "", index: str = "BUCKET") -> None:
    env.execute_sql(
        f"CREATE TABLE {path.name} ({columns}) {by} WITH ('connector' = 'hudi', 'path' = '{path}',"
        f" 'table.type' = 'MERGE_ON_READ', 'index.type' = '{index}' {more})"
    )


def rows(path, *names: str, index: str = "BUCKET") -> list[tuple]:
    found = mainstem.open_table(path, {"hoodie.index.type": index}).scan(columns=list(names)).to_arrow()
    return sorted(tuple(row.values()) for row in found.to_pylist())


ID = "id BIGINT, n BIGINT, PRIMARY KEY (id) NOT ENFORCED"


@pytest.mark.supports("Engines", "Flink: updating queries whose rows a filter drops, or that move")
def test_nothing_stays_that_an_updating_query_no_longer_has(environment, tmp_path):
    flink = environment("200 ms", **CUT)
    numbers(flink, "source", 90, 200)
    declare(flink, tmp_path / "placed", ID, index="SIMPLE")
    declare(flink, tmp_path / "falling", f"ts BIGINT, {ID}", ", 'ordering.fields' = 'ts'")
    declare(flink, tmp_path / "falling_too", f"ts BIGINT, {ID}", ", 'ordering.fields' = 'ts'", index="SIMPLE")
    declare(flink, tmp_path / "moving", f"city STRING, {ID}", by="PARTITIONED BY (city)")
    declare(flink, tmp_path / "rekeyed", "n BIGINT, id BIGINT, PRIMARY KEY (n) NOT ENFORCED")
    job = flink.create_statement_set()
    job.add_insert_sql(f"INSERT INTO placed {FILTERED}")
    job.add_insert_sql(f"INSERT INTO falling SELECT 100 - n, id, n FROM ({TYPED}) WHERE n < 30 OR id > 0")
    job.add_insert_sql(f"INSERT INTO falling_too SELECT 100 - n, id, n FROM ({FILTERED})")
    job.add_insert_sql(f"INSERT INTO moving SELECT CAST(n / 10 AS STRING), id, n FROM ({TYPED})")
    job.add_insert_sql(f"INSERT INTO rekeyed SELECT n, id FROM ({COUNTS}) WHERE id = 1 OR n < 5")
    job.execute().wait(WAIT_MS)
    assert rows(tmp_path / "placed", "id", "n", index="SIMPLE") == [(1, 30), (2, 30)]
    assert rows(tmp_path / "moving", "id", "n", "city") == [(id, 30, "3") for id in range(3)]
    assert rows(tmp_path / "rekeyed", "n", "id") == [(30, 1)]
    # Smaller values lose, those of deletions too; but no update took its row away.
    assert rows(tmp_path / "falling", "id", "n") == [(id, 1) for id in range(3)]
    assert rows(tmp_path / "falling_too", "id", "n", index="SIMPLE") == [(id, 1) for id in range(3)]


def test_a_job_that_starts_again_deletes_the_same(environment, tmp_path):
    from pyflink.table import DataTypes
    from pyflink.table.udf import udf

    flag = str(tmp_path / "failed")

    @udf(result_type=DataTypes.BIGINT(), func_type="pandas")
    def fails_once(ids):
        import os

        if (ids > 700).any() and not os.path.exists(flag):
            open(flag, "w").close()
            raise ValueError("fails once")
        return ids

    again = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "200 ms"}
    flink = environment("200 ms", **again, **{"python.fn-execution.bundle.time": "100"})
    flink.create_temporary_function("fails_once", fails_once)
    numbers(flink, "source", 1200, 600)
    declare(flink, tmp_path / "restarted", ID)
    counted = TYPED.replace("FROM source", "FROM (SELECT fails_once(id) AS id FROM source)")
    kept = f"SELECT * FROM ({counted}) WHERE id = 1 OR n < 50 OR (id = 2 AND n > 380)"
    result = flink.execute_sql(f"INSERT INTO restarted {kept}")
    result.wait(WAIT_MS)
    assert (tmp_path / "failed").exists()
    assert len(result.outcomes) >= 2, "the rows came in several checkpoints"
    assert rows(tmp_path / "restarted", "id", "n") == [(1, 400), (2, 400)]
