"""Goal: Flink writes a table in a bucket, and reads it: stage files and committables lie in the store.

Method: MinIO and real jobs in one MiniCluster with Flink's own file system for S3, as for checkpoints in a
store; one of them fails in the middle and starts again.
"""

from __future__ import annotations

import datetime as dt
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Unsupported
from tests.flink.conftest import environment  # noqa: F401  # fixture
from tests.flink.test_flink_writers import ONE, numbers, run, table
from tests.servers.object_stores import Minio
from tests.stores.jars import jars

pytestmark = [pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patch, Minio() as server:
        server.make_bucket("bucket")
        given = server.options()
        patch.setenv("TEST_STORE_SECRET", given["fs.s3a.secret.key"])
        yield {**given, "fs.s3a.secret.key": "env:TEST_STORE_SECRET"}


@pytest.fixture(scope="module")
def table_environment(store: dict[str, str]) -> Any:
    pytest.importorskip("pyflink")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PyFlink's own imports say about each other
        import pyflink.fn_execution.beam.beam_worker_pool_service  # noqa: F401
        from pyflink.common import Configuration
        from pyflink.datastream import StreamExecutionEnvironment
        from pyflink.java_gateway import get_gateway
        from pyflink.table import StreamTableEnvironment

    (jar,) = jars("flink-jars", "flink.xml").glob("*.jar")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CLASSPATH", str(jar))  # of the JVM that starts now; a cluster has it as a plugin
        settings = Configuration()
        for key in ("endpoint", "endpoint.region", "access.key"):
            settings.set_string(f"s3.{key}", store[f"fs.s3a.{key}"])
        settings.set_string("s3.secret.key", os.environ["TEST_STORE_SECRET"])
        settings.set_string("s3.path.style.access", "true")
        jvm = get_gateway().jvm
        jvm.org.apache.flink.core.fs.FileSystem.initialize(settings._j_configuration, None)
        yield StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment())


def ids(url: str, store: dict[str, str]) -> list[int]:
    return sorted(mainstem.open_table(url, store).scan(columns=["id"]).to_arrow()["id"].to_pylist())


def test_rows_that_come_again_after_a_failure_are_committed_once(
    environment: Any, store: dict[str, str], tmp_path: Path  # noqa: F811
) -> None:
    from pyflink.table import DataTypes
    from pyflink.table.udf import udf

    flag, url = str(tmp_path / "failed"), "s3a://bucket/sink"

    @udf(result_type=DataTypes.BIGINT(), func_type="pandas")
    def fails_once(ids: Any) -> Any:
        import os

        if (ids > 1500).any() and not os.path.exists(flag):
            open(flag, "w").close()
            raise ValueError("fails once")
        return ids

    again = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "200 ms"}
    flink = environment("300 ms", **again, **{"python.fn-execution.bundle.time": "100"})
    flink.create_temporary_function("fails_once", fails_once)
    source = numbers(flink, "source", 3000, 1500)
    sink = table(flink, "sink", url, ONE, **store)
    result = run(flink, f"INSERT INTO {sink} SELECT fails_once(id), ts FROM {source}")
    assert (tmp_path / "failed").exists()
    assert sum(outcome.rows for outcome in result.outcomes) == 3000
    assert ids(url, store) == list(range(1, 3001))
    storage = mainstem.open_table(url, store).opened.seams.storage
    assert storage.names(".hoodie/.mainstem/flink/sink/committables") == [], "what is committed is removed"


def test_flink_reads_a_table_in_a_bucket(environment: Any, store: dict[str, str]) -> None:  # noqa: F811
    url = "s3://bucket/read"
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("ms", "UTC"))])
    rows = pa.table({"id": range(1, 101), "ts": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * 100}, schema)
    mainstem.create_table(url, schema, record_key="id", ordering="ts", properties=store).upsert(rows)
    flink = environment()
    read = table(flink, "read", url, ONE, **store)
    with flink.execute_sql(f"SELECT id FROM {read} WHERE id <= 20").collect() as rows:
        assert sorted(row[0] for row in rows) == list(range(1, 21))


def test_a_store_that_flink_has_no_file_system_for_is_refused_before_a_table_is_made(
    environment: Any,  # noqa: F811
) -> None:
    flink = environment("300 ms")
    source = numbers(flink, "source", 3, 3)
    sink = table(flink, "sink", "memory://flink/t", ONE)
    with pytest.raises(Unsupported, match="Flink has no file system for memory://"):
        run(flink, f"INSERT INTO {sink} SELECT id, ts FROM {source}")
