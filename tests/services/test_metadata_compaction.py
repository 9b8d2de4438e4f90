"""Goal: compactions of the metadata table hold what Java's would, keep out what may yet be rolled back, and
are right whoever executes them, how often, and wherever he dies.

Method: every compacted base file of Java's golden tables is made again from its plan and compared entry by
entry; tables of ours are compacted with instants that are completed on one timeline only, by executors that
die at every call that changes something, that stand still and wake up, and while an index is dropped. After
each, what the metadata table lists must be what lies in the folders.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.api.real_seams import fence_of
from mainstem.errors import CorruptTable, Invalid, Unavailable
from mainstem.formats.hfile import HFile, open_hfile
from mainstem.layout.properties import load_config
from mainstem.metadata.metadata_compaction_plan import MetadataCompactionOptions, before, compacted, log_rows
from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.metadata.records.flat_rows import decode
from mainstem.publish.publisher import Publisher
from mainstem.readers.planning.table_state import TableState
from mainstem.services.metadata import metadata_compaction
from mainstem.services.metadata.metadata_round import MetadataDue
from mainstem.storage import paths
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.timeline.plans import load_compaction_plan
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.instant_times import InstantTimes
from mainstem.writers.context import WriterContext
from tests.golden_tables.tables import unpack
from tests.storage.steps import Dead, Mortal, before_naming, entered, storage_at

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
EVERY_2 = {"hoodie.metadata.compact.max.delta.commits": 2}
TIMELINE = ".hoodie/metadata/.hoodie/timeline"


def opened(path: Path | str, **options: object) -> mainstem.Table:
    quick = {"hoodie.write.lock.wait_time_ms": "2000", "hoodie.mainstem.exclusive": "true"}
    return mainstem.open_table(path, {**quick, **{k.replace("__", "."): str(v) for k, v in options.items()}})


def commit(table: mainstem.Table, times: int = 1) -> None:
    for _ in range(times):
        table.upsert(pa.table({"id": list(range(8)), "ts": [len(table.timeline())] * 8}, SCHEMA))


def metadata(table: mainstem.Table) -> MetadataTable:
    storage = storage_at(table.path)
    found = TableState.load(storage, load_config(storage)).metadata_table
    assert found is not None
    return found


def check(table: mainstem.Table) -> None:
    """``files`` lists what lies in the folder."""
    listed = metadata(table).files()
    (names,) = listed.values()
    there = {p.name: p.stat().st_size for p in Path(table.path).iterdir() if paths.file_id_of(p.name)}
    assert names == there


def own_timeline(table: mainstem.Table) -> list[str]:
    return sorted(name for name in storage_at(table.path).names(TIMELINE) if name[0].isdigit())


def compactions(table: mainstem.Table) -> list[str]:
    return [name for name in own_timeline(table) if name.endswith(".commit")]


def run(table: mainstem.Table, **how: object) -> list:
    return metadata_compaction.run(table.writer_context(), **how)


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    """Three commits, not compacted."""
    path = tmp_path / "t"
    mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={"hoodie.metadata.enable": True, "hoodie.mainstem.exclusive": True},
    )  # fmt: skip
    made = opened(path)
    commit(made, 3)
    return made


# ---------------------------------------------------------------------------------- Java's own


@pytest.mark.parametrize(
    "name",
    [
        "mdt_all", "mdt_partitioned_rli", "clean_mor_mdt", "flink_partial_mdt_compact", "cow_basic_v8",
        "v10_basic_mdt",
    ],
)  # fmt: skip
def test_base_files_that_java_compacted_are_made_again_from_their_plans(name: str, tmp_path: Path) -> None:
    storage = storage_at(unpack(name, tmp_path))
    found = TableState.load(storage, load_config(storage)).metadata_table
    assert found is not None
    kinds = set()
    for made, operation in _java_made(found):
        theirs = open_hfile(found.folder.view(made), path=made)
        data, merged = compacted(found, operation, made.rpartition("/")[2], 0)
        assert merged == log_rows(found, operation)
        assert _content(found, operation.partition, open_hfile(data, path="ours")) == _content(
            found, operation.partition, theirs
        )
        kinds.add(operation.partition)
    assert kinds >= {"files"}


def _java_made(found: MetadataTable) -> Iterator[tuple]:
    """(base file, its operation) where all the files are still there."""
    for instant in found.timeline.completed:
        if instant.action != "commit":
            continue
        path = paths.timeline_file(instant.file_name)
        stats = decode_commit(found.folder.read(path, max_bytes=1 << 26), path=path).stats
        made = {s["fileId"]: s["path"] for some in stats.values() for s in some}
        for operation in load_compaction_plan(found.folder, instant.requested):
            files = [*operation.log_files, *filter(None, [operation.base_file])]
            there = set(found.folder.names(operation.partition))
            if operation.file_id in made and there.issuperset(files):
                yield made[operation.file_id], operation


def _content(found: MetadataTable, partition: str, file: HFile) -> object:
    """Keys and values to the byte; of ``files`` the decoded rows, as their names have no order."""
    keys, values = file.rows()
    if found.content(partition) != Content.FILES:
        return keys.to_pylist(), values.to_pylist(), file.schema_text
    rows = decode(Content.FILES, keys, values, file.schema_text)
    return sorted(map(repr, rows.to_pylist())), list(map(len, values.to_pylist())), file.schema_text


# --------------------------------------------------------------------------------------- ours


@pytest.mark.supports("Services", "metadata table: compaction")
def test_after_ten_delta_commits_the_next_commit_compacts_the_metadata_table(table: mainstem.Table) -> None:
    commit(table, 5)
    assert not any(name.endswith(".commit") for name in own_timeline(table))
    commit(table)  # with that of the initialisation the tenth
    (done,) = [name for name in own_timeline(table) if name.endswith(".commit")]
    (found,) = metadata(table).slices("files")
    assert (found.base_instant, found.log_files) == (done.partition("_")[0], ())
    commit(table, 2)
    check(table)
    assert len(metadata(table).slices("files")[0].log_files) == 2


def test_plan_and_commit_are_as_java_writes_them(table: mainstem.Table, tmp_path: Path) -> None:
    (done,) = run(opened(table.path, **EVERY_2))
    own = metadata(table)
    names = [name for name in own_timeline(table) if name.startswith(done.requested)]
    assert names == [
        f"{done.requested}.compaction.inflight",
        f"{done.requested}.compaction.requested",
        f"{done.requested}_{done.completion}.commit",
    ]
    (operation,) = load_compaction_plan(own.folder, done.requested)
    assert operation.base_file and operation.base_instant == "00000000000000000"
    assert [log.rpartition(".log.")[0][-17:] for log in operation.log_files] == [
        "00000000000000000", *sorted(i.requested for i in table.timeline() if i.action == "deltacommit")
    ]  # fmt: skip
    path = paths.timeline_file(names[2])
    said = decode_commit(own.folder.read(path, max_bytes=1 << 20), path=path)
    assert (said.operation, said.compacted, said.ours) == ("COMPACT", True, True)
    assert said.extra["schema"].startswith('{"type":"record","name":"HoodieMetadataRecord"')
    assert said.files() == list(done.files) == [f"files/{operation.file_id}_0-0-0_{done.requested}.hfile"]
    (stat,) = said.stats["files"]
    assert (stat["totalLogFilesCompacted"], stat["prevBaseFile"]) == (4, operation.base_file)
    assert (stat["totalLogRecords"], stat["numWrites"]) == (6, done.rows)
    assert "4 log files merged into 1 base files" in done.describe()
    check(table)


def test_nothing_is_done_twice_or_without_need(table: mainstem.Table) -> None:
    assert run(table) == []
    (done,) = run(table, if_due=False)
    assert run(table, if_due=False) == []
    ctx = table.writer_context()
    assert metadata_compaction.execute(ctx, done.requested).completion == done.completion
    assert metadata_compaction.execute(ctx, "20200101000000000").completion is None
    with pytest.raises(Invalid, match=r"max\.delta\.commits"):
        opened(table.path, hoodie__metadata__compact__max__delta__commits=0)


def test_a_table_without_metadata_has_nothing_to_compact(tmp_path: Path) -> None:
    table = mainstem.create_table(tmp_path / "plain", SCHEMA, record_key="id", buckets=2)
    assert run(table, if_due=False) == []
    (done,) = table.run_services("metadata")
    assert done.describe() == "metadata: nothing to do"


def test_the_data_table_is_archived_up_to_the_metadata_tables_compaction(table: mainstem.Table) -> None:
    options = {"hoodie__keep__min__commits": 2, "hoodie__keep__max__commits": 3,
               "hoodie__clean__commits__retained": 1}  # fmt: skip
    commit(table, 4)
    some = opened(table.path, **options)
    some.archive()
    assert len(some.timeline()) == 7, "nothing goes before the first compaction"
    run(table, if_due=False)
    commit(table)
    some.archive()
    assert len(some.timeline()) < 7
    check(table)


@pytest.mark.parametrize("trigger", ["TIME_ELAPSED", "NUM_OR_TIME", "NUM_AND_TIME"])
def test_triggers_by_age_count_from_the_first_commit_that_has_a_time(table, trigger) -> None:
    options = {
        "hoodie__metadata__compact__trigger__strategy": trigger,
        "hoodie__metadata__compact__max__delta__commits": 2,
        "hoodie__metadata__compact__max__delta__seconds": 10**6,
    }
    ctx = opened(table.path, **options).writer_context()
    due = MetadataDue(ctx).find(ctx.timeline())
    assert due == (trigger == "NUM_OR_TIME")
    assert MetadataCompactionOptions.from_properties({}).delta_commits == 10


# ------------------------------------------------------------------ what may yet be rolled back


def undone(table: mainstem.Table, instant: str) -> None:
    """As if its writer had died between the metadata table's completed file and the data table's."""
    (done,) = Path(table.path, paths.TIMELINE).glob(f"{instant}_*.deltacommit")
    done.unlink()


def test_what_is_completed_on_the_metadata_table_only_stays_out_of_base_files(table: mainstem.Table) -> None:
    instants = [i.requested for i in table.timeline()]
    undone(table, instants[1])
    (done,) = run(table, if_due=False)
    assert done.requested == before(instants[1]) and done.log_files == 2
    file = Path(table.path, ".hoodie/metadata", done.files[0])
    base = open_hfile(file.read_bytes(), path="f").rows()[1]
    for at, instant in enumerate(instants):
        assert any(instant.encode() in value for value in base.to_pylist()) == (at == 0)
    shown = metadata(table).files()
    assert not any(instants[1] in name for names in shown.values() for name in names)
    assert run(table, if_due=False) == [], "its own time is taken, and there is no other"
    # Its writer rolls it back, and then everything can be compacted.
    age(table)
    assert [r.instant for r in opened(table.path).rollback_failed_writes()] == [instants[1]]
    check(table)
    (again,) = run(table, if_due=False)
    assert again.requested > instants[2]
    check(table)


def age(table: mainstem.Table) -> None:
    for file in Path(table.path, paths.TIMELINE).iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000))


def test_a_time_in_the_past_that_somebody_has_is_not_given_again(table: mainstem.Table) -> None:
    instants = [i.requested for i in table.timeline()]
    undone(table, instants[1])
    Path(table.path, TIMELINE, f"{before(instants[1])}.rollback.requested").touch()
    assert run(table, if_due=False) == []


# ------------------------------------------------------------------------------- crashes and races


def dying(table: mainstem.Table, at: int, after: bool) -> bool:
    """Compact in a process that dies at that call; whether it did."""
    ctx = opened(table.path).writer_context()
    seams = replace(ctx.seams, storage=Mortal(ctx.seams.storage, at, after=after))
    publisher = Publisher(seams, InstantTimes(), fence_of(seams, None), skew=ClockSkew(0), exclusive=True)
    heartbeats = replace_storage(ctx, seams.storage)
    try:
        metadata_compaction.run(
            replace(ctx, seams=seams, publisher=publisher, heartbeats=heartbeats), if_due=False
        )
    except Dead:
        return True
    return False


def replace_storage(ctx: WriterContext, storage: object):
    beats = ctx.heartbeats
    return type(beats)(storage, ctx.seams.clock, 60, 2)


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after it"])
def test_a_compaction_that_dies_anywhere_hinders_nobody_and_the_next_ends_it(table, tmp_path, after) -> None:
    at, died = 0, True
    while died:
        at += 1
        copy = opened(shutil.copytree(table.path, tmp_path / f"copy{at}"))
        died = dying(copy, at, after)
        check(copy)
        entered(copy)
        if at % 4 == 1:
            commit(opened(copy.path))
            check(copy)
        for beat in Path(copy.path, paths.HEARTBEATS).glob("*"):
            os.utime(beat, (1_700_000_000, 1_700_000_000))
        run(opened(copy.path), if_due=False)
        check(copy)
        own = metadata(copy)
        assert not [i for i in own.timeline.pending if i.action == "compaction"]
        assert own.slices("files")[0].base_instant > "2"
        private = storage_at(copy.path).names(paths.PREPARED)
        assert not [name for name in private if not name.startswith("compaction-")]
        shutil.rmtree(copy.path)
    assert at > 15


def planned(table: mainstem.Table) -> tuple[WriterContext, str]:
    ctx = table.writer_context()
    time = metadata_compaction.schedule(ctx, if_due=False)
    assert time is not None
    return ctx, time


def test_commits_go_on_under_a_plan_that_nobody_executes_and_are_not_lost_when_somebody_does(table) -> None:
    ctx, time = planned(table)
    commit(opened(table.path, hoodie__table__services__enabled=False), 2)
    check(table)
    assert metadata_compaction.schedule(ctx, if_due=False) is None, "one plan at a time"
    done = metadata_compaction.execute(ctx, time)
    assert done.log_files == 4
    check(table)
    assert len(metadata(table).slices("files")[0].log_files) == 2


def test_two_executors_make_one_base_file_and_one_commit(table, monkeypatch) -> None:
    """The second goes through while the first has made its private file and looked at the plan."""
    ctx, time = planned(table)
    other = opened(table.path).writer_context()
    monkeypatch.setattr(metadata_compaction, "claimed", _always)
    second = []

    def overtaken(target: str) -> None:
        if target.endswith(".hfile") and not second:
            second.append(None)
            second[0] = metadata_compaction.execute(other, time)

    # A store keeps private files in the process, where nobody removes them.
    swept = not has_swaps(ctx.seams.storage)
    ended = pytest.raises(Unavailable, match="ended by another executor") if swept else nullcontext()
    with before_naming(overtaken), ended:
        metadata_compaction.execute(ctx, time)
    assert second[0].completion
    assert sum(name.endswith(".commit") for name in own_timeline(table)) == 1
    assert len(list(Path(table.path, ".hoodie/metadata/files").glob(f"*{time}.hfile"))) == 1
    check(table)


def _always(ctx, time, what):
    return nullcontext(True)


def test_a_plan_that_a_living_executor_has_is_left_to_it(table) -> None:
    ctx, time = planned(table)
    storage_at(table.path).put(paths.heartbeat(time), b"", durable=False)
    assert metadata_compaction.execute(ctx, time) is None


def test_a_fresh_plan_of_another_engine_is_left_alone_until_it_rests(table) -> None:
    ctx, time = planned(table)
    plan = Path(table.path, TIMELINE, f"{time}.compaction.requested")
    plan.write_bytes(plan.read_bytes().replace(b"mainstem.writer", b"somebody.writer"))
    assert metadata_compaction.execute(ctx, time) is None
    os.utime(plan, (1_700_000_000, 1_700_000_000))
    assert metadata_compaction.execute(ctx, time).completion
    check(table)


def test_another_engines_attempt_at_the_plan_is_waited_for_and_then_removed(table) -> None:
    ctx, time = planned(table)
    theirs = Path(table.path, f".hoodie/metadata/files/files-0000-0_9-9-9_{time}.hfile")
    theirs.write_bytes(b"half")
    with pytest.raises(Unavailable, match="another engine"):
        metadata_compaction.execute(ctx, time)
    os.utime(theirs, (1_700_000_000, 1_700_000_000))
    assert metadata_compaction.execute(ctx, time).completion
    assert not theirs.exists()
    check(table)


def test_a_plan_whose_files_are_damaged_or_gone_in_part_is_an_error_and_nothing_is_done(table) -> None:
    ctx, time = planned(table)
    (operation,) = load_compaction_plan(metadata(table).folder, time)
    log = Path(table.path, ".hoodie/metadata/files", operation.log_files[1])
    content = log.read_bytes()
    log.write_bytes(content[:-30])
    with pytest.raises(CorruptTable, match="cut off"):
        metadata_compaction.execute(ctx, time)
    log.unlink()
    with pytest.raises(CorruptTable, match="does not exist"):
        metadata_compaction.execute(ctx, time)
    log.write_bytes(content)
    assert metadata_compaction.execute(ctx, time).completion
    check(table)


def test_an_operation_whose_index_was_dropped_is_void_and_leaves_no_base_file(table, monkeypatch) -> None:
    """The executor has linked its base file when the index goes; a new one would have the same file ids."""
    ctx, time = planned(table)
    (operation,) = load_compaction_plan(metadata(table).folder, time)
    folder = Path(table.path, ".hoodie/metadata/files")
    real = metadata_compaction._Execution.complete

    def complete(self, stats):
        for name in (*operation.log_files, operation.base_file):
            (folder / name).unlink()
        return real(self, stats)

    monkeypatch.setattr(metadata_compaction._Execution, "complete", complete)
    with pytest.raises(Unavailable, match="dropped while it ran"):
        metadata_compaction.execute(ctx, time)
    assert list(folder.glob(f"*{time}.hfile"))
    monkeypatch.setattr(metadata_compaction._Execution, "complete", real)
    done = metadata_compaction.execute(ctx, time)
    assert done.completion and done.files == ()
    assert not list(folder.glob(f"*{time}.hfile"))


def test_a_writer_that_was_open_before_the_metadata_table_was_made_compacts_it(tmp_path: Path) -> None:
    properties = {"hoodie.mainstem.exclusive": True}
    mainstem.create_table(tmp_path, SCHEMA, record_key="id", ordering="ts", buckets=2, properties=properties)
    for options in ({}, {"hoodie__clean__automatic": "true", "hoodie__clean__async": "false"}):
        writer = opened(tmp_path, **{"hoodie__metadata__compact__max__delta__commits": 3, **options})
        commit(writer)
        before = compactions(writer)
        opened(tmp_path).create_index("files")
        commit(writer, 5)
        assert len(compactions(writer)) > len(before)
        opened(tmp_path).drop_index("files")
    commit(writer, 5)
