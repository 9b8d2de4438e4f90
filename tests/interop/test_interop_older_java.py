"""Goal: the older 1.x releases of Java Hudi read what we write, under the conditions that we name.

Method: tables of the matrix, compacted and read by Java Hudi 1.1.1 and 1.0.2, compared with the same
model, on a local disk and on MinIO by hadoop-aws, there under ZooKeeper's lock (the stand-in for the client
of the storage lock is made for 1.2.0). 1.0.2 knows ordering fields only by their old key, and fails on a
key that is deleted without an ordering value and written again; so it gets table version 8 with both keys,
and deletes that carry an ordering value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from java_hudi import QUICK_JVM, JavaHudi
from matrix_cells import LOCAL, READ_OPTIMIZED, READS, S3A, SNAPSHOT, TIME_TRAVEL, Kind
from matrix_checks import check_reads, run_kind, zookeeper_options
from matrix_stores import Place
from matrix_tables import MARK, Bench, Step, first_steps, later_steps

from tests.servers.object_stores import Minio, StoreServer
from tests.servers.zookeeper import ZooKeeperServer
from tests.stores import java_on_s3a

NO_S3A = java_on_s3a.missing(lock=False)
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.parametrize(
        "store", [LOCAL, pytest.param(S3A, marks=pytest.mark.skipif(bool(NO_S3A), reason=str(NO_S3A)))]
    ),
]


@pytest.fixture(scope="module")
def minio() -> Iterator[StoreServer | None]:
    """A server with a bucket; None where Java cannot work there."""
    if NO_S3A:
        yield None
        return
    with Minio() as running:
        running.make_bucket("bucket")
        yield running


def older(version: str, minio: StoreServer | None, factory: pytest.TempPathFactory) -> JavaHudi:
    """Java Hudi of a version, which reaches the server, too."""
    log = factory.mktemp(f"java-{version}") / "stderr.log"
    settings = {} if minio is None else java_on_s3a.spark_settings(minio, None)
    return JavaHudi(version=version, memory="1g", log=log, jvm=QUICK_JVM, settings=settings)


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[dict[str, str]]:
    """Lock options of a running ZooKeeper."""
    with ZooKeeperServer() as server:
        yield zookeeper_options(server.connect_string)


def place(store: str, java: JavaHudi, request: pytest.FixtureRequest) -> Place:
    """A folder of this test."""
    if store == LOCAL:
        return Place(java, str(request.getfixturevalue("tmp_path")))
    server = request.getfixturevalue("minio")
    lock = request.getfixturevalue("zookeeper")
    return Place(java, f"s3a://bucket/{request.node.originalname}", lock, server.options())


@pytest.fixture(scope="module")
def java_1_1_1(
    minio: StoreServer | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaHudi]:
    """A running Java Hudi 1.1.1."""
    with older("1.1.1", minio, tmp_path_factory) as java:
        yield java


@pytest.mark.supports("Engines", "Java Hudi 1.1.1 reads and compacts our tables")
def test_java_1_1_1_reads_and_compacts_our_tables(
    java_1_1_1: JavaHudi, store: str, request: pytest.FixtureRequest
) -> None:
    kind = Kind(store, "hive-style", "deletes", 9, "avro")
    results = list(run_kind(place(store, java_1_1_1, request), kind, READS))
    assert [r.problem for r in results] == [""] * len(results)
    assert all(r.rows and r.base_rows and r.log_rows for r in results)


@pytest.fixture(scope="module")
def java_1_0_2(
    minio: StoreServer | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaHudi]:
    """A running Java Hudi 1.0.2."""
    with older("1.0.2", minio, tmp_path_factory) as java:
        yield java


def with_ordering_values(steps: Iterable[Step]) -> Iterator[Step]:
    """The same history, but for ``delete``: rows that are marked as deleted and newer than others."""
    for step in steps:
        if step.operation == "delete":
            yield Step("upsert", [{**row, "ts": 350, MARK: True} for row in step.rows])
        else:
            yield step


@pytest.mark.supports("Engines", "Java Hudi 1.0.2 reads our tables of version 8, incremental queries aside")
def test_java_1_0_2_reads_version_8_with_both_ordering_keys_and_ordered_deletes(
    java_1_0_2: JavaHudi, store: str, request: pytest.FixtureRequest
) -> None:
    kind = Kind(store, "hive-style", "deletes", 8, "avro")
    bench = Bench(place(store, java_1_0_2, request), kind, "table")
    properties = bench.table().properties
    assert properties["hoodie.table.ordering.fields"] == "ts"
    assert properties["hoodie.table.precombine.field"] == "ts"
    bench.we_write(with_ordering_values(first_steps(kind)))
    bench.java_compacts()
    bench.we_write(with_ordering_values(later_steps(kind)))
    shown = bench.model.snapshot()
    assert {entry.base is None for entry in shown} == {True, False}
    assert bench.model.snapshot(as_of=bench.model.commits[0].requested)
    # Its incremental queries begin with the instant that they should begin after: another answer.
    found = check_reads(bench, (SNAPSHOT, READ_OPTIMIZED, TIME_TRAVEL))
    assert found == {SNAPSHOT: "", READ_OPTIMIZED: "", TIME_TRAVEL: ""}
