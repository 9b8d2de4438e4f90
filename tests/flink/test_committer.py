"""Goal: part files of committables become commits, each once, whoever commits, and nothing else is touched.

Method: a stand-in for Flink's file sink writes part files under hidden names and renames them; committers of
the same process work on them. Processes that die, stop or race are in ``tests/crash`` and
``tests/multiprocess``.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.cli.main import main
from mainstem.errors import CorruptTable, Invalid, Unavailable
from mainstem.flink import part_files
from mainstem.flink.committer import PARTS_KEY, Committer, folders, sinks
from mainstem.storage.local import LocalStorage
from mainstem.writers.staged_rows import Stager
from mainstem.writers.stream_guard import StreamGuard

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("value", pa.string())])
OPTIONS = {"hoodie.mainstem.fsync": "false"}


def rows(keys, ts, value="v"):
    keys = list(keys)
    columns = {"id": [f"k{k}" for k in keys], "ts": [ts] * len(keys), "value": [f"{value}{k}" for k in keys]}
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def table(tmp_path):
    return mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={**OPTIONS, "hoodie.mainstem.exclusive": True},
    )  # fmt: skip


class Job:
    """Stages rows and finishes checkpoints as Flink's file sink does."""

    def __init__(self, table, sink="t1"):
        spec = table.staging_spec(SCHEMA)
        self.stager = Stager(LocalStorage(table.path, sync=False), spec, sink, random.SystemRandom())
        self.staged, self.parts = map(Path, folders(table, sink))
        self.parts.mkdir(parents=True, exist_ok=True)
        self.count = 0

    def hidden(self, *lines: str) -> Path:
        self.count += 1
        path = self.parts / f".part-ab12-0-{self.count - 1}.inprogress.cd34"
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def checkpoint(self, *batches: pa.Table) -> str:
        path = self.hidden(*(self.stager.stage(batch) for batch in batches))
        final = path.name[1:].partition(".inprogress")[0]
        path.rename(self.parts / final)
        return final

    def left(self) -> tuple[int, int]:
        """Part files and staged files."""
        return len(list(self.parts.iterdir())), len(os.listdir(self.staged))


@pytest.fixture
def job(table):
    return Job(table)


def content(table):
    found = table.scan(columns=["id", "value"]).to_arrow()
    assert len(set(found["id"].to_pylist())) == found.num_rows
    return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


def held(table) -> list[list[str]]:
    """The part files that each commit of the table says it holds, oldest first."""
    ctx = table.writer_context()
    timeline = ctx.timeline()
    deltas = [i.requested for i in timeline.completed if i.action == "deltacommit"]
    found = [ctx.guards.extra_metadata(requested, timeline) for requested in deltas]
    return [json.loads(extra[PARTS_KEY]) for extra in found if PARTS_KEY in extra]


def test_all_that_is_finished_becomes_one_commit_and_nothing_is_left(table, job):
    names = [job.checkpoint(rows([1, 2], 1)), job.checkpoint(rows([2], 2, "new"), rows([3], 1))]
    (outcome,) = Committer(table, "t1").commit_pending()
    assert (outcome.status, outcome.rows) == ("committed", 4)
    assert content(table) == {"k1": "v1", "k2": "new2", "k3": "v3"}
    assert held(table) == [names]
    assert job.left() == (0, 0)
    assert Committer(table, "t1").commit_pending() == []


def test_a_checkpoint_that_is_not_complete_waits(table, job):
    hidden = job.hidden(job.stager.stage(rows([1], 1)))
    assert Committer(table, "t1").commit_pending() == []
    assert job.left() == (1, 1) and content(table) == {}
    hidden.rename(job.parts / "part-ab12-0-0")
    assert len(Committer(table, "t1").commit_pending()) == 1
    assert content(table) == {"k1": "v1"}


def test_parts_are_committed_in_the_order_of_their_checkpoints(tmp_path, monkeypatch):
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering=(), buckets=1,
        properties={**OPTIONS, "hoodie.mainstem.exclusive": True},
    )  # fmt: skip
    job = Job(table)
    monkeypatch.setattr(part_files, "_PARTS_MAX", 5)
    names = [job.checkpoint(rows([1], 1, f"checkpoint {n} of ")) for n in range(12)]
    for name in names:  # the last two digits count, not the letters
        os.utime(job.parts / name, (1_000_000, 1_000_000))
    done = Committer(table, "t1").commit_pending()
    assert held(table) == [names[:5], names[5:10], names[10:]] and len(done) == 3
    assert content(table) == {"k1": "checkpoint 11 of 1"}


def test_a_large_backlog_is_committed_in_several_commits(table, job, monkeypatch):
    for n in range(4):
        job.checkpoint(rows(range(50), n))
    size = max(path.stat().st_size for path in job.staged.iterdir())
    monkeypatch.setattr(part_files, "_BYTES_MAX", 2 * size)
    assert len(Committer(table, "t1").commit_pending()) == 2
    assert len(content(table)) == 50


def dies_before_tidying(table, monkeypatch):
    def dies(self, names):
        if names:
            raise OSError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(part_files.PartFiles, "put_away", dies)
        with pytest.raises(Unavailable, match="nothing is lost"):
            Committer(table, "t1").commit_pending()


def test_a_committer_that_died_before_it_tidied_up_is_tidied_up_after(table, job, monkeypatch):
    job.checkpoint(rows([1], 1))

    dies_before_tidying(table, monkeypatch)
    assert job.left() == (1, 1) and len(held(table)) == 1
    assert sinks(table)[0].parts == 0, "it is committed"
    job.checkpoint(rows([2], 1))
    assert [o.rows for o in Committer(table, "t1").commit_pending()] == [1]
    assert job.left() == (0, 0) and content(table) == {"k1": "v1", "k2": "v2"}


def test_two_committers_of_one_sink_commit_each_part_once(table, job):
    one, other = Committer(table, "t1"), Committer(mainstem.open_table(table.path, OPTIONS), "t1")
    names = []
    for n in range(6):
        names.append(job.checkpoint(rows([n], n)))
        (one, other)[n % 2].commit_pending()
    assert [name for batch in held(table) for name in batch] == names
    assert one.commit_pending() == other.commit_pending() == []


def test_a_committer_stands_back_for_one_that_has_begun_but_not_for_ever(table, job, monkeypatch):
    name = job.checkpoint(rows([1], 1))
    other = mainstem.open_table(table.path, OPTIONS)
    begun = other.begin("upsert", guard=StreamGuard("flink/t1", 0), extra_metadata={PARTS_KEY: f'["{name}"]'})
    done = []
    monkeypatch.setattr(Committer, "patience_ms", 150_000)  # no busy machine stands still for so long
    committer = Committer(table, "t1", on_outcome=done.append).start()
    try:
        time.sleep(0.3)
        assert len(table.timeline()) == 1, "nothing else was begun"
        begun.add_staged((job.parts / name).read_text().splitlines())
        begun.commit()
        until(lambda: job.left() == (0, 0))
    finally:
        committer.stop()
    assert done == [] and held(table) == [[name]]
    assert [i.action for i in table.timeline()] == ["deltacommit"], "and nothing was rolled back"
    second = job.checkpoint(rows([2], 1))
    monkeypatch.setattr(Committer, "patience_ms", 100)
    other.begin("upsert", guard=StreamGuard("flink/t1", 1)).detach()  # its process stands still
    assert len(Committer(table, "t1").commit_pending()) == 1
    assert held(table) == [[name], [second]] and content(table) == {"k1": "v1", "k2": "v2"}


def test_parts_of_a_batch_that_was_archived_are_not_committed_again(table, job, monkeypatch):
    options = {**OPTIONS, "hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3",
               "hoodie.clean.commits.retained": "1"}  # fmt: skip
    job.checkpoint(rows([1], 1))
    dies_before_tidying(table, monkeypatch)
    busy = mainstem.open_table(table.path, options)
    for n in range(6):
        busy.upsert(rows([9], n))
        busy.compact()
    busy.clean()
    assert busy.archive()
    assert held(busy) == [], "the batch is archived"
    later = Committer(mainstem.open_table(table.path, options), "t1")
    assert later.commit_pending() == [] and job.left() == (0, 0)
    job.checkpoint(rows([2], 1))
    assert len(later.commit_pending()) == 1
    assert content(table) == {"k1": "v1", "k2": "v2", "k9": "v9"}


def test_a_committer_that_slept_through_a_commit_and_its_restore_does_not_bring_rows_back(
    table, job, monkeypatch
):
    job.checkpoint(rows([1], 1))
    Committer(table, "t1").commit_pending()
    table.savepoint()
    name = job.checkpoint(rows([2], 1))
    kept = job.stager.stage(rows([3], 1))
    sleeper = Committer(table, "t1")
    begin = table.begin

    def parts_only(self, names):
        for one in names:
            (job.parts / one).unlink()

    def later(*given, **named):
        """The sleeper has read the part file and is about to begin."""
        table.begin = begin
        other = mainstem.open_table(table.path, OPTIONS)
        with monkeypatch.context() as patched:  # it dies before it removes the staged rows
            patched.setattr(part_files.PartFiles, "put_away", parts_only)
            assert len(Committer(other, "t1").commit_pending()) == 1
        assert "k2" in content(other)
        other.restore(other.savepoints()[0].instant)
        return begin(*given, **named)

    table.begin = later
    assert sleeper.commit_pending() == []
    assert content(table) == {"k1": "v1"} and len(held(table)) == 1
    assert not (job.parts / name).exists()
    job.hidden(kept).rename(job.parts / "part-3")
    assert len(sleeper.commit_pending()) == 1, "the number of the batch that was taken back is used again"
    assert content(table) == {"k1": "v1", "k3": "v3"}


def test_sinks_of_one_table_have_nothing_in_common(table, job):
    other = Job(table, "t1_2")
    job.checkpoint(rows([1], 1))
    other.checkpoint(rows([2], 1))
    assert [(s.name, s.parts, s.staged_files) for s in sinks(table)] == [("t1", 1, 1), ("t1_2", 1, 1)]
    Committer(table, "t1").commit_pending()
    assert content(table) == {"k1": "v1"} and other.left() == (1, 1)
    Committer(table, "t1_2").commit_pending()
    assert content(table) == {"k1": "v1", "k2": "v2"}


def test_a_batch_without_rows_is_no_commit(table, job):
    job.hidden("", "").rename(job.parts / "part-0")
    assert Committer(table, "t1").commit_pending() == []
    assert job.left()[0] == 0 if job.staged.exists() else not list(job.parts.iterdir())
    assert table.timeline() == []


# -- damage --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        (b"", CorruptTable, "does not end with a line"),
        (b'{"v":1', CorruptTable, "does not end with a line"),
        (b"nonsense\n", CorruptTable, "does not parse"),
        (b"\xff\n", CorruptTable, "no text"),
    ],
)
def test_a_damaged_part_file_stops_its_sink_and_stays(table, job, text, error, match):
    (job.parts / "part-0").write_bytes(text)
    job.checkpoint(rows([1], 1))
    before = job.left()
    for _ in range(2):
        with pytest.raises(error, match=match):
            Committer(table, "t1").commit_pending()
    assert job.left() == before and table.timeline() == [] and content(table) == {}


def test_rows_of_another_sink_and_folders_are_refused(table, job):
    line = Job(table, "other").stager.stage(rows([1], 1))
    job.hidden(line).rename(job.parts / "part-0")
    with pytest.raises(Invalid, match="of another sink, 'other'"):
        Committer(table, "t1").commit_pending()
    (job.parts / "part-0").unlink()
    (job.parts / "2026-01-01--00").mkdir()
    with pytest.raises(Invalid, match="base_path_bucket_assigner"):
        Committer(table, "t1").commit_pending()
    assert table.timeline() == []


def test_staged_rows_that_are_gone_are_an_error_and_the_rest_stays(table, job):
    job.checkpoint(rows([1], 1), rows([2], 1))
    next(iter(sorted(job.staged.iterdir()))).unlink()
    with pytest.raises(CorruptTable, match="staged rows are missing"):
        Committer(table, "t1").commit_pending()
    assert job.left() == (1, 1) and content(table) == {}
    assert [i for i in table.timeline() if not i.is_completed] == []


# -- orphans --------------------------------------------------------------------------------


def aged(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_the_sweep_takes_old_staged_files_that_no_part_names_and_no_others(table, job):
    day = 24 * 3600
    orphan, young = (json.loads(job.stager.stage(rows([n], 1)))["file"] for n in range(2))
    waiting, begun = job.stager.stage(rows([5], 1)), job.stager.stage(rows([6], 1))
    job.hidden(waiting).rename(job.parts / "part-0")
    job.hidden(begun + "\n" + begun[:20])
    given_up = job.stager.stage(rows([7], 1))
    aged(job.hidden(given_up), 3 * day)
    for line in (waiting, begun, given_up):
        aged(job.staged / json.loads(line)["file"], 2 * day)
    aged(job.staged / orphan, 2 * day)
    (job.parts / ".staging_1").mkdir()  # of a batch job
    committer = Committer(table, "t1")
    assert committer.sweep() == 0, "nothing is a month old"
    assert committer.sweep(day * 1000) == 2
    left = {json.loads(line)["file"] for line in (waiting, begun)}
    assert set(os.listdir(job.staged)) == {*left, young}


# -- the thread and the command ------------------------------------------------------------


def test_a_thread_commits_as_checkpoints_complete_and_tells_of_trouble(table, job):
    outcomes, errors = [], []
    committer = Committer(table, "t1", on_outcome=outcomes.append, on_error=errors.append).start()
    try:
        for n in range(3):
            job.checkpoint(rows([n], 1))
            until(lambda n=n: len(outcomes) == n + 1)
        (job.parts / "part-9").write_text("nonsense\n")
        until(lambda: errors)
        assert isinstance(committer.error, CorruptTable)
        (job.parts / "part-9").unlink()
        job.checkpoint(rows([7], 1))
        until(lambda: len(outcomes) == 4 and committer.error is None)
    finally:
        assert committer.stop()
    job.checkpoint(rows([8], 1))
    time.sleep(0.1)
    assert job.left()[0] == 1, "it is stopped"
    assert [o.rows for o in committer.commit_pending()] == [1]
    assert len(content(table)) == 5


def test_a_thread_that_meets_what_nobody_expected_says_so_and_goes_on(table, job):
    errors = []

    def broken(outcome):
        raise KeyError("a mistake of the caller's")

    committer = Committer(table, "t1", on_outcome=broken, on_error=errors.append).start()
    job.checkpoint(rows([1], 1))
    until(lambda: errors and committer.error is None)
    assert committer.stop() and isinstance(errors[0], Unavailable) and "a mistake" in str(errors[0])
    assert content(table) == {"k1": "v1"}


def until(condition, seconds=150.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


def test_the_command_lists_and_commits_every_sink_or_one(table, job, capsys):
    other = Job(table, "t1_2")
    job.checkpoint(rows([1], 1))
    other.checkpoint(rows([2], 1))
    assert main(["flink-commit", table.path, "--list"]) == 0
    assert "t1: 1 part files wait, 1 staged files" in capsys.readouterr().out
    assert main(["flink-commit", table.path, "--once", "--sink", "t1_2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["sink"], told["rows"], told["status"]) == ("t1_2", 1, "committed")
    assert main(["flink-commit", table.path, "--once"]) == 0
    assert capsys.readouterr().out.startswith("t1: 1 rows committed as ")
    assert main(["flink-commit", table.path, "--list", "--json"]) == 0
    assert [json.loads(line)["parts"] for line in capsys.readouterr().out.splitlines()] == [0, 0]
    assert len(content(table)) == 2


def test_the_command_commits_the_other_sinks_and_says_which_one_is_damaged(table, job, capsys):
    other = Job(table, "t2")
    (job.parts / "part-0").write_text("nonsense\n")
    other.checkpoint(rows([2], 1))
    assert main(["flink-commit", table.path, "--once"]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("t2: 1 rows committed") and "does not parse" in captured.err
    assert main(["flink-commit", table.path, "--once", "--every", "1s"]) == 2
