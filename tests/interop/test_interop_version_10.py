"""Goal: Java Hudi 1.3 and mainstem read and write one table of version 10, new, upgraded or brought back.

Method: the tables and the model of the matrix, at version 10, in both storage layouts, and tables that change
their version on the way; what Java 1.3.0-SNAPSHOT reads, writes, compacts and rolls back is compared with
what we do. Java 1.2.0 and hudi-rs read what was brought back. Skipped where the snapshot's bundle is not
there (`snapshot_judge.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from dead_writes import dies_with_its_files, files_of
from java_hudi import QUICK_JVM, JavaHudi, nbcc_options
from matrix_cells import COMPACTION, INCREMENTAL, JAVA_TABLE, LOCAL, READ_OPTIMIZED, READS, SNAPSHOT, Kind
from matrix_checks import run_kind
from matrix_stores import Place
from matrix_tables import MARK, Step, later_steps
from snapshot_judge import WHY_NOT, bundle

import mainstem
from tests.golden_tables import continued as goldens
from tests.golden_tables.tables import expectations
from tests.hudi_rs.reading import read as read_by_hudi_rs
from tests.model.compacted_tables import NATIVE_KINDS, TREE, UNAVAILABLE, Histories, filling
from tests.model.compacted_tables import Kind as Kinds
from tests.model.compaction_model import TREE_PARTIAL_EVENT
from tests.services.city_table import QUICK, SCHEMA, rows

pytestmark = [
    pytest.mark.skipif(bundle() is None, reason=WHY_NOT),
    pytest.mark.timeout(900),
]
#: Java's reader of an LSM tree gives the newest state of a file slice to every time that is asked for
OF_AN_LSM_TREE = (SNAPSHOT, READ_OPTIMIZED, INCREMENTAL, COMPACTION, JAVA_TABLE)


@pytest.fixture(scope="module")
def java_1_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaHudi]:
    """A running Java Hudi 1.3.0-SNAPSHOT."""
    log = tmp_path_factory.mktemp("java-1.3") / "stderr.log"
    with JavaHudi(jar=bundle(), cores=1, memory="1g", log=log, jvm=QUICK_JVM) as java:
        yield java


def with_values(steps: Iterator[Step]) -> Iterator[Step]:
    """The same history, whose deletes are rows with ordering values.

    Deletes without: of an LSM tree Java lets a late row pass them that it holds back in the other layout, and
    with several ordering fields it cannot read them at all.
    """
    for step in steps:
        if step.operation != "delete":
            yield step
        else:
            yield Step("upsert", [{**row, "ts": 350, "seq": 350, MARK: True} for row in step.rows])


KINDS = [  # what tables of every layout answer alike; see the short histories below
    *(Kind(LOCAL, "hive-style", merge, 10, "default") for merge in (
        "event time", "commit time", "partial update", "deletes", "several ordering fields")),
    *(Kind(LOCAL, "two levels", merge, 10, "lsm_tree") for merge in ("commit time", "deletes")),
]  # fmt: skip


@pytest.mark.supports("Engines", "Java Hudi 1.3 (snapshot) reads, writes, compacts tables of version 10")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.merge}, {kind.blocks}")
def test_java_1_3_and_we_agree_on_tables_of_version_10(
    java_1_3: JavaHudi, tmp_path: Path, kind: Kind
) -> None:
    checks = OF_AN_LSM_TREE if kind.blocks == "lsm_tree" else (*READS, COMPACTION, JAVA_TABLE)
    ordered = kind.merge == "several ordering fields" or (kind.blocks, kind.merge) == ("lsm_tree", "deletes")
    steps = (lambda one: with_values(later_steps(one))) if ordered else later_steps
    with patch("matrix_checks.later_steps", steps):
        results = list(run_kind(Place(java_1_3, str(tmp_path)), kind, checks))
    assert [f"{r.check}: {r.problem}" for r in results if r.problem] == []
    assert all(r.rows for r in results)


def shown(found: pa.Table) -> dict[str, tuple[str, int]]:
    """Key -> the rest of its row."""
    return {row["id"]: (row["value"], row["ts"]) for row in found.to_pylist()}


def made(path: Path, version: int = 10, **properties: str) -> mainstem.Table:
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, table_version=version,
        properties={**QUICK, "hoodie.mainstem.exclusive": False, **properties},
    )  # fmt: skip


def options(name: str, *, metadata: bool = False, version: int = 10, **more: str) -> dict[str, str]:
    """Java's, for the same table."""
    told = {"hoodie.write.table.version": str(version), "hoodie.metadata.enable": str(metadata).lower()}
    return nbcc_options(
        name, record_key=["id"], partition_by=["city"], ordering=["ts"], buckets=2, extra={**told, **more}
    )


@pytest.mark.supports("Engines", "Java Hudi 1.3 (snapshot) goes on with tables that we upgraded")
@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "with a metadata table"])
def test_java_1_3_goes_on_with_a_table_that_was_upgraded_beside_a_writer(
    java_1_3: JavaHudi, tmp_path: Path, metadata: bool
) -> None:
    path, by = tmp_path / "t", {"hoodie.metadata.enable": str(metadata).lower()}
    table = made(path, 9, **by)
    table.upsert(rows(range(8), 1))
    table.compact()
    flying = table.begin("upsert")
    flying.write(rows([0], 2, "flying"))
    mainstem.open_table(path).upgrade(10)
    flying.commit()
    table.upsert(rows([1, 2, 9], 2, "native"))
    table.delete(rows([3], 4).select(["id", "city"]))
    assert shown(java_1_3.read(path, by)) == shown(mainstem.open_table(path).scan().to_arrow())
    java_1_3.write(path, rows([4, 10], 5, "java"), options("t", metadata=metadata))
    table.upsert(rows([5], 6, "ours"))
    seen = shown(mainstem.open_table(path).scan().to_arrow())
    assert {seen[key][0] for key in ("k04", "k05", "k10")} == {"java4", "ours5", "java10"}
    assert shown(java_1_3.read(path, by)) == seen
    java_1_3.compact(path, options("t", metadata=metadata))
    table.upsert(rows([6], 7, "after"))
    seen = shown(mainstem.open_table(path).scan().to_arrow())
    assert shown(java_1_3.read(path, by)) == seen and seen["k06"] == ("after6", 7)
    report = mainstem.open_table(path).validate_metadata()
    assert (report is not None and report.ok) if metadata else report is None


@pytest.mark.supports("Engines", "Java Hudi 1.3 (snapshot) rolls back our dead writes, and we its")
def test_dead_writes_of_either_are_rolled_back_by_the_other(java_1_3: JavaHudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(path)
    table.upsert(rows(range(6), 1))
    java_1_3.write(path, rows([1], 2, "java"), options("t"))
    before = shown(table.scan().to_arrow())
    dead = dies_with_its_files(table, rows([0, 2, 4], 3, "dead"))
    assert [file for file in files_of(str(path), dead) if file.endswith(".log.parquet")]
    java_1_3.clean(path, options("t", **{"hoodie.clean.commits.retained": "1"}))
    assert files_of(str(path), dead) == []
    assert shown(java_1_3.read(path)) == shown(table.scan().to_arrow()) == before
    java_1_3.write(path, rows([3, 5], 4, "lost"), options("t"))
    lost = next(i for i in reversed(table.timeline()) if i.action == "deltacommit")
    for name in (lost.file_name, f".{lost.file_name}.crc"):  # as if it had died just before
        os.unlink(path / ".hoodie" / "timeline" / name)
    assert [done.instant for done in table.rollback_failed_writes()] == [lost.requested]
    assert files_of(str(path), lost.requested) == []
    assert shown(java_1_3.read(path)) == shown(table.scan().to_arrow()) == before


@pytest.mark.supports("Engines", "Java Hudi 1.2.0 reads and writes tables brought back from version 10")
@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "with a metadata table"])
def test_what_was_brought_back_to_9_is_read_and_written_by_older_engines(
    java_1_3: JavaHudi, java: JavaHudi, tmp_path: Path, metadata: bool
) -> None:
    path, by = tmp_path / "t", {"hoodie.metadata.enable": str(metadata).lower()}
    table = made(path, **by)
    table.upsert(rows(range(8), 1))
    table.upsert(rows([1, 2, 9], 2, "native"))
    java_1_3.write(path, rows([4], 5, "java"), options("t", metadata=metadata))
    table.delete(rows([3], 4).select(["id", "city"]))
    before = shown(table.scan().to_arrow())
    table.downgrade(9)
    assert shown(java.read(path, by)) == before == shown(java.read_optimized(path))
    theirs, error = read_by_hudi_rs(path)
    if metadata:  # it takes native logs of older slices for base files, and stumbles over two of one time
        assert error is not None and "already present in File Group" in error
    else:
        assert theirs is not None and shown(theirs) == before
    java.write(path, rows([5, 11], 6, "older"), options("t", metadata=metadata, version=9))
    mainstem.open_table(path).upsert(rows([6], 7, "ours"))
    seen = shown(mainstem.open_table(path).scan().to_arrow())
    assert shown(java.read(path, by)) == seen
    assert (seen["k11"], seen["k06"]) == (("older11", 6), ("ours6", 7))
    java.compact(path, options("t", metadata=metadata, version=9))
    assert shown(java.read(path, by)) == seen == shown(mainstem.open_table(path).scan().to_arrow())


FILLED_BY_TIME = Kinds(
    "lsm tree, fill unavailable, event time", TREE_PARTIAL_EVENT, ("t1",),
    {**TREE, **filling("FILL_UNAVAILABLE")}, UNAVAILABLE, version=10,
)  # fmt: skip


@pytest.mark.supports("Services", "compaction: by Hudi's rules in every short history")
@pytest.mark.parametrize("kind", [*NATIVE_KINDS, FILLED_BY_TIME], ids=lambda kind: kind.name)
def test_java_1_3_gives_the_models_answers_in_every_short_history_whoever_compacts(
    java_1_3: JavaHudi, tmp_path: Path, kind: Kinds
) -> None:
    """All histories of deletes of both kinds, late rows and partial rows, cut in all ways by a compaction."""
    histories = Histories(kind, 2 if kind.mode == TREE_PARTIAL_EVENT else 3)
    version = {"hoodie.write.table.version": "10"}
    told = nbcc_options(
        "cuts", record_key=["id"], ordering=kind.ordering, partition_by=["cut"], buckets=1, extra=version
    )
    path = tmp_path / "java"
    table = kind.make(path, exclusive=False)
    planned: list[str] = []
    histories.write(table, lambda: planned.append(java_1_3.schedule_compaction(path, told)))
    uncut, wanted = histories.wanted(compacted=False), histories.wanted(compacted=True)
    assert histories.found(java_1_3.read(path)) == histories.found(table.scan().to_arrow()) == uncut
    java_1_3.run_compaction(path, told, planned[0])
    found = histories.found(java_1_3.read(path))
    lost = [place for place in wanted if found[place] != wanted[place]]
    # Its compaction leaves the marker where a log row had filled in another's value, as that of Java 1.2.0.
    assert len(lost) == (12 if kind.absent and histories.length == 3 else 0), lost[:5]
    assert histories.found(table.scan().to_arrow()) == found
    ours = kind.make(tmp_path / "ours")
    histories.write(ours, ours.compact)
    assert histories.found(java_1_3.read(ours.path)) == wanted


@pytest.mark.supports("Services", "compaction: late rows do not bring deleted rows back")
@pytest.mark.parametrize("kind", NATIVE_KINDS[:2], ids=lambda kind: kind.name)
def test_java_1_3_reads_and_compacts_beside_the_deletes_that_our_compactions_keep(
    java_1_3: JavaHudi, tmp_path: Path, kind: Kinds
) -> None:
    histories = Histories(kind, 2, late=True)
    told = nbcc_options(
        "cuts", record_key=["id"], ordering=kind.ordering, partition_by=["cut"], buckets=1,
        extra={"hoodie.write.table.version": "10", "hoodie.compact.inline.max.delta.commits": "1"},
    )  # fmt: skip
    table = kind.make(tmp_path / "t", exclusive=False)
    histories.write(table, table.schedule_compaction, table.run_compaction)
    wanted = histories.wanted(compacted=True, keep=kind.keep)
    assert wanted != histories.wanted(compacted=True)
    for compact in (lambda: None, lambda: java_1_3.compact(table.path, told)):
        compact()
        assert histories.found(java_1_3.read(table.path)) == wanted
        assert histories.found(table.scan().to_arrow()) == wanted


def test_java_brings_our_table_back_to_9_and_we_go_on(java_1_3: JavaHudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(path)
    table.upsert(rows(range(8), 1))
    table.upsert(rows([1, 2, 9], 2, "native"))
    before = shown(table.scan().to_arrow())
    plain = {"hoodie.metadata.enable": "false"}
    java_1_3.call("sql", text=f"CREATE TABLE back USING hudi LOCATION '{path}'", conf=plain)
    java_1_3.call("sql", text="CALL downgrade_table(table => 'back', to_version => 'NINE')")
    now = mainstem.open_table(path)
    assert now.config.version == 9 and shown(now.scan().to_arrow()) == before
    table.upsert(rows([7], 3, "ours"))  # had it open all along
    assert shown(mainstem.open_table(path).scan().to_arrow())["k07"] == ("ours7", 3)
    now.upgrade(10)
    now.upsert(rows([6], 3, "again"))
    assert shown(java_1_3.read(path)) == shown(now.scan().to_arrow())


CONTINUED = [
    name for name in goldens.TABLES
    if goldens.refusal(name) is None
    and expectations(name)["table_config"]["hoodie.table.version"] == "10"
]  # fmt: skip


@pytest.mark.supports("Engines", "Java Hudi 1.3 (snapshot) and we go on with each other's tables in turns")
@pytest.mark.parametrize("name", CONTINUED)
def test_java_1_3_and_we_go_on_in_turns_with_a_table_that_it_made(
    java_1_3: JavaHudi, tmp_path: Path, name: str
) -> None:
    one = goldens.Continued(goldens.open_as_its_writers(name, tmp_path))
    table, told = one.table, expectations(name)["writer_options"]
    if name == "v10_basic_mdt":  # keys that Java left out (java_index_defects.json: keys_of_inserts)
        table.reindex_all()
    by = {"hoodie.metadata.enable": str(bool(table.config.metadata_partitions)).lower()}

    def agree() -> None:
        seen = mainstem.open_table(table.path)
        assert goldens.shown(java_1_3.read(table.path, by)) == one.expected()
        assert goldens.shown(seen.scan().to_arrow()) == one.expected()
        optimized = seen.scan(mode="read_optimized").to_arrow()
        assert goldens.shown(java_1_3.read_optimized(table.path)) == goldens.shown(optimized)
        report = seen.validate_metadata()
        assert report is None or report.ok, report

    one.go_on()
    agree()
    keys = sorted(one.rows)
    java_1_3.write(table.path, one.newer(keys[:2] + keys[4:5]), told)
    java_1_3.write(
        table.path, one.gone(keys[5:6]), {**told, "hoodie.datasource.write.operation": "delete"}
    )
    one.update(keys[1:2] + keys[6:7])
    agree()
    java_1_3.compact(table.path, told)
    one.update(keys[:1])
    one.delete(keys[6:7])
    agree()
