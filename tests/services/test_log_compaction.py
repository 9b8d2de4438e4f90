"""Goal: a log compaction changes no answer, now or later, and hides nothing that a writer in flight adds.

Method: twin tables with the same history, one of them log-compacted in between; plans are executed
while other executors, compactions and rollbacks get in between; a plan that Java made is executed.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid, Unavailable, Unsupported
from mainstem.formats.log_file import BlockKind, Header, read_blocks
from mainstem.services import compaction, compaction_plan, log_compaction, log_compaction_plan
from mainstem.storage import paths
from mainstem.timeline.plans import CompactionOperation, encode_compaction_plan
from tests.golden_tables.continued import open_as_its_writers
from tests.golden_tables.tables import expectations
from tests.services.city_table import QUICK
from tests.storage.steps import before_naming, naming_verb, storage_at

SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("n", pa.int32()),
        ("value", pa.string()), ("_hoodie_is_deleted", pa.bool_()),
    ]
)  # fmt: skip
BESIDE_WRITERS = {"hoodie.mainstem.log.compaction.beside.writers": "true"}

pytestmark = pytest.mark.supports("Services", "log compaction")

MODES = {
    "event time": (["ts"], {}),
    "two ordering fields": (["ts", "n"], {}),
    "commit time": ([], {}),
    "partial, commit time": ([], {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}),
    "partial, event time": (["ts"], {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}),
    "parquet blocks": (["ts"], {"hoodie.logfile.data.block.format": "parquet"}),
}


def rows(keys, ts: int, value: str | None = "v", gone: bool = False) -> pa.Table:
    keys = list(keys)
    return pa.table(
        {
            "id": [f"k{k:02d}" for k in keys],
            "city": ["ab"[k % 2] for k in keys],
            "ts": [ts] * len(keys),
            "n": [k % 3 for k in keys],
            "value": [None if value is None else f"{value}{k}" for k in keys],
            "_hoodie_is_deleted": [gone] * len(keys),
        },
        schema=SCHEMA,
    )


def gone(keys, ts: int) -> pa.Table:
    """Rows that say they are deleted: deletes with an ordering value."""
    return rows(keys, ts, None, gone=True)


def make(path: Path, mode: str = "event time", **more: str) -> mainstem.Table:
    ordering, properties = MODES[mode]
    given = {k: v for k, v in properties.items() if "block.format" in k} | more
    mainstem.create_table(
        path, SCHEMA, record_key="id", ordering=ordering, partition_by="city", buckets=1,
        properties={**QUICK, **properties},
    )  # fmt: skip
    return mainstem.open_table(path, {**QUICK, **given})


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    table = make(tmp_path / "t")
    for number in range(3):
        table.upsert(rows(range(number, 8), number, f"w{number}-"))
    return table


def content(table: mainstem.Table, **options: str) -> pa.Table:
    return table.scan(**options).to_arrow().sort_by("_hoodie_record_key")


def values(table: mainstem.Table) -> list[dict]:
    return content(table, columns=SCHEMA.names + ["_hoodie_record_key"]).to_pylist()


def log_files(table: mainstem.Table) -> list[Path]:
    return sorted(Path(table.path).rglob("*.log.*"))


def aged(path: Path) -> None:
    old = time.time() - 3600
    os.utime(path, (old, old))


def every_answer(table: mainstem.Table, until: str) -> list[pa.Table]:
    done = [i for i in table.timeline() if i.completion and i.completion <= until]
    ranges = itertools.combinations(["000", *(i.completion for i in done)], 2)
    return [
        *(content(table, as_of=i.requested) for i in done[:-1]),
        *(content(table, as_of_completion=i.completion) for i in done),
        *(table.changes(after=a, until=b).to_arrow().sort_by("_hoodie_record_key") for a, b in ranges),
        *(table.changes(after=i.completion).to_arrow().sort_by("_hoodie_record_key") for i in done),
        *(table.changes(after=i.completion, deletes=True).to_arrow().sort_by("id") for i in done),
    ]


HISTORY = (
    lambda t: t.upsert(rows(range(10), 5)),
    lambda t: t.upsert(rows(range(2, 6), 3, "late")),
    lambda t: t.delete(rows([0, 1], 0).select(["id", "city"])),
    lambda t: t.upsert(gone([2, 3], 7)),
    lambda t: t.upsert(rows([1, 2], 4, "after the delete")),
    lambda t: t.upsert(rows(range(4, 8), 6, None)),
)
LATER = (
    lambda t: t.upsert(rows(range(12), 4, "late again")),
    lambda t: t.upsert(gone([5], 5)),
    lambda t: t.upsert(rows([3, 8], 7, "equal")),
    lambda t: t.delete(rows([9], 0).select(["id", "city"])),
    lambda t: t.upsert(rows([9, 6], 1, "revived")),
)


@pytest.mark.parametrize("mode", MODES)
def test_later_rows_meet_what_they_would_have_met(tmp_path, mode):
    merged, twin = make(tmp_path / "merged", mode), make(tmp_path / "twin", mode)
    for number, write in enumerate(HISTORY):
        for table in (merged, twin):
            write(table)
            if mode == "event time" and number == 0:
                table.compact()
    (done,) = merged.log_compact()
    assert done.completion and done.log_files > len(done.files) == 2
    for number, write in enumerate(LATER):
        for table in (merged, twin):
            write(table)
        assert values(merged) == values(twin)
        if number == 2:
            assert len(merged.log_compact()) == 1  # merged blocks are merged again
    for table in (merged, twin):
        table.compact()
    assert values(merged) == values(twin)


@pytest.mark.parametrize("mode", ["event time", "partial, commit time"])
def test_no_answer_changes(tmp_path, mode):
    table = make(tmp_path / "t", mode)
    for write in HISTORY:
        write(table)
    before, until = content(table), max(i.completion for i in table.timeline())
    answers = every_answer(table, until)
    table.log_compact()
    assert content(table).equals(before)
    assert all(a.equals(b) for a, b in zip(every_answer(table, until), answers, strict=True))


def test_a_merged_file_says_what_it_stands_for_and_keeps_deletes_with_their_ordering_values(tmp_path):
    table = make(tmp_path / "t")
    instants = [
        table.upsert(rows([0, 2], 1)).instant,
        table.upsert(gone([2], 9)).instant,
        table.delete(rows([4], 0).select(["id", "city"])).instant,
    ]
    (done,) = table.log_compact()
    (path,) = done.files
    blocks = list(read_blocks(memoryview((Path(table.path) / path).read_bytes()), path=path))
    assert [b.kind for b in blocks] == [BlockKind.AVRO_DATA, BlockKind.DELETE, BlockKind.DELETE]
    assert {b.headers[Header.COMPACTED_BLOCK_TIMES] for b in blocks} == {",".join(instants)}
    assert blocks[0].table()["_hoodie_commit_time"].to_pylist() == instants[:1]
    deleted = [block.deletes().to_pylist()[0] for block in blocks[1:]]
    assert [(d["record_key"], d["ordering"], d["ordering_is_default"]) for d in deleted] == [
        ("k04", None, True), ("k02", 9, False),
    ]  # fmt: skip
    assert (done.rows, done.deletes) == (1, 2)
    assert table.log_compact() == [], "three blocks, but of one log compaction"
    assert [i.action for i in table.timeline()] == ["deltacommit"] * 4


def test_while_a_write_is_in_flight_nothing_is_planned(table):
    with table.begin() as early:
        with pytest.raises(Unavailable, match=f"deltacommit {early.instant} is in flight"):
            table.log_compact()
        assert table.log_compact(if_due=True) == []
        early.write(rows([1], 9))
        early.commit()
    assert len(table.log_compact()) == 1


@pytest.mark.parametrize("mode", ["event time", "commit time"])
def test_beside_writers_what_is_older_than_the_oldest_write_in_flight_is_merged(tmp_path, mode):
    table = make(tmp_path / "t", mode, **BESIDE_WRITERS)
    for number in range(2):
        table.upsert(rows(range(8), number, f"before{number}-"))
    with table.begin() as early, table.begin() as other:
        table.upsert(rows([3, 5], 5, "newer"))
        before = content(table)
        (done,) = table.log_compact()
        assert done.log_files == 4, "the newer write is left alone"
        assert content(table).equals(before)
        early.write(rows([2, 3], 5, "early"))
        early.commit()
        other.abort()
    found = {row["id"]: row["value"] for row in values(table)}
    assert (found["k02"], found["k03"], found["k04"]) == ("early2", "newer3", "before1-4")
    before = values(table)
    assert len(table.log_compact()) == 1
    assert values(table) == before


def test_merged_blocks_are_merged_again_while_a_write_older_than_the_merge_is_in_flight(tmp_path):
    """Two merged blocks of which neither holds the other, but both some sources, would be told apart by
    their order, which Java takes otherwise than we: a row before a delete() would come back."""
    table = make(tmp_path / "t", "event time", **BESIDE_WRITERS)
    table.upsert(rows([0], 9, "before the delete "))
    table.upsert(rows([2], 1))
    deleting, after, last = table.begin("delete"), table.begin(), table.begin()
    (first,) = table.log_compact()
    assert table.log_compact() == [], "nothing new is older than the writes in flight"
    deleting.write(rows([0], 0).select(["id", "city"]))
    deleting.commit()
    after.write(rows([0], 1, "after the delete "))
    after.commit()
    (second,) = table.log_compact()
    (block, *_) = read_blocks(memoryview((Path(table.path) / second.files[0]).read_bytes()), path="")
    listed = block.headers[Header.COMPACTED_BLOCK_TIMES].split(",")
    assert listed == [first.requested, deleting.instant, after.instant]
    last.write(rows([2], 2, "last "))
    last.commit()
    assert {r["id"]: r["value"] for r in values(table)} == {"k00": "after the delete 0", "k02": "last 2"}
    table.log_compact()
    assert {r["id"]: r["value"] for r in values(table)} == {"k00": "after the delete 0", "k02": "last 2"}


def test_a_dead_writer_is_rolled_back_first(table):
    dead = table.begin()
    dead.write(rows([1], 9))
    table.writer_context().heartbeats.stop(dead.instant)
    assert len(table.log_compact()) == 1


def test_hudis_threshold_says_which_file_groups_are_due(tmp_path):
    table = make(tmp_path / "t", **{"hoodie.log.compaction.blocks.threshold": "3"})
    table.upsert(rows(range(4), 1))
    table.upsert(rows([0], 2))
    assert table.log_compact(if_due=True) == []
    table.upsert(rows([0], 3))
    (done,) = table.log_compact(if_due=True)
    assert [Path(f).parent.name for f in done.files] == ["a"]
    with pytest.raises(Invalid, match=r"hoodie.log.compaction.blocks.threshold='0'"):
        mainstem.open_table(table.path, {"hoodie.log.compaction.blocks.threshold": "0"}).log_compact()


def test_partial_blocks_are_left_to_compactions(tmp_path):
    table = make(tmp_path / "t", "partial, commit time", **{"hoodie.mainstem.write.partial.blocks": "true"})
    table.upsert(rows(range(4), 1))
    with pytest.warns(UserWarning, match="IS_PARTIAL"):
        table.update_columns(rows([0], 0, "one column").select(["id", "city", "value"]))
    table.upsert(rows([1], 2))
    with patch.object(log_compaction_plan.BlockCounts, "of", lambda *_: 2):
        planned = table.schedule_log_compaction()  # as Java does
    assert "IS_PARTIAL" in table.run_log_compaction(planned)[0].given_up
    (done,) = table.log_compact()
    assert [Path(f).parent.name for f in done.files] == ["b"]


def test_compactions_and_log_compactions_leave_each_others_file_groups_alone(table):
    planned = table.schedule_log_compaction()
    assert table.schedule_compaction() is None
    assert table.run_log_compaction(planned)[0].completion
    compaction = table.schedule_compaction()
    assert table.schedule_log_compaction() is None
    table.run_compaction(compaction)


def plan_as_java_does(table: mainstem.Table, action: str) -> str:
    """A compaction planned without regard to pending log compactions."""
    with patch.object(compaction_plan, "taken_groups", lambda state: set()):
        return table.schedule_compaction() or action


def test_a_plan_whose_logs_a_compaction_took_is_taken_back(table):
    before = values(table)
    time_, executed = table.schedule_log_compaction(), []

    def compacted_meanwhile(target):
        if time_ in target and ".log." in target and not executed:
            executed.append(plan_as_java_does(table, "compaction"))

    with before_naming(compacted_meanwhile):
        (done,) = table.run_log_compaction()
    assert done.completion is None and "a compaction of" in done.given_up
    assert "taken back" in done.describe()
    assert not [f for f in log_files(table) if time_ in f.name]
    assert not [i for i in table.timeline() if i.requested == time_]
    assert [i.action for i in table.timeline() if i.completion][-1] == "rollback"
    table.run_compaction(executed[0])
    assert values(table) == before


def test_a_plan_made_over_a_write_in_flight_waits_for_it_and_is_taken_back(tmp_path):
    """Java plans so."""
    table = make(tmp_path / "t", "commit time")
    table.upsert(rows([0], 1, "oldest"))
    with table.begin() as early:
        table.upsert(rows([0], 1, "newest"))
        with patch.object(log_compaction_plan, "writes_in_flight", lambda *_: []), patch.object(
            log_compaction, "writes_in_flight", lambda *_: []
        ):
            planned = table.schedule_log_compaction()
        with pytest.raises(Unavailable, match=f"{early.instant} is in flight"):
            table.run_log_compaction(planned)
        early.write(rows([0, 2], 1, "early"))
        early.commit()
    (done,) = table.run_log_compaction(planned)
    assert "belongs before or between the logs" in done.given_up
    assert [row["value"] for row in values(table)] == ["newest0", "early2"]


def test_a_merged_block_whose_sources_went_into_the_base_file_counts_for_nothing(tmp_path):
    """Java completes a log compaction although a compaction took its sources meanwhile."""
    table = make(tmp_path / "t", "commit time")
    table.upsert(rows([0], 1, "first"))
    table.upsert(rows([0], 1, "second"))
    time_ = table.schedule_log_compaction()
    table.upsert(rows([0], 1, "third"))
    plan_as_java_does(table, "compaction")
    with patch.object(log_compaction, "broken", lambda *_: None):
        assert table.run_log_compaction(time_)[0].completion
    assert [row["value"] for row in values(table)] == ["third0"]
    table.run_compaction()
    assert [row["value"] for row in values(table)] == ["third0"]


@pytest.mark.parametrize("step", ["upload", "the final name", "settle"])
def test_an_execution_that_failed_is_done_again_from_the_same_plan(table, step):
    before = content(table)
    planned = table.schedule_log_compaction()
    store = storage_at(table.path)
    verb = naming_verb(store) if step == "the final name" else step
    with patch.object(type(store), verb, side_effect=OSError(28, "no space")), pytest.raises(Unavailable):
        table.run_log_compaction()
    assert content(table).equals(before)
    (done,) = table.run_log_compaction()
    assert done.requested == planned and done.completion
    assert content(table).equals(before)


def interrupted(time_: str, meanwhile) -> AbstractContextManager:
    """Before the first merged file gets its name, something else happens once."""
    done = []

    def stopped(target):
        if time_ in target and ".log." in target and not done:
            done.append(target)
            meanwhile()

    return before_naming(stopped)


@pytest.mark.disk("on a store a put under way cannot be called off")
def test_an_executor_that_wakes_up_after_another_one_completed_changes_nothing(table):
    before = content(table)
    time_ = table.schedule_log_compaction()
    other = mainstem.open_table(table.path, QUICK)
    states = []

    def overtaken() -> None:
        aged(Path(table.path) / paths.heartbeat(time_))
        (done,) = other.run_log_compaction()
        assert done.completion
        states.append(sorted(map(str, Path(table.path).rglob("*"))))

    with interrupted(time_, overtaken):
        try:
            (late,) = table.run_log_compaction()
            assert not late.files
        except Unavailable as error:
            assert "another executor" in str(error)
    assert [s for s in sorted(map(str, Path(table.path).rglob("*"))) if ".log." in s] == [
        s for s in states[0] if ".log." in s
    ]
    assert content(table).equals(before)


def test_an_executor_that_wakes_up_after_the_plan_was_taken_back_leaves_no_file(table):
    before = content(table)
    time_ = table.schedule_log_compaction()
    ctx = mainstem.open_table(table.path, QUICK).writer_context()

    def taken_back() -> None:
        instant = next(i for i in table.timeline() if i.requested == time_)
        log_compaction.roll_back(ctx, instant, own=True)  # as Java does: private files stay

    with interrupted(time_, taken_back), pytest.raises(Unavailable, match="ended by another executor"):
        table.run_log_compaction()
    assert not [f for f in log_files(table) if time_ in f.name]
    assert content(table).equals(before)


@pytest.mark.parametrize("service", [log_compaction, compaction], ids=["log compaction", "compaction"])
def test_a_plan_that_another_process_executes_at_once_is_no_error(table, service):
    schedule, other = service.schedule, mainstem.open_table(table.path, QUICK)

    def executed_by_another(ctx, **given):
        time_ = schedule(ctx, **given)
        service.execute(other.writer_context(), time_)
        return time_

    with patch.object(service, "schedule", executed_by_another):
        (done,) = table.log_compact() if service is log_compaction else table.compact()
    assert done.completion and not done.files


def test_a_plan_that_a_living_executor_has_is_left_to_it(table):
    time_ = table.schedule_log_compaction()
    beat = Path(table.path) / paths.heartbeat(time_)
    beat.parent.mkdir(exist_ok=True)
    beat.touch()
    assert table.run_log_compaction() == []
    aged(beat)
    assert table.run_log_compaction()[0].completion


def test_what_a_dead_java_executor_left_is_removed_and_what_a_living_one_makes_is_not(table):
    time_ = table.schedule_log_compaction()
    source = log_files(table)[0]
    file_id = paths.parse_log_name(source.name).file_id
    left = source.with_name(paths.log_name(file_id, time_, 1, "3-14-15"))
    left.write_bytes(source.read_bytes())
    with pytest.raises(Unavailable, match="another engine seems to execute"):
        table.run_log_compaction()
    aged(left)
    assert table.run_log_compaction()[0].completion
    assert not left.exists()


def test_a_plan_that_names_files_that_are_not_there_is_refused_and_deletes_nothing(table):
    before = content(table), sorted(f.name for f in log_files(table))
    time_ = table.schedule_log_compaction()
    log = paths.parse_log_name(log_files(table)[0].name)
    file = Path(table.path) / paths.timeline_file(f"{time_}.logcompaction.requested")
    other = paths.log_name(log.file_id, "20200101000000000", 1, "0-0-0")
    group = CompactionOperation("a", log.file_id, log.instant, None, (log.name, other))
    file.write_bytes(encode_compaction_plan([group], [{}], "logcompaction"))
    with pytest.raises(CorruptTable, match=f"names {other}"):
        table.run_log_compaction()
    assert (content(table), sorted(f.name for f in log_files(table))) == before


def test_a_log_compaction_that_is_not_planned_cannot_be_executed(table):
    with pytest.raises(Invalid, match="no log compaction 20200101000000000 is planned"):
        table.run_log_compaction("20200101000000000")


def test_tables_merged_by_a_function_of_their_own_are_refused(tmp_path):
    strategy = "7d2cbd0e-0000-4000-8000-00000000c0de"
    mainstem.register_merger(strategy, lambda older, newer: newer)
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", buckets=1, partition_by="city",
        properties={
            **QUICK, "hoodie.record.merge.mode": "CUSTOM", "hoodie.record.merge.strategy.id": strategy,
        },
    )  # fmt: skip
    table.upsert(rows([0], 1))
    table.upsert(rows([0], 2))
    with pytest.raises(Unsupported, match="compact the table instead"):
        table.log_compact()


def test_a_plan_that_java_made_is_executed_and_gives_the_rows_that_java_gives(tmp_path):
    table = open_as_its_writers("log_compaction.scheduled", tmp_path)
    before = content(table)
    (done,) = table.run_log_compaction()
    assert done.requested == "20261120092915181" and done.completion
    assert content(table).equals(before)
    java = expectations("log_compaction.done")
    merged = [i for i in java["file_slices"] if i["latest"]]
    ours = [s for s in table.file_slices() if s.latest]
    assert [len(s.log_files) for s in ours] == [len(s["logFiles"]) for s in merged]
    table.compact()
    assert content(table).drop_columns(["_hoodie_file_name"]).equals(
        before.drop_columns(["_hoodie_file_name"])
    )


def test_the_command_merges_and_says_what_it_did(table, capsys):
    from mainstem.cli.main import main

    assert main(["log-compact", table.path, "--json"]) == 0
    (shown,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert shown["completion"] and shown["log_files"] > shown["files"]
    assert main(["log-compact", table.path]) == 0
    assert "nothing to merge" in capsys.readouterr().out
