"""Goal: Flink writes tables without buckets, and those whose buckets are split: rows are staged by its
workers, and committed once, where keys live.

Method: real jobs in one MiniCluster on tables under indexes that look for keys: a source that ends, a job
that fails between checkpoints and starts again, INSERT OVERWRITE; read back by mainstem.
"""

from __future__ import annotations

import itertools
import time

import pytest

import mainstem

pytestmark = [pytest.mark.versions]

WAIT_MS = 200_000
_names = itertools.count()


def declared(env, path, kind, columns="id STRING, n INT, city STRING", more=""):
    name = f"placed_{next(_names)}"
    env.execute_sql(
        f"CREATE TABLE {name} ({columns}, PRIMARY KEY (id) NOT ENFORCED) PARTITIONED BY (city) WITH ("
        f"'connector' = 'hudi', 'path' = '{path}', 'table.type' = 'MERGE_ON_READ', 'index.type' = '{kind}'"
        f"{more})"
    )
    return name


def run(env, sql):
    result = env.execute_sql(sql)
    result.wait(WAIT_MS)
    return result


def shown(path, kind):
    """Key -> number and partition; each key once, and the indexes are whole."""
    table = mainstem.open_table(path, {"hoodie.index.type": kind})
    found = table.scan(columns=["id", "n", "city"]).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key is doubled"
    report = table.validate_metadata()
    assert report is None or report.ok, report
    return {row["id"]: (row["n"], row["city"]) for row in found}


@pytest.mark.supports("Engines", "Flink writes tables without buckets, exactly once, INSERT OVERWRITE too")
@pytest.mark.parametrize("kind", ["SIMPLE", "GLOBAL_RECORD_LEVEL_INDEX"])
def test_rows_go_where_their_keys_live_and_overwrites_hide_them(environment, tmp_path, kind):
    path, more = str(tmp_path / "t"), ""
    if kind != "SIMPLE":
        more = ", 'hoodie.metadata.enable' = 'true',"
        more += " 'hoodie.metadata.global.record.level.index.enable' = 'true'"
    flink = environment("300 ms")
    name = declared(flink, path, kind, more=more)
    run(flink, f"INSERT INTO {name} VALUES ('a', 1, 'oslo'), ('b', 1, 'oslo'), ('c', 1, 'bergen')")
    mainstem.open_table(path, {"hoodie.index.type": kind}).upsert({"id": ["d"], "n": [1], "city": ["oslo"]})
    run(flink, f"INSERT INTO {name} VALUES ('b', 2, 'oslo'), ('d', 2, 'oslo'), ('e', 2, 'oslo')")
    oslo, bergen = "oslo", "bergen"
    rows = {"a": (1, oslo), "b": (2, oslo), "c": (1, bergen), "d": (2, oslo), "e": (2, oslo)}
    assert shown(path, kind) == rows
    run(flink, f"INSERT OVERWRITE {name} PARTITION (city = 'oslo') SELECT 'f', 3")
    assert shown(path, kind) == {"f": (3, oslo), "c": (1, bergen)}
    assert "index" in flink.explain_sql(f"INSERT INTO {name} VALUES ('a', 1, 'oslo')")


def test_rows_that_come_again_after_a_restart_are_not_committed_again(environment, tmp_path):
    from pyflink.table import DataTypes
    from pyflink.table.udf import udf

    path, flag = str(tmp_path / "t"), str(tmp_path / "failed")

    @udf(result_type=DataTypes.BIGINT(), func_type="pandas")
    def fails_once(ids):
        import os

        if (ids > 1500).any() and not os.path.exists(flag):
            open(flag, "w").close()
            raise ValueError("fails once")
        return ids

    again = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "200 ms"}
    flink = environment("300 ms", **again, **{"python.fn-execution.bundle.time": "100"})
    flink.create_temporary_function("fails_once", fails_once)
    flink.execute_sql(
        "CREATE TABLE source (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1500',"
        " 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '3000')"
    )
    name = declared(flink, path, "SIMPLE", "id BIGINT, n BIGINT, city STRING")
    result = run(flink, f"INSERT INTO {name} SELECT MOD(fails_once(id), 1000), id, 'x' FROM source")
    assert (tmp_path / "failed").exists()
    assert sum(outcome.rows for outcome in result.outcomes) == 3000
    newest = {key: key + 2000 if key else 3000 for key in range(1000)}
    assert {key: n for key, (n, _) in shown(path, "SIMPLE").items()} == newest


@pytest.mark.supports("Engines", "Flink writes tables under consistent hashing, and follows splits")
def test_checkpoints_follow_file_groups_that_are_split_in_mid_stream(environment, tmp_path):
    path, hashing = str(tmp_path / "t"), "hoodie.index.bucket.engine"
    flink = environment("300 ms", **{"python.fn-execution.bundle.time": "100"})
    flink.execute_sql(
        "CREATE TABLE source (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000',"
        " 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '3000')"
    )
    name = declared(
        flink, path, "BUCKET", "id BIGINT, n BIGINT, city STRING",
        f", '{hashing}' = 'CONSISTENT_HASHING', 'hoodie.bucket.index.num.buckets' = '2',"
        " 'hoodie.bucket.index.max.num.buckets' = '8', 'hoodie.bucket.index.min.num.buckets' = '1'",
    )  # fmt: skip
    result = flink.execute_sql(f"INSERT INTO {name} SELECT MOD(id, 1000), id, 'x' FROM source")
    splits, give_up = 0, time.monotonic() + WAIT_MS / 1000
    while splits < 2 and time.monotonic() < give_up:
        time.sleep(0.2)
        table = mainstem.open_table(path, {"hoodie.parquet.max.file.size": 1})
        splits += len([done for done in table.services.cluster() if done.completion])
    result.wait(WAIT_MS)
    assert splits >= 2 and sum(outcome.rows for outcome in result.outcomes) == 3000
    newest = {key: key + 2000 if key else 3000 for key in range(1000)}
    assert {key: n for key, (n, _) in shown(path, "BUCKET").items()} == newest
