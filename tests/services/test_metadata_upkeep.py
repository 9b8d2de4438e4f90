"""Goal: a table with a metadata table can run for years: old files of the metadata table go, its timeline
is archived, what it says stays the same, whoever dies or races at it.

Method: tables are committed to hundreds of times with small bounds; cleaners and archivers of the metadata
table die at every call that changes something; plans are compared with what Java writes, limits with
instants that are pending on the data table. After each step the metadata table must list what lies in the
folders.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.api.real_seams import fence_of
from mainstem.errors import CorruptTable
from mainstem.formats.avro_container import decode_container
from mainstem.indexing import index_build
from mainstem.layout.properties import load_config
from mainstem.lsm_archive.reader import Archive
from mainstem.publish.publisher import Publisher
from mainstem.readers.planning.file_listing import query_listing
from mainstem.readers.planning.table_state import TableState
from mainstem.services.clean_plan import CleanOptions
from mainstem.services.metadata import (
    metadata_archiving,
    metadata_cleaning,
    metadata_compaction,
    metadata_round,
)
from mainstem.storage import paths
from mainstem.timeline.active import load_timeline
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.instant_times import InstantTimes
from mainstem.writers.context import WriterContext
from tests.services.test_metadata_compaction import (
    SCHEMA,
    TIMELINE,
    age,
    check,
    commit,
    metadata,
    own_timeline,
    replace_storage,
    undone,
)
from tests.services.test_metadata_compaction import opened as opened_with
from tests.storage.steps import Dead, Mortal, storage_at

#: both tables: few instants stay, two slices of the metadata table
SMALL = {
    "hoodie.metadata.derive.from.datatable.clean.policy": "false",
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED",
    "hoodie.metadata.compact.max.delta.commits": "2",
}
FILES = ".hoodie/metadata/files"


def opened(path: Path | str, **more: object) -> mainstem.Table:
    """Another handle, as another process has it; its commits run no service."""
    return opened_with(path, **{**SMALL, "hoodie.table.services.enabled": False, **more})


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    """Six commits and three compactions of the metadata table; nothing cleaned, nothing archived."""
    path = tmp_path / "t"
    mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={"hoodie.metadata.enable": True, "hoodie.mainstem.exclusive": True},
    )  # fmt: skip
    made = opened(path)
    for _ in range(3):
        commit(made, 2)
        assert metadata_compaction.run(made.writer_context())
    commit(made, 3)
    return made


def bases(table: mainstem.Table) -> list[str]:
    """Instants of the base files of ``files``."""
    found = map(paths.parse_hfile_name, os.listdir(Path(table.path, FILES)))
    return sorted(base.instant for base in found if base is not None)


def active(table: mainstem.Table) -> list[str]:
    """Requested times of completed commits on the metadata table's timeline."""
    own = load_timeline(table.writer_context().seams.storage, paths.METADATA_TIMELINE)
    return [i.requested for i in own.completed if i.action in ("commit", "deltacommit")]


def archived(table: mainstem.Table) -> list[str]:
    archive = Archive.load(table.writer_context().seams.storage, f"{TIMELINE}/history")
    return sorted(row["instantTime"] for row in archive.completed("").to_pylist())


# ---------------------------------------------------------------------------------------- for years


@pytest.mark.supports("Services", "metadata table: cleaning and archiving")
def test_after_300_commits_the_metadata_table_has_as_many_files_as_after_100(tmp_path: Path) -> None:
    path = tmp_path / "t"
    options = {
        "hoodie.table.services.enabled": True, "hoodie.archive.automatic": True,
        "hoodie.archive.async": False, "hoodie.mainstem.fsync": False,
        "hoodie.metadata.compact.max.delta.commits": "10",
        "hoodie.keep.min.commits": "10", "hoodie.keep.max.commits": "20",
    }  # fmt: skip
    mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=1,
        properties={"hoodie.metadata.enable": True, "hoodie.mainstem.exclusive": True},
    )  # fmt: skip
    table = opened(path, **options)
    row = pa.table({"id": [1], "ts": [1]}, SCHEMA)
    most = {}
    for number in range(300):
        table.upsert(row)
        if number in range(80, 100) or number >= 280:
            counts = len(own_timeline(table)), len(os.listdir(path / FILES))
            most[number < 100] = tuple(map(max, counts, most.get(number < 100, (0, 0))))
    assert most[False] == most[True] and most[True][0] < 200 and most[True][1] < 50
    assert len(archived(table)) > 250
    check(table)
    report = table.validate_metadata()
    assert report is not None and report.ok, report


def test_a_round_of_services_cleans_and_archives_the_metadata_table_and_says_so(table) -> None:
    opened(table.path).archive()
    (done,) = opened(table.path, **{"hoodie.table.services.enabled": True}).run_services("metadata")
    cleaned, compacted, archived_now = [result.describe() for result in done.results]
    assert cleaned.startswith("clean 2") and "of the metadata table: " in cleaned
    assert compacted.startswith("compaction 2") and "of the metadata table: " in compacted
    assert "10 instants of the metadata table archived" in archived_now
    check(table)


# ----------------------------------------------------------------------------------------- cleaning


def clean(table: mainstem.Table, **how: object) -> list:
    return metadata_cleaning.run(table.writer_context(), **how)


def test_two_slices_stay_and_plan_and_metadata_are_as_java_writes_them(table: mainstem.Table) -> None:
    before = bases(table)
    there = set(os.listdir(Path(table.path, FILES)))
    (done,) = clean(table)
    assert bases(table) == before[-2:]
    gone = there - set(os.listdir(Path(table.path, FILES)))
    assert (done.files, done.deleted) == (len(gone), len(gone))
    folder = Path(table.path, TIMELINE)
    plan, _ = decode_container((folder / f"{done.requested}.clean.requested").read_bytes(), path="p")
    assert (plan["policy"], plan["version"]) == ("KEEP_LATEST_FILE_VERSIONS", 2)
    (planned,) = plan["filePathsToBeDeletedPerPartition"].values()
    assert {file["filePath"] for file in planned} == {f"file:{table.path}/{FILES}/{n}" for n in gone}
    said, _ = decode_container(
        (folder / f"{done.requested}_{done.completion}.clean").read_bytes(), path="c"
    )
    assert set(said["partitionMetadata"]["files"]["successDeleteFiles"]) == gone
    check(table)
    assert clean(table) == [], "nothing more may go"


def test_by_default_the_newest_twenty_commits_keep_their_files() -> None:
    assert CleanOptions.of_metadata_table({}).commits == 20
    assert CleanOptions.of_metadata_table({"hoodie.clean.commits.retained": "30"}).commits == 36
    hours = {"hoodie.clean.policy": "KEEP_LATEST_BY_HOURS", "hoodie.clean.hours.retained": "3"}
    assert CleanOptions.of_metadata_table(hours).hours == 4
    versions = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS"}
    assert CleanOptions.of_metadata_table(versions).versions == 4


def test_files_that_a_compaction_replaced_rest_for_three_instants(table: mainstem.Table) -> None:
    metadata_compaction.run(table.writer_context(), if_due=False)
    commit(table, 2)
    assert clean(table) == []
    commit(table)
    assert len(clean(table)) == 1


def test_a_query_that_began_before_a_clean_goes_on(table: mainstem.Table) -> None:
    """It has the metadata table's timeline from before the compactions; the slice that it reads is gone."""
    storage = storage_at(table.path)
    query = TableState.load(storage, load_config(storage))
    assert query.metadata_table is not None
    there = {name for listing in query.partitions() for name in listing.names}
    for _ in range(2):
        metadata_compaction.run(table.writer_context(), if_due=False)
        commit(table, 3)
    assert clean(table)
    with pytest.raises((CorruptTable, FileNotFoundError)):
        query.metadata_table.files()
    (listed,) = query_listing(query, metadata=True)
    assert there <= set(listed.names)


def test_a_plan_that_names_what_readers_need_is_refused_and_nothing_is_deleted(table) -> None:
    ctx = table.writer_context()
    time = metadata_cleaning.schedule(ctx)
    assert time is not None
    plan = Path(table.path, TIMELINE, f"{time}.clean.requested")
    oldest, newest = bases(table)[0], bases(table)[-1]
    plan.write_bytes(plan.read_bytes().replace(oldest.encode(), newest.encode()))
    there = os.listdir(Path(table.path, FILES))
    with pytest.raises(CorruptTable, match="part of the newest file slice"):
        metadata_cleaning.execute(ctx, time)
    assert sorted(os.listdir(Path(table.path, FILES))) == sorted(there)


def test_files_of_a_pending_compaction_stay(table: mainstem.Table) -> None:
    ctx = table.writer_context()
    time = metadata_compaction.schedule(ctx, if_due=False)
    clean(table)
    assert metadata_compaction.execute(ctx, time).completion
    check(table)


# ---------------------------------------------------------------------------------------- archiving


def test_instants_go_to_the_archive_as_far_as_the_data_tables_have(table: mainstem.Table) -> None:
    ctx = table.writer_context()
    metadata_compaction.run(ctx, if_due=False)
    first = active(table)
    (ours,) = [metadata_archiving.run(ctx)]
    assert ours.instants == 1 and ours.first == first[0], "all others are active on the data table"
    opened(table.path).archive()
    data = [i.requested for i in table.timeline() if i.is_completed]
    done = metadata_archiving.run(ctx)
    assert archived(table) == [time for time in first if time < data[0]]
    assert done is not None and done.instants == len(archived(table)) - 1
    assert active(table) == [time for time in first if time >= data[0]]
    check(table)
    commit(opened(table.path))
    check(table)
    assert table.validate_metadata().ok


def test_no_index_action_of_ours_stays_on_a_timeline_whose_younger_commits_are_archived(table) -> None:
    # Java would take the archived commits for pending ones, and put their log files on newer base files.
    table.create_index("column_stats", ["ts"])
    index = next(i for i in table.timeline() if i.action == "indexing")
    for _ in range(4):
        commit(opened(table.path), 2)
        metadata_compaction.run(table.writer_context(), if_due=False)
    assert opened(table.path).archive().last > index.requested
    now = opened(table.path)
    assert index.requested not in [i.requested for i in now.timeline()]
    assert not list(Path(table.path, paths.TIMELINE).glob(f"{index.requested}*"))
    assert [(i.name, i.state) for i in now.indexes()] == [("column_stats", "ready"), ("files", "ready")]
    assert now.validate_metadata().ok
    metadata_archiving.run(now.writer_context())
    assert now.validate_metadata().ok
    assert "column statistics" in str(now.scan(filter=pc.field("ts") > 10**9).explain())


def test_nothing_goes_before_the_first_compaction_or_past_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "t"
    properties = {"hoodie.metadata.enable": True, "hoodie.mainstem.exclusive": True}
    mainstem.create_table(path, SCHEMA, record_key="id", ordering="ts", buckets=2, properties=properties)
    table = opened(path)
    commit(table, 6)
    assert metadata_archiving.run(table.writer_context(), if_due=False) is None


def test_what_is_pending_on_the_data_table_stays_on_the_metadata_tables_timeline(table) -> None:
    instants = [i.requested for i in table.timeline()]
    undone(table, instants[7])
    opened(table.path).archive()
    metadata_compaction.run(table.writer_context(), if_due=False)
    metadata_archiving.run(table.writer_context(), if_due=False)
    assert archived(table) and max(archived(table)) < instants[7] <= max(active(table))
    age(table)
    assert [r.instant for r in opened(table.path).rollback_failed_writes()] == [instants[7]]
    check(table)


def test_a_metadata_table_that_was_dropped_holds_no_archiver_back_that_was_open_before(table) -> None:
    archiver = opened(table.path)
    archiver.writer_context()
    opened(table.path).drop_index("files")
    commit(opened(table.path), 5)
    archiver.archive()
    assert len([i for i in table.timeline() if i.action == "deltacommit"]) == 2


def test_instants_with_rows_in_an_index_that_is_being_built_stay(table, monkeypatch) -> None:
    """Java counts such a row only while its instant is on one of the two timelines, and no compaction takes
    it into a base file before the index is whole. The writer's instant is older than the index action."""
    crossing = [opened(table.path).begin()]
    crossing[0].write(pa.table({"id": [100], "ts": [9]}, SCHEMA))
    real = index_build._Build._write_bases

    def slowly(self: index_build._Build, *more: object) -> None:
        if crossing:
            crossing.pop().commit()
            for _ in range(3):
                commit(opened(table.path), 2)
                opened(table.path).run_services(["metadata", "archive"])
        real(self, *more)

    monkeypatch.setattr(index_build._Build, "_write_bases", slowly)
    built = opened(table.path).create_index("column_stats", ["ts"])
    storage = storage_at(table.path)
    shown = {i.requested for i in (*table.timeline(), *metadata(table).timeline.instants)}
    logs = map(paths.parse_log_name, storage.names(".hoodie/metadata/column_stats"))
    written = {log.instant for log in logs if log is not None}
    assert min(written) < built.action and written <= shown
    assert archived(table), "others went"
    assert table.validate_metadata().ok


# ------------------------------------------------------------------------------------------ crashes


def dying(table: mainstem.Table, work: Callable[[WriterContext], object], at: int) -> bool:
    """Do it in a process that dies at that call; whether it did."""
    ctx = table.writer_context()
    seams = replace(ctx.seams, storage=Mortal(ctx.seams.storage, at))
    publisher = Publisher(seams, InstantTimes(), fence_of(seams, None), skew=ClockSkew(0), exclusive=True)
    beats = replace_storage(ctx, seams.storage)
    try:
        work(replace(ctx, seams=seams, publisher=publisher, heartbeats=beats))
    except Dead:
        return True
    return False


@pytest.mark.parametrize("service", [metadata_cleaning, metadata_archiving], ids=["clean", "archive"])
def test_a_service_that_dies_anywhere_hinders_nobody_and_the_next_ends_it(table, tmp_path, service):
    opened(table.path).archive()
    at, died = -1, True
    while died:
        at += 2
        copy = opened(shutil.copytree(table.path, tmp_path / f"copy{at}"))
        died = dying(copy, service.run, at)
        check(copy)
        if at % 3 == 0:
            commit(copy)
            check(copy)
        for beat in Path(copy.path, paths.HEARTBEATS).glob("*"):
            os.utime(beat, (1_700_000_000, 1_700_000_000))
        list(metadata_round.run(opened(copy.path).writer_context()))
        check(copy)
        own = metadata(copy).timeline
        assert not own.pending
        assert len(bases(copy)) <= 3
        assert not set(archived(copy)) & {i.requested for i in own.completed}
        shutil.rmtree(copy.path)
    assert at > 12


def test_two_cleaners_of_one_plan_do_no_harm(table: mainstem.Table, monkeypatch) -> None:
    ctx = table.writer_context()
    time = metadata_cleaning.schedule(ctx)
    other = opened(table.path).writer_context()
    real, second = metadata_cleaning._complete, []

    def complete(given: WriterContext, *more: object) -> str | None:
        if not second:
            second.append(None)
            second[0] = metadata_cleaning.execute(other, time)
        return real(given, *more)

    monkeypatch.setattr(metadata_cleaning, "_complete", complete)
    Path(table.path, paths.heartbeat(time)).unlink(missing_ok=True)
    monkeypatch.setattr(metadata_cleaning, "claimed", _always)
    first = metadata_cleaning.execute(ctx, time)
    assert first.completion is None and second[0].completion
    assert sum(name.endswith(".clean") for name in own_timeline(table)) == 1
    check(table)


def _always(ctx, time, what):
    return nullcontext(True)
