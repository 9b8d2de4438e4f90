"""Goal: of an updating query, nothing stays that the query no longer has, and no UPDATE_BEFORE deletes a row
whose UPDATE_AFTER follows, wherever batches end.

Method: changes as Flink's operators give them, both rows of an update in one step, are cut into batches
anywhere and into checkpoints between steps. What a table shows after each checkpoint is compared with the
steps themselves. The queries of real jobs are in ``test_flink_updates``.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import mainstem
from mainstem.flink import update_pairs
from mainstem.flink.update_pairs import UpdatePairs
from mainstem.storage.local import LocalStorage
from mainstem.writers.staged_rows import Stager, counting, parse_line

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("n", pa.int64())])
NEW, UB, UA, D = "INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE"


class Job:
    """One worker, and a committer of its checkpoints."""

    def __init__(self, path, *, ordering=None, index=None):
        options = {"hoodie.mainstem.fsync": "false", **({"hoodie.index.type": index} if index else {})}
        self.table = mainstem.create_table(
            path, SCHEMA, record_key="id", partition_by="city", ordering=ordering or (),
            buckets=None if index else 2, properties=options,
        )  # fmt: skip
        self.spec = self.table.staging_spec(SCHEMA)
        self.anywhere = bool(index and index.startswith("GLOBAL"))
        self.lines: list[str] = []
        self.start()

    def start(self):
        """The worker of a new attempt, which knows of nothing."""
        stager = Stager(LocalStorage(self.table.path, sync=False), self.spec, "s", random.SystemRandom())
        self.pairs = UpdatePairs(stager, self.spec, unique_in_table=self.anywhere)
        self.lines = []

    def batch(self, *changes):
        """(kind, id, city, ts, n) each."""
        kinds = [kind for kind, *_ in changes]
        rows = pa.Table.from_pylist(
            [dict(zip(SCHEMA.names, values, strict=True)) for _, *values in changes], SCHEMA
        )
        marks = [pa.array([kind == one for kind in kinds], pa.bool_()) for one in (D, UB)]
        self.lines += self.pairs.stage(rows, *marks)

    def checkpoint(self) -> dict:
        with self.table.begin("upsert") as txn:
            txn.add_staged(self.lines)
            txn.commit()
        self.lines = []
        return self.shown()

    def shown(self) -> dict:
        found = self.table.scan(columns=SCHEMA.names).to_arrow().to_pylist()
        shown = {(row["id"], row["city"]): (row["ts"], row["n"]) for row in found}
        assert len(shown) == len(found), "a key is doubled"
        return shown


@pytest.fixture(params=[None, "SIMPLE"], ids=["buckets", "without buckets"])
def index(request):
    return request.param


def test_an_update_before_that_nothing_follows_is_a_deletion(tmp_path, index):
    job = Job(tmp_path / "t", index=index)
    job.batch((NEW, "a", "x", 1, 1), (NEW, "b", "x", 1, 1), (UB, "a", "x", 1, 1))
    assert job.checkpoint() == {("b", "x"): (1, 1)}
    job.batch((UB, "b", "x", 1, 1))
    assert job.checkpoint() == {}


@pytest.mark.parametrize("cut", [False, True])
def test_one_that_its_row_follows_is_none_even_if_the_ordering_value_falls(tmp_path, index, cut):
    job = Job(tmp_path / "t", ordering="ts", index=index)
    job.batch((NEW, "a", "x", 9, 1), (NEW, "b", "x", 9, 1))
    job.checkpoint()
    update = [(UB, "a", "x", 9, 1), (UB, "b", "x", 9, 1), (UA, "b", "x", 9, 2), (UA, "a", "x", 3, 2)]
    job.batch(*update[:2] if cut else update)
    if cut:
        job.batch(*update[2:3])
        job.batch(*update[3:])
    # The smaller value loses against the row, as any row would.
    assert job.checkpoint() == {("a", "x"): (9, 1), ("b", "x"): (9, 2)}


def test_a_row_that_moves_leaves_its_old_partition(tmp_path, index):
    job = Job(tmp_path / "t", index=index)
    job.batch((NEW, "a", "x", 1, 1))
    job.checkpoint()
    job.batch((UB, "a", "x", 1, 1), (UA, "a", "y", 2, 2))
    assert job.checkpoint() == {("a", "y"): (2, 2)}


def test_under_a_global_index_a_row_that_moves_is_the_same_row(tmp_path):
    job = Job(tmp_path / "t", index="GLOBAL_SIMPLE", ordering="ts")
    job.batch((NEW, "a", "x", 9, 1))
    job.checkpoint()
    job.batch((UB, "a", "x", 9, 1))
    job.batch((UA, "a", "y", 3, 2))
    assert [key for key, _ in job.checkpoint()] == ["a"]
    job.batch((UB, "a", "y", 9, 2))
    assert job.checkpoint() == {}


def test_what_an_earlier_checkpoint_deleted_is_not_deleted_again(tmp_path, index):
    job = Job(tmp_path / "t", index=index)
    job.batch((NEW, "a", "x", 1, 1), (NEW, "b", "x", 1, 1), (UB, "a", "x", 1, 1), (UB, "b", "x", 1, 1))
    assert job.checkpoint() == {}
    job.table.upsert(pa.table({"id": ["b"], "city": ["x"], "ts": [1], "n": [7]}, SCHEMA))
    job.batch((NEW, "a", "x", 2, 2))
    assert any(parse_line(line, source="t").instead for line in job.lines), "it remembers, and says so"
    assert job.checkpoint() == {("a", "x"): (2, 2), ("b", "x"): (1, 7)}


def test_a_job_that_starts_again_gives_the_same(tmp_path, index):
    job = Job(tmp_path / "t", ordering="ts", index=index)
    job.batch((NEW, "a", "x", 5, 1), (NEW, "b", "x", 5, 1))
    job.checkpoint()
    job.batch((UB, "a", "x", 5, 1))
    job.start()
    job.batch((UB, "a", "x", 5, 1), (UA, "a", "x", 6, 2), (UB, "b", "x", 5, 1))
    assert job.checkpoint() == {("a", "x"): (6, 2)}


BOUNDS = [("ROWS_MAX", 2, 2), ("FILES_MAX", 2, 2), ("BYTES_MAX", 1, 1)]


@pytest.mark.parametrize(("bound", "value", "left"), BOUNDS)
def test_what_is_remembered_is_bounded_and_a_forgotten_deletion_comes_before_its_row(
    tmp_path, monkeypatch, bound, value, left
):
    monkeypatch.setattr(update_pairs, bound, value)
    job = Job(tmp_path / "t")
    keys = [f"k{i}" for i in range(6)]
    job.batch(*[(NEW, key, "x", 1, 1) for key in keys])
    job.checkpoint()
    for key in keys:
        job.batch((UB, key, "x", 1, 1))
    assert sum(one.rows.num_rows for one in job.pairs._open) == left
    job.batch(*[(UA, key, "x", 1, 2) for key in keys[:5]])
    assert job.checkpoint() == {(key, "x"): (1, 2) for key in keys[:5]}


def test_a_plain_batch_is_one_file_and_a_cut_pair_leaves_no_deletion(tmp_path):
    job = Job(tmp_path / "t")
    job.batch((NEW, "a", "x", 1, 1), (UB, "a", "x", 1, 1), (UA, "a", "x", 1, 2))
    assert len(job.lines) == 1 and parse_line(job.lines[0], source="t").rows == 2
    job.batch((UB, "a", "x", 1, 2))
    job.batch((UA, "a", "x", 1, 3))
    found = counting(parse_line(line, source="t") for line in job.lines)
    assert [sum(piece.deletes for piece in one.pieces) for one in found] == [0, 0]


# Without buckets a key that was deleted may begin anew in another file group, whatever its ordering value.
@pytest.mark.parametrize(("index", "ordering"), [(None, None), (None, "ts"), ("SIMPLE", None)])
@pytest.mark.parametrize("seed", range(3))
def test_any_changes_show_what_the_steps_say_wherever_batches_end(tmp_path, index, ordering, seed):
    rng = random.Random(seed)
    job = Job(tmp_path / "t", ordering=ordering, index=index)
    live: dict = {}  # what the query has
    newest: dict = {}  # by the table's rule: (ts, n) of a row, (ts, None) of a deletion
    for _ in range(4):
        changes = [change for _ in range(rng.randrange(1, 12)) for change in _step(rng, live)]
        for place, (kind, *row, ts, n) in enumerate(changes):
            row = tuple(row)
            alone = all(tuple(later[1:3]) != row for later in changes[place + 1 :])
            counts = ordering is None or row not in newest or ts >= newest[row][0]
            if counts and (kind != UB or alone):
                newest[row] = (ts, n if kind in (NEW, UA) else None)
        while changes:
            size = rng.randrange(1, 6)
            job.batch(*changes[:size])
            del changes[:size]
        shown = job.checkpoint()
        assert shown == {row: version for row, version in newest.items() if version[1] is not None}
        if ordering is None:
            assert shown == {row[:2]: row[2:] for row in live.values()}


def _step(rng, live) -> list[tuple]:
    """What one input makes: all rows before their updates, then those after that a filter lets through."""
    before, after = [], []
    for name in rng.sample("abcdef", rng.randrange(1, 5)):
        old, new = live.pop(name, None), (name, rng.choice("xxxy"), rng.randrange(20), rng.randrange(1000))
        passes = rng.random() < 0.7
        if old is not None:
            before.append((UB if passes or rng.random() < 0.7 else D, *old))
        if passes:
            after.append((UA if old is not None else NEW, *new))
            live[name] = new
    return before + after
