"""Goal: a query sees one moment of the table, whole, and says what is wrong where it cannot.

Method: tables written by mainstem; storage wrapped so that files vanish or appear between two
calls; files damaged, metadata forged, one case per test.
"""

from __future__ import annotations

import pickle
import shutil
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid, Unavailable, Unsupported
from mainstem.layout.properties import load_config
from mainstem.readers.changes import incremental
from mainstem.readers.planning.table_state import TableState, steady_timeline
from mainstem.readers.queries import snapshot
from mainstem.readers.rows import base_rows
from mainstem.readers.rows.split import read_split
from mainstem.storage import paths
from mainstem.timeline.commit_metadata import WriteStat, encode_commit
from mainstem.truetime.instant_times import instant_text, parse_wall
from tests.storage.steps import OPENING, READING, Opening, Proxy, storage_at

pytestmark = pytest.mark.versions
SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64()), ("name", pa.string())])
OPTIONS = {
    "hoodie.time.generator.max_expected_clock_skew_ms": "0",
    "hoodie.mainstem.fsync": "false",
}


def rows(*values):
    columns = zip(*values, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def create(path):
    mainstem.create_table(
        path,
        SCHEMA,
        record_key=["id"],
        ordering=["ts"],
        partition_by=["city"],
        buckets=2,
        properties=OPTIONS,
    )
    return mainstem.open_table(path, properties=OPTIONS)


def ids(table):
    return sorted(table.column("id").to_pylist())


def log_files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob(".*.log.*") if ".hoodie/" not in str(p))


class Wrapped(Proxy):
    """A storage whose calls a test may act before: ``read`` of a small file, ``opening`` of a large one,
    by whatever verbs the store has for them; ``names`` replaces what was listed."""

    def __init__(self, base, **before):
        super().__init__(storage_at(base))
        self.before = before

    def __getattr__(self, name):
        found = super().__getattr__(name)
        kind = "opening" if name in OPENING else "read" if name in READING else None
        if kind not in self.before:
            return found

        def call(path, *given, **named):
            self.before[kind](path)
            return found(path, *given, **named)

        return call

    def names(self, folder, **which):
        found = self.inner.names(folder, **which)
        replaced = self.before.get("names")
        return found if replaced is None else replaced(folder, found)


# -------------------- one moment of the table


def test_a_listing_that_missed_an_earlier_commit_does_not_show_a_later_one(tmp_path):
    """A folder listing may miss a file that appears while it runs, and yet show a later one."""
    table = create(tmp_path / "t")
    done = [table.upsert(rows((n, "a", 1, "x"))) for n in range(3)]
    calls = []

    def names(folder, found):
        if folder != paths.TIMELINE:
            return found
        calls.append(folder)
        gone = done[1:2] if len(calls) == 1 else []  # the first listing shows 0 and 2, not 1
        return [n for n in found if not any(n.startswith(f"{o.instant}_") for o in gone)]

    storage = Wrapped(tmp_path / "t", names=names)
    shown = {i.requested for i in steady_timeline(storage).completed}
    assert shown == {o.instant for o in done}
    assert len(calls) == 2

    calls.clear()

    def late(folder, found):
        if folder != paths.TIMELINE:
            return found
        calls.append(folder)
        return [n for n in found if len(calls) > 1 or not n.startswith(f"{done[2].instant}_")]

    storage = Wrapped(tmp_path / "t", names=late)
    shown = {i.requested for i in steady_timeline(storage).completed}
    assert shown == {o.instant for o in done}  # the third came after the first listing: it was listed again
    assert len(calls) == 3

    calls.clear()

    def restless(folder, found):
        if folder != paths.TIMELINE:
            return found
        calls.append(folder)
        return [*found, *(f"2100010100000000{n}_2100010100000001{n}.deltacommit" for n in range(len(calls)))]

    newest = max(steady_timeline(Wrapped(tmp_path / "t", names=restless)).completion_times)
    assert newest == f"2100010100000000{len(calls) - 2}"  # the last listing, cut where the one before ended
    assert len(calls) < 10


def test_a_transaction_that_commits_between_timeline_and_file_listing_is_not_half_seen(tmp_path):
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "old"), (2, "b", 1, "old")))
    state = TableState.load(storage_at(tmp_path / "t"), load_config(table.opened.seams.storage))
    table.upsert(rows((1, "a", 2, "new"), (2, "b", 2, "new"), (3, "c", 2, "new")))
    visible = [log for g in state.groups() for s in g.slices for log in s.log_files]
    assert len(visible) == 2
    assert {paths.parse_log_name(n).instant for n in visible} == {state.writes[0].requested}


def test_a_file_that_vanishes_once_makes_the_query_start_again(tmp_path):
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "x"), (2, "a", 1, "y")))
    failed = []

    def fail_once(path):
        if not failed:
            failed.append(path)
            raise FileNotFoundError(path)

    storage = Wrapped(tmp_path / "t", opening=fail_once)
    assert ids(snapshot.scan(storage).to_arrow()) == [1, 2]
    assert failed
    failed.clear()
    batches = list(snapshot.scan(storage).to_batches())
    assert ids(pa.Table.from_batches(batches)) == [1, 2]


class WithoutLogs(Opening):
    """Log files are gone whenever they are opened."""

    def __getattr__(self, name):
        found = super().__getattr__(name)
        if name not in OPENING:
            return found

        def call(path, *given, **named):
            if ".log." in path:
                raise FileNotFoundError(path)
            return found(path, *given, **named)

        return call


def test_a_file_that_is_gone_for_good_is_an_error_that_names_it(tmp_path):
    table = create(tmp_path / "t")
    outcome = table.upsert(rows((1, "a", 1, "x")))
    (gone,) = log_files(tmp_path / "t")
    storage = WithoutLogs(storage_at(tmp_path / "t"))
    with pytest.raises(Unavailable, match=r"\.log\.1_"):
        snapshot.scan(storage).to_arrow()
    with pytest.raises(Unavailable, match=r"\.log\.1_"):
        list(snapshot.scan(storage).to_batches())
    gone.unlink()
    with pytest.raises(CorruptTable, match=gone.name):
        table.changes().to_arrow()
    assert outcome.status == "committed"


def test_rows_of_open_and_aborted_transactions_are_never_seen(tmp_path):
    table = create(tmp_path / "t")
    first = table.upsert(rows((1, "a", 1, "x")))
    with table.begin("upsert") as txn:
        txn.write(rows((1, "a", 5, "open"), (2, "a", 5, "open")))
        assert ids(table.scan().to_arrow()) == [1]
        assert table.changes(after=first.completion_time).to_arrow().num_rows == 0
        txn.abort()
    assert table.scan().to_arrow().column("name").to_pylist() == ["x"]


# -------------------- windows of changes


def test_windows_follow_one_another_without_gap_or_repetition(tmp_path):
    table = create(tmp_path / "t")
    done = [table.upsert(rows((n, "a", 9 - n, "x"), (100, "a", 9 - n, "late"))) for n in range(4)]
    bounds = [None, *(o.completion_time for o in done)]
    for n, (after, until) in enumerate(pairwise(bounds)):
        found = table.changes(after=after, until=until).to_arrow()
        assert ids(found) == [n, 100]  # the late row of key 100 too
        assert set(found.column("_hoodie_commit_time").to_pylist()) == {done[n].instant}
    assert ids(table.changes(until=bounds[2]).to_arrow()) == [0, 1, 100]
    assert table.changes(after=bounds[-1]).to_arrow().num_rows == 0


def test_a_delete_in_a_window_returns_no_row_and_hides_earlier_ones_of_the_window(tmp_path):
    table = create(tmp_path / "t")
    first = table.upsert(rows((1, "a", 1, "x"), (2, "a", 1, "x")))
    gone = table.delete(pa.table({"id": [1], "city": ["a"]}))
    assert ids(table.changes().to_arrow()) == [2]
    assert table.changes(after=first.completion_time).to_arrow().num_rows == 0
    assert ids(table.changes(until=first.completion_time).to_arrow()) == [1, 2]
    assert gone.status == "committed"


def test_bounds_that_are_no_times_are_refused(tmp_path):
    table = create(tmp_path / "t")
    with pytest.raises(Invalid, match="after='yesterday'"):
        table.changes(after="yesterday")
    with pytest.raises(Invalid, match="until="):
        table.changes(until=20260101)


# -------------------- time travel and modes


def test_as_of_is_refused_from_the_oldest_pending_write_on_and_answered_before_it(tmp_path):
    table = create(tmp_path / "t")
    first = table.upsert(rows((1, "a", 1, "x")))
    second = table.upsert(rows((2, "a", 1, "x")))
    assert ids(table.scan(as_of=first.instant).to_arrow()) == [1]
    assert ids(table.scan(as_of=second.instant).to_arrow()) == [1, 2]
    with table.begin("upsert") as txn:
        txn.write(rows((3, "a", 1, "x")))
        assert ids(table.scan(as_of=second.instant).to_arrow()) == [1, 2]
        with pytest.raises(Invalid, match="pending deltacommit"):
            table.scan(as_of="29991231000000000").to_arrow()
        txn.abort()
    assert ids(table.scan(as_of="2999-12-31").to_arrow()) == [1, 2]
    assert table.scan(as_of="20000101000000000").to_arrow().num_rows == 0


@pytest.mark.parametrize("as_of", ["soon", "2026", "20261340", 20260101000000000])
def test_an_as_of_that_is_no_time_is_refused(tmp_path, as_of):
    with pytest.raises(Invalid, match="as_of="):
        create(tmp_path / "t").scan(as_of=as_of)


def test_unknown_columns_modes_and_options_are_refused(tmp_path):
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "x")))
    with pytest.raises(Invalid, match="no column 'nmae'"):
        table.scan(columns=["nmae"]).to_arrow()
    with pytest.raises(Invalid, match="expected a list of names"):
        table.scan(columns="name").to_arrow()
    with pytest.raises(Invalid, match="expected a pyarrow"):
        table.scan(filter="name = 'x'").to_arrow()
    with pytest.raises(Invalid, match="mode='fast'"):
        table.scan(mode="fast")
    with pytest.raises(Invalid, match=r"mainstem\.read\.damaged"):
        snapshot.scan(table.opened.seams.storage, damaged="maybe").to_arrow()


def test_an_empty_table_gives_its_schema_and_no_rows(tmp_path):
    table = create(tmp_path / "t")
    found = table.scan().to_arrow()
    assert found.num_rows == 0
    assert found.schema.names[5:] == SCHEMA.names
    assert list(table.scan().to_batches()) == []
    assert table.changes().to_arrow().num_rows == 0
    assert table.scan(mode="read_optimized").to_arrow().num_rows == 0


def test_filters_see_merged_rows_and_columns_that_are_not_asked_for(tmp_path):
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "old"), (2, "a", 1, "keep")))
    table.upsert(rows((1, "a", 2, "new")))
    old = table.scan(columns=["id"], filter=pc.field("name") == "old").to_arrow()
    assert old.schema.names == ["id"]
    assert ids(old) == []  # the overwritten row must not come back
    assert ids(table.scan(columns=["id"], filter=pc.field("name") == "new").to_arrow()) == [1]
    by_number = pc.field(6) == "a"
    assert ids(table.scan(columns=["id"], filter=by_number).to_arrow()) == [1, 2]


def test_a_split_is_read_on_its_own_after_a_journey_as_bytes(tmp_path):
    table = create(tmp_path / "t")
    table.upsert(rows(*((n, "ab"[n % 2], 1, "x") for n in range(20))))
    plan = table.scan(columns=["id"], filter=pc.field("id") > 3)
    splits = pickle.loads(pickle.dumps(plan.splits()))
    assert len(splits) == 4
    storage = storage_at(table.path)
    found = [t for s in splits for t in read_split(storage, s)]
    assert ids(pa.concat_tables(found)) == list(range(4, 20))


# -------------------- bad input


def commit_by_hand(path: Path, instant: str, partition: str, file_name: str) -> None:
    stat = WriteStat(partition, "f-0", file_name, instant, 1)
    data = encode_commit([stat], {}, "UPSERT")
    later = instant_text(parse_wall(instant) + timedelta(milliseconds=1))
    (path / ".hoodie/timeline" / f"{instant}_{later}.deltacommit").write_bytes(data)


@pytest.mark.parametrize("partition", ["..", "../outside", "/etc", "a/../../b", "a//b", "a\x00b"])
def test_metadata_that_names_a_file_outside_the_table_is_refused(tmp_path, partition):
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "x")))
    commit_by_hand(tmp_path / "t", "29990101000000000", partition, ".f-0_1.log.1_0-0-0")
    with pytest.raises(CorruptTable, match="leaves the table") as caught:
        table.changes().to_arrow()
    assert caught.value.path.startswith(".hoodie/timeline/29990101")


def test_a_completed_instant_without_content_is_damage(tmp_path):
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "x")))
    name = "29990101000000000_29990101000000001.deltacommit"
    (tmp_path / "t/.hoodie/timeline" / name).touch()
    with pytest.raises(CorruptTable, match="without content"):
        table.scan().to_arrow()


def with_base_file(path: Path, data: bytes | None = None) -> Path:
    """A table with one base file (of file group f-0, written by hand) and a log onto it."""
    table = create(path)
    table.upsert(rows((1, "a", 5, "log"), (2, "a", 5, "log")))
    (log, *_) = log_files(path)
    file_id = paths.parse_log_name(log.name).file_id
    whole = table.scan(filter=pc.field("_hoodie_file_name") == file_id).to_arrow()
    older = pa.repeat(pa.scalar("base"), whole.num_rows)
    whole = whole.set_column(whole.schema.get_field_index("name"), "name", older)
    instant = "20000101000000000"
    base = log.parent / paths.base_name(file_id, "0-0-0", instant)
    if data is None:
        pq.write_table(whole, base)
    else:
        base.write_bytes(data)
    done = path / ".hoodie/timeline" / f"{instant}_20000101000000001.commit"
    done.write_bytes(encode_commit([], {}, "BULK_INSERT"))
    return base


def test_a_base_file_is_merged_with_its_logs(tmp_path):
    base = with_base_file(tmp_path / "t")
    table = mainstem.open_table(tmp_path / "t")
    found = table.scan().to_arrow()
    assert ids(found) == [1, 2]
    assert set(found.column("name").to_pylist()) == {"log"}
    only_base = table.scan(mode="read_optimized").to_arrow()
    assert set(only_base.column("name").to_pylist()) == {"base"}
    slices = [s for s in table.file_slices() if s.base_file == base.name]
    assert [len(s.log_files) for s in slices] == [1]


@pytest.mark.parametrize("kind", ["empty", "garbage", "cut", "no_key"])
def test_a_damaged_base_file_is_an_error_with_its_path(tmp_path, kind):
    base = with_base_file(tmp_path / "t")
    data = base.read_bytes()
    if kind == "no_key":
        pq.write_table(pq.read_table(base).drop_columns(["_hoodie_record_key"]), base)
    else:
        changed = {"empty": b"", "garbage": b"x" * 4000, "cut": data[: len(data) // 2]}[kind]
        base.write_bytes(changed)
    with pytest.raises(CorruptTable) as caught:
        mainstem.open_table(tmp_path / "t").scan().to_arrow()
    assert caught.value.path == f"a/{base.name}"


def test_a_base_file_that_inflates_beyond_belief_is_refused_before_allocation(tmp_path, monkeypatch):
    base = with_base_file(tmp_path / "t")
    many = pa.table({"_hoodie_record_key": pa.repeat(pa.scalar("k"), 1_000_000)})
    pq.write_table(many, base, compression="zstd")
    monkeypatch.setattr(base_rows, "PARQUET_ALWAYS_BYTES", 1000)
    monkeypatch.setattr(base_rows, "PARQUET_RATIO_MAX", 1)
    with pytest.raises(CorruptTable, match="are believed") as caught:
        mainstem.open_table(tmp_path / "t").scan().to_arrow()
    assert caught.value.path == f"a/{base.name}"


def test_damage_in_a_committed_log_is_an_error_with_offset_and_can_be_skipped(tmp_path):
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "x")))
    table.upsert(rows((2, "a", 1, "x"), (1, "a", 2, "y")))
    cut = log_files(tmp_path / "t")[-1]
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(CorruptTable) as caught:
        table.scan().to_arrow()
    assert caught.value.path == f"a/{cut.name}"
    assert caught.value.offset == 0
    skipping = mainstem.open_table(tmp_path / "t", properties={"mainstem.read.damaged": "skip"})
    assert 1 in ids(skipping.scan().to_arrow())


def test_a_file_that_a_lost_task_attempt_left_behind_is_not_read(tmp_path):
    """A slow attempt may write, and die writing, after the driver committed (Hudi issue 10803)."""
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "x")))
    (real,) = log_files(tmp_path / "t")
    name = paths.parse_log_name(real.name)
    for token in ("0-0-0", "99999-9-9"):
        other = paths.log_name(name.file_id, name.instant, 1, token)
        (real.parent / other).write_bytes(real.read_bytes()[:-7])
    assert table.scan().to_arrow().column("name").to_pylist() == ["x"]
    assert ids(table.changes().to_arrow()) == [1]
    assert sum(len(s.log_files) for s in table.file_slices()) == 3  # but it is shown


def test_folders_without_end_are_refused(tmp_path):
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "x")))
    deep = tmp_path / "t" / "/".join("d" * 1 for _ in range(40))
    deep.mkdir(parents=True)
    (deep / "file").touch()
    with pytest.raises(CorruptTable, match="nested deeper"):
        table.scan().to_arrow()


def test_foreign_folders_and_files_beside_the_partitions_do_not_disturb(tmp_path):
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "x")))
    (tmp_path / "t/notes").mkdir()
    (tmp_path / "t/notes/readme.txt").write_text("hello")
    (tmp_path / "t/a/stray.parquet").write_bytes(b"PAR1")
    shutil.copy(log_files(tmp_path / "t")[0], tmp_path / "t/notes/")
    assert ids(table.scan().to_arrow()) == [1]


def test_a_table_whose_merge_needs_java_code_is_refused_by_name(tmp_path):
    create(tmp_path / "t").upsert(rows((1, "a", 1, "x")))
    file = tmp_path / "t/.hoodie/hoodie.properties"
    text = file.read_text().replace("=EVENT_TIME_ORDERING", "=CUSTOM")
    file.write_text(text + "hoodie.compaction.payload.class=org.example.Mine\n")
    with pytest.raises(Unsupported, match=r"org\.example\.Mine"):
        mainstem.open_table(tmp_path / "t").scan().to_arrow()


def test_incremental_and_snapshot_plans_are_importable_without_a_table(tmp_path):
    storage = storage_at(tmp_path / "none")
    for plan in (snapshot.scan(storage), incremental.changes(storage)):
        with pytest.raises(Invalid, match="no Hudi table"):
            plan.to_arrow()


ASKED = {
    "batches": lambda plan: sum(batch.num_rows for batch in plan.to_batches()),
    "reader": lambda plan: plan.to_reader().read_all().num_rows,
    "count": lambda plan: plan.count_rows(),
    "splits": lambda plan: len(plan.splits()),
    "schema": lambda plan: len(plan.schema.names[:1]),
}


@pytest.mark.parametrize("ask", ASKED)
def test_a_view_is_planned_again_when_java_archives_its_clean_meanwhile(tmp_path, ask) -> None:
    create(tmp_path / "t")
    table = mainstem.open_table(tmp_path / "t", {**OPTIONS, "hoodie.clean.commits.retained": "1"})
    for ts in range(3):
        done = table.upsert(rows((1, "x", ts, "n")))
        table.compact()
    assert table.clean()
    looked: list[str] = []

    def archived_by_java(path: str) -> None:
        if path.endswith(".clean"):
            looked.append(path)
            for file in (tmp_path / "t/.hoodie/timeline").glob("*.clean*"):
                file.unlink()

    storage = Wrapped(tmp_path / "t", read=archived_by_java)
    assert ASKED[ask](snapshot.scan(storage, as_of=done.instant)) == 1
    assert looked
