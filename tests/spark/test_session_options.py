"""Goal: a Spark job takes the options of a store from its session, its own first; a secret that is named by a
variable is nowhere as text.

Method: a golden table on a small S3 server in this process, which records who signed; a session with
``spark.hadoop.fs.s3a.*``; what Spark pickles and explains is searched for the secret.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StructType

import mainstem
from mainstem.spark import register
from mainstem.spark.nearest_join import search_place
from mainstem.spark.options import ReadOptions, WriteOptions
from mainstem.spark.session_options import session_options
from mainstem.spark.source import MainstemSource, with_options
from mainstem.spark.source_readers import Reader
from tests.golden_tables.tables import unpack
from tests.servers.small_s3 import SmallS3
from tests.spark.conftest import spark as base  # noqa: F401  # the session

NAME = "nbcc_two_writers_mdt"
SECRET = os.environ["TEST_STORE_SECRET"]  # of conftest.py


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[SmallS3]:
    with SmallS3() as running:
        local = unpack(NAME, tmp_path_factory.mktemp("golden"))
        for path in local.rglob("*"):
            if path.is_file():
                running.put(f"{NAME}/{path.relative_to(local).as_posix()}", path.read_bytes())
        yield running


@pytest.fixture
def spark(base: Any, server: SmallS3) -> Iterator[Any]:  # noqa: F811
    given = {
        "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{server.port}",
        "spark.hadoop.fs.s3a.access.key": "OFSESSION",
        "spark.hadoop.fs.s3a.secret.key": "${env.TEST_STORE_SECRET}",
        "spark.hadoop.fs.s3a.connection.maximum": "64",
    }
    for name, text in given.items():
        base.conf.set(name, text)
    register(base)
    yield base
    for name in given:
        base.conf.unset(name)
    register(base)


def signers(server: SmallS3) -> set[str]:
    """Who signed since the last call."""
    found = {re.search(r"Credential=(\w+)/", one["authorization"])[1] for one in server.headers}  # type: ignore[index]
    server.headers.clear()
    return found


def test_a_read_takes_the_sessions_options_and_its_own_first(
    spark: Any, server: SmallS3, tmp_path: Path
) -> None:
    read = spark.read.format("mainstem")
    found = sorted(map(str, read.load(f"s3a://bucket/{NAME}").toArrow().to_pylist()))
    local = mainstem.open_table(unpack(NAME, tmp_path)).scan().to_arrow()
    assert found == sorted(map(str, local.to_pylist())) and found
    assert signers(server) == {"OFSESSION"}
    own = {"fs.s3a.access.key": "OWN", "fs.s3a.secret.key": "s"}
    assert read.options(**own).load(f"s3a://bucket/{NAME}").count() == len(found)
    assert signers(server) == {"OWN"}


def test_what_is_told_a_session_later_counts_first(spark: Any) -> None:
    assert session_options(spark)["fs.s3a.access.key"] == "OFSESSION"
    spark.conf.set("fs.s3a.access.key", "LATER")
    try:
        assert session_options(spark)["fs.s3a.access.key"] == "LATER"
    finally:
        spark.conf.unset("fs.s3a.access.key")


def test_a_secret_that_a_variable_holds_is_in_no_closure_plan_or_message(spark: Any, server: SmallS3) -> None:
    path, below = f"s3a://bucket/{NAME}", session_options(spark)
    rows = spark.read.format("mainstem").load(path)
    reader = Reader(ReadOptions.parse({"path": path}, below=below), rows.schema)
    written = WriteOptions.parse({"path": path}, below=below)
    location, _ = search_place(spark, path, {})
    parts = reader.partitions()
    for one in (with_options(MainstemSource, below), reader, written, location, parts):
        assert SECRET.encode() not in cloudpickle.dumps(one) and SECRET not in repr(one)
    assert pickle.loads(pickle.dumps(location)).option_values()["fs.s3a.secret.key"] == SECRET
    plans = rows._jdf.queryExecution().toString() + str(spark.sparkContext.getConf().getAll())
    assert SECRET not in plans
    server.fail("GET", "^$", 403, 99, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
    with pytest.raises(Exception, match="AccessDenied") as raised:
        spark.read.format("mainstem").load(path).count()
    server.faults.clear()
    assert SECRET not in str(raised.value) and "Signature=" not in str(raised.value)


def test_a_secret_given_as_text_is_shown_nowhere_and_is_no_text_in_a_closure(spark: Any) -> None:
    options = {"path": f"s3a://bucket/{NAME}", "fs.s3a.access.key": "k", "fs.s3a.secret.key": SECRET}
    source = with_options(MainstemSource, options)
    read = ReadOptions.parse(options)
    for one in (read, WriteOptions.parse(options), source, Reader(read, StructType())):
        assert SECRET not in repr(one) and SECRET not in str(one)
        assert SECRET.encode() not in cloudpickle.dumps(one)
    assert pickle.loads(cloudpickle.dumps(source)).below == options
    assert pickle.loads(cloudpickle.dumps(read)).location == read.location
