"""Goal: the older 1.x releases of Java Hudi read what we write, under the conditions that we name.

Method: tables of the matrix, compacted and read by Java Hudi 1.1.1 and 1.0.2, compared with the same
model. 1.0.2 knows ordering fields only by their old key, and fails on a key that is deleted without an
ordering value and written again; so it gets table version 8 with both keys, and deletes that carry an
ordering value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from dead_writes import dies_with_its_files, files_of, markers_of
from java_hudi import QUICK_JVM, JavaHudi, nbcc_options
from matrix_cells import LOCAL, READ_OPTIMIZED, READS, SNAPSHOT, TIME_TRAVEL, Kind
from matrix_checks import check_reads, run_kind
from matrix_stores import Place
from matrix_tables import MARK, Bench, Step, first_steps, later_steps

import mainstem

pytestmark = pytest.mark.timeout(600)
SAMPLE = (Kind(LOCAL, "hive-style", "deletes", 9, "avro"),)


@pytest.fixture(scope="module")
def java_1_1_1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaHudi]:
    """A running Java Hudi 1.1.1."""
    log = tmp_path_factory.mktemp("java-1.1.1") / "stderr.log"
    with JavaHudi(version="1.1.1", memory="1g", log=log, jvm=QUICK_JVM) as java:
        yield java


@pytest.mark.supports("Engines", "Java Hudi 1.1.1 reads and compacts our tables")
@pytest.mark.parametrize("kind", SAMPLE, ids=str)
def test_java_1_1_1_reads_and_compacts_our_tables(java_1_1_1: JavaHudi, tmp_path: Path, kind: Kind) -> None:
    results = list(run_kind(Place(java_1_1_1, str(tmp_path)), kind, READS))
    assert [r.problem for r in results] == [""] * len(results)
    assert all(r.rows and r.base_rows and r.log_rows for r in results)


@pytest.fixture(scope="module")
def java_1_0_2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaHudi]:
    """A running Java Hudi 1.0.2."""
    log = tmp_path_factory.mktemp("java-1.0.2") / "stderr.log"
    with JavaHudi(version="1.0.2", memory="1g", log=log, jvm=QUICK_JVM) as java:
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
    java_1_0_2: JavaHudi, tmp_path: Path
) -> None:
    kind = Kind(LOCAL, "hive-style", "deletes", 8, "avro")
    bench = Bench(Place(java_1_0_2, str(tmp_path)), kind, "table")
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


@pytest.mark.parametrize(("version", "table_version"), [("1.1.1", 9), ("1.0.2", 8)])
def test_older_java_takes_back_our_dead_writer_whose_markers_are_lines_of_files(
    request: pytest.FixtureRequest, path: str, version: str, table_version: int
) -> None:
    java: JavaHudi = request.getfixturevalue(f"java_{version.replace('.', '_')}")
    table = mainstem.create_table(
        path,
        pa.schema([("id", pa.int64()), ("ts", pa.int64())]),
        record_key="id",
        ordering="ts",
        buckets=80,
        name="dead",
        table_version=table_version,
    )
    table.upsert(pa.table({"id": range(800), "ts": [100] * 800}))
    dead = dies_with_its_files(table, pa.table({"id": range(800), "ts": [900] * 800}))
    assert markers_of(path, dead) == ["MARKERS.type", "MARKERS0"]
    assert sum(".log." in file for file in files_of(path, dead)) == 80
    options = nbcc_options("dead", record_key=["id"], ordering=["ts"], buckets=80)
    java.clean(path, {**options, "hoodie.clean.commits.retained": "1"})
    assert [i.action for i in table.timeline() if i.action == "rollback" and i.is_completed]
    assert (files_of(path, dead), markers_of(path, dead)) == ([], [])
    assert java.read(path)["ts"].to_pylist() == [100] * 800
