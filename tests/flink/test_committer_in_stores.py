"""Goal: in an object store a restored Flink job finds the part files of its newest checkpoint, and no part
is committed twice for that.

Method: parts are put under their final names into a store in memory, as Flink's file sink for S3 does, and
what a restored sink looks for (each part of the newest checkpoint, with its length) is looked for.
"""

from __future__ import annotations

import random
import uuid

import pyarrow as pa
import pytest

import mainstem
from mainstem.flink.committer import Committer, sinks
from mainstem.flink.part_files import PartFiles
from mainstem.storage import paths
from mainstem.writers.staged_rows import Stager

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])


class Job:
    """Stages rows and finishes checkpoints as Flink's file sink does on S3."""

    def __init__(self, table: mainstem.Table) -> None:
        self.storage = table.writer_context().seams.storage
        self.stager = Stager(self.storage, table.staging_spec(SCHEMA), "t1", random.SystemRandom())
        self.count = 0

    def checkpoint(self, *ids: str) -> tuple[str, int]:
        """Name and length of the part file."""
        rows = pa.table({"id": ids, "ts": [self.count] * len(ids)}, schema=SCHEMA)
        line = f"{self.stager.stage(rows)}\n".encode()
        self.count += 1
        name = f"part-ab12-0-{self.count}"
        self.storage.put_new(f"{paths.committables_folder('t1')}/{name}", line, durable=True)
        return name, len(line)

    def found(self) -> dict[str, int]:
        """Names and lengths of all parts."""
        return {entry.name: entry.size for entry in self.storage.entries(paths.committables_folder("t1"))}

    def staged(self) -> int:
        return len(self.storage.names(paths.staged_folder("t1")))


@pytest.fixture
def table() -> mainstem.Table:
    return mainstem.create_table(
        f"memory://{uuid.uuid4().hex}/t", SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={"hoodie.mainstem.exclusive": True},
    )  # fmt: skip


def ids(table: mainstem.Table) -> list[str]:
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def test_the_parts_of_the_newest_batch_stay_with_their_length_and_hold_no_rows(table: mainstem.Table) -> None:
    job, committer = Job(table), Committer(table, "t1")
    first = dict([job.checkpoint("a"), job.checkpoint("b")])
    assert [outcome.rows for outcome in committer.commit_pending()] == [2]
    assert job.found() == first and job.staged() == 0
    second = dict([job.checkpoint("c")])
    assert [outcome.rows for outcome in committer.commit_pending()] == [1]
    assert job.found() == second and job.staged() == 0
    assert ids(table) == ["a", "b", "c"]


def test_parts_that_stay_are_neither_pending_nor_committed_again_by_anybody(table: mainstem.Table) -> None:
    job = Job(table)
    for number in range(3):
        job.checkpoint(f"k{number}")
        assert len(Committer(table, "t1").commit_pending()) == 1
        assert Committer(table, "t1").commit_pending() == []
        assert Committer(table, "t1").pending() == []
        assert [(sink.parts, sink.staged_files) for sink in sinks(table)] == [(0, 0)]
    assert len(job.found()) == 1
    assert len([i for i in table.timeline() if i.action == "deltacommit" and i.is_completed]) == 3
    assert ids(table) == ["k0", "k1", "k2"]


def test_a_committer_that_died_before_it_put_parts_away_is_followed_by_one_that_does(
    table: mainstem.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(table)
    part = dict([job.checkpoint("a")])
    with monkeypatch.context() as patch:
        patch.setattr("mainstem.flink.part_files.PartFiles.put_away", lambda self, names: None)
        assert len(Committer(table, "t1").commit_pending()) == 1
    assert job.staged() == 1
    assert Committer(table, "t1").commit_pending() == []
    assert job.found() == part and job.staged() == 0
    assert ids(table) == ["a"]


def test_a_watching_committer_does_not_take_blanks_for_work(table: mainstem.Table) -> None:
    job, committer = Job(table), Committer(table, "t1")
    job.checkpoint("a")
    committer.commit_pending()
    assert not committer._parts.any()
    job.checkpoint("b")
    assert committer._parts.any()


def test_rows_that_a_restore_took_back_do_not_return_by_a_committer_that_had_read_their_part(
    table: mainstem.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(table)
    job.checkpoint("a")
    Committer(table, "t1").commit_pending()
    table.savepoint()
    job.checkpoint("b")
    sleeper, begin = Committer(table, "t1"), table.begin

    def later(*given: object, **named: object) -> object:
        """The sleeper has read the part and is about to begin."""
        table.begin = begin  # type: ignore[method-assign]
        other = mainstem.open_table(table.path)
        with monkeypatch.context() as patch:  # it dies before it removes the staged rows
            patch.setattr("mainstem.flink.part_files.PartFiles.put_away", blanks_only)
            assert len(Committer(other, "t1").commit_pending()) == 1
        assert ids(other) == ["a", "b"]
        other.restore(other.savepoints()[0].instant)
        return begin(*given, **named)  # type: ignore[arg-type]

    def blanks_only(parts: PartFiles, names: list[str]) -> None:
        for name in names:
            parts._blank(name)

    table.begin = later  # type: ignore[assignment, method-assign]
    assert sleeper.commit_pending() == []
    assert ids(table) == ["a"] and job.staged() == 1
    sleeper.sweep(-1)
    assert job.staged() == 0
