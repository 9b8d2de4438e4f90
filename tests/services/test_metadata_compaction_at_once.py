"""Goal: where other engines may write, nobody ever meets a pending plan of the metadata table's compaction.

A Java job that begins under one fails at all its commits (Hudi 1.2.0). Method: another writer looks and
commits while the new files are made; the process dies at any call; two rounds run at once.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import mainstem
from mainstem.api.real_seams import fence_of
from mainstem.errors import CorruptTable
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.publish.publisher import Publisher
from mainstem.services.metadata import metadata_compaction
from mainstem.services.metadata import metadata_compaction_at_once as at_once
from mainstem.storage import paths
from mainstem.timeline.active import load_timeline
from mainstem.timeline.compaction_trigger import pending
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.instant_times import InstantTimes
from tests.services.test_metadata_compaction import (
    SCHEMA,
    check,
    commit,
    compactions,
    metadata,
    opened,
    own_timeline,
    replace_storage,
    run,
)
from tests.storage.steps import Dead, Mortal, entered, storage_at


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    """Three commits, not compacted; another engine was seen, and the clock wait left out all the same."""
    path = tmp_path / "t"
    mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={"hoodie.metadata.enable": True, "hoodie.mainstem.exclusive": True},
    )  # fmt: skip
    made = opened(path)
    commit(made, 3)
    fence_of(made.opened.seams, made.opened.identity).note_foreign("somebody's")
    return again(path)


def again(path: Path | str, **options: object) -> mainstem.Table:
    return opened(path, hoodie__time__generator__max_expected_clock_skew_ms=1, **options)


def planned(table: mainstem.Table) -> list[str]:
    return pending(load_timeline(storage_at(table.path), paths.METADATA_TIMELINE))


def watched(monkeypatch: pytest.MonkeyPatch, then) -> None:
    """``then`` runs once, while a new base file is made."""
    real, waiting = at_once.compacted, [then]

    def slowly(*given):
        if waiting:
            waiting.pop()()
        return real(*given)

    monkeypatch.setattr(at_once, "compacted", slowly)


def test_whether_a_plan_is_seen_depends_on_who_may_write(table, tmp_path) -> None:
    assert table.writer_context().others_may_write()
    path = tmp_path / "shared"
    shared = mainstem.create_table(path, SCHEMA, record_key="id", ordering="ts", buckets=2)
    assert shared.writer_context().others_may_write()
    path = tmp_path / "alone"
    alone = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={"hoodie.mainstem.exclusive": True},
    )  # fmt: skip
    assert not alone.writer_context().others_may_write()


def test_no_plan_is_pending_while_files_are_made_and_commits_beside_it_lie_on_top(table, monkeypatch) -> None:
    seen = []

    def beside() -> None:
        seen.append(planned(table))
        commit(again(table.path, hoodie__table__services__enabled=False), 2)

    watched(monkeypatch, beside)
    (done,) = run(table, if_due=False)
    assert seen == [[]] and planned(table) == []
    newest = metadata(table).slices("files")[0]
    assert newest.base_instant == done.requested and len(newest.log_files) == 2
    check(table)
    assert table.validate_metadata().ok
    names = [name for name in own_timeline(table) if name.startswith(done.requested)]
    assert names == [
        f"{done.requested}.compaction.inflight", f"{done.requested}.compaction.requested",
        f"{done.requested}_{done.completion}.commit",
    ]  # fmt: skip


def test_a_round_beside_another_leaves_it_to_that_one(table, monkeypatch) -> None:
    beside = []
    watched(monkeypatch, lambda: beside.append(run(again(table.path), if_due=False)))
    assert len(run(table, if_due=False)) == 1
    assert beside == [[]] and len(compactions(table)) == 1


def test_a_round_that_another_one_overtook_publishes_nothing(table, monkeypatch) -> None:
    def overtake() -> None:
        for beat in Path(table.path, paths.HEARTBEATS).glob("*"):
            os.utime(beat, (1_700_000_000, 1_700_000_000))
        assert len(run(again(table.path), if_due=False)) == 1

    watched(monkeypatch, overtake)
    assert run(table, if_due=False) == []
    assert len(compactions(table)) == 1
    check(table)


def while_read(monkeypatch: pytest.MonkeyPatch, then) -> None:
    """``then`` runs once, when files to merge are planned and not read."""

    def slowly(self, found):
        if waiting:
            waiting.pop()()
        return real(self, found)

    real, waiting = MetadataTable.slice_content, [then]
    monkeypatch.setattr(MetadataTable, "slice_content", slowly)


def test_a_round_whose_index_is_dropped_while_it_reads_publishes_nothing(table, monkeypatch) -> None:
    again(table.path).indexes.create("column_stats")
    commit(again(table.path), 1)
    while_read(monkeypatch, lambda: again(table.path).indexes.drop("column_stats"))
    assert run(table, if_due=False) == []
    assert compactions(table) == []
    check(table)


def test_a_round_that_misses_a_file_of_an_index_that_is_there_says_so(table, monkeypatch) -> None:
    def lose() -> None:
        for file in Path(table.path, paths.METADATA, "files").glob(".files-*.log.*"):
            file.unlink()

    while_read(monkeypatch, lose)
    with pytest.raises(CorruptTable, match="a file is gone"):
        run(table, if_due=False)


def dying(table: mainstem.Table, at: int, after: bool) -> bool:
    ctx = table.writer_context()
    seams = replace(ctx.seams, storage=Mortal(ctx.seams.storage, at, after=after))
    publisher = Publisher(seams, InstantTimes(), fence_of(seams, None), skew=ClockSkew(0), exclusive=True)
    ctx = replace(ctx, seams=seams, publisher=publisher, heartbeats=replace_storage(ctx, seams.storage))
    try:
        metadata_compaction.run(ctx, if_due=False)
    except Dead:
        return True
    return False


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after it"])
def test_a_round_that_dies_anywhere_hinders_nobody_and_the_next_ends_it(table, tmp_path, after) -> None:
    at, died, left = 0, True, 0
    while died:
        at += 1
        copy = again(shutil.copytree(table.path, tmp_path / f"copy{at}"))
        died = dying(copy, at, after)
        left += bool(planned(copy))
        check(copy)
        entered(copy)
        if at % 4 == 1:
            commit(again(copy.path))
        for beat in Path(copy.path, paths.HEARTBEATS).glob("*"):
            os.utime(beat, (1_700_000_000, 1_700_000_000))
        run(again(copy.path), if_due=False)
        check(copy)
        assert not planned(copy) and metadata(copy).slices("files")[0].base_instant > "2"
        table_rows = copy.scan().to_arrow().select(["id"]).num_rows
        assert table_rows == 8 and copy.validate_metadata().ok
        shutil.rmtree(copy.path)
    assert at > 15
    assert left <= 6, "between publishing the plan and its commit, all under the lock"
