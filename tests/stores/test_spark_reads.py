"""Goal: Spark reads a table from a bucket in tasks, with credentials that travel as names of variables.

Method: a golden table on MinIO, a local Spark session, which starts after the variable is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mainstem
from tests.golden_tables.tables import unpack
from tests.servers.object_stores import Minio
from tests.spark.conftest import spark  # noqa: F401  # the session

NAME = "nbcc_two_writers_mdt"


@pytest.fixture(scope="module")
def options(tmp_path_factory) -> Iterator[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patch, Minio() as server:
        server.make_bucket("bucket")
        storage = server.storage("bucket", NAME)
        local = unpack(NAME, tmp_path_factory.mktemp("golden"))
        for path in local.rglob("*"):
            if path.is_file():
                storage.put(path.relative_to(local).as_posix(), path.read_bytes(), durable=True)
        given = server.options()
        patch.setenv("TEST_STORE_SECRET", given["fs.s3a.secret.key"])
        yield {**given, "fs.s3a.secret.key": "env:TEST_STORE_SECRET"}


def test_spark_reads_what_python_reads(options: dict[str, str], spark: Any, tmp_path: Path) -> None:  # noqa: F811
    read = spark.read.format("mainstem").options(**options).load(f"s3a://bucket/{NAME}")
    found = sorted(map(str, read.toArrow().to_pylist()))
    local = mainstem.open_table(unpack(NAME, tmp_path)).scan().to_arrow()
    assert found == sorted(map(str, local.to_pylist())) and found
