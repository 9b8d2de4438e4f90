"""For the tests of stores: one MinIO, and one Java Hudi on it, for all (a JVM starts slowly)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.java_hudi import PYTHON, QUICK_JVM, JavaHudi
from tests.servers.object_stores import Minio
from tests.stores import java_on_s3a


@pytest.fixture(scope="session")
def minio() -> Iterator[Minio]:
    """A MinIO with a bucket."""
    with Minio() as running:
        running.make_bucket("bucket")
        yield running


@pytest.fixture(scope="session")
def java(minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaHudi]:
    """Java Hudi 1.2.0 with hadoop-aws and its own storage lock."""
    if not PYTHON.exists():
        pytest.skip("needs the environment of make interop")
    if reason := java_on_s3a.missing():
        pytest.skip(reason)
    settings = java_on_s3a.spark_settings(minio, tmp_path_factory.mktemp("classes"))
    log = tmp_path_factory.mktemp("java") / "stderr.log"
    environment = minio.variables()
    with JavaHudi(
        cores=2, memory="1g", log=log, jvm=QUICK_JVM, settings=settings, environment=environment
    ) as running:
        yield running
