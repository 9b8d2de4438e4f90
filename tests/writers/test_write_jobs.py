"""Goal: rows that tasks of an engine write are committed once, whichever attempts ran; nothing else stays.

Method: jobs whose tasks are pickled as engines do and run here: repeated, in pieces, after their job's end.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

import mainstem
from mainstem.engines.write_job import WriteJob, WriteTask
from mainstem.errors import Invalid, RolledBack, Unavailable, Unsupported

pytestmark = pytest.mark.here("tasks open the table again")

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("city", pa.string()), ("fare", pa.float64())])


def rows(keys: range, ts: int = 1, fare: float = 1.0) -> pa.Table:
    count = len(keys)
    return pa.table(
        [[f"k{i}" for i in keys], [ts] * count, ["oslo" if i % 2 else "rome" for i in keys], [fare] * count],
        SCHEMA,
    )


def made(place, **kind: object) -> mainstem.Table:
    kind = {"record_key": "id", "ordering": "ts", "buckets": 3, "partition_by": "city", **kind}
    return mainstem.create_table(place, SCHEMA, **kind)


def of_kind(kind: str, place) -> mainstem.Table:
    if kind == "no key":
        return mainstem.create_table(place, SCHEMA, partition_by="city")
    if kind == "no buckets":
        return made(place, buckets=None, properties={"hoodie.index.type": "SIMPLE"})
    return made(place)


def sent(task: WriteTask) -> WriteTask:
    return pickle.loads(pickle.dumps(task))


def keys_of(table: mainstem.Table) -> list[str]:
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("kind", ["buckets", "no buckets", "no key"])
def test_of_repeated_attempts_one_counts_and_no_file_of_others_stays(tmp_path, kind) -> None:
    table = of_kind(kind, tmp_path / "t")
    job = WriteJob(table, "insert")
    task = job.begin(SCHEMA)
    parts = [rows(range(start, start + 10)) for start in (0, 10, 20)]
    attempts = [[sent(task).write(part.to_batches(max_chunksize=4)) for _ in range(3)] for part in parts]
    assert table.scan().count_rows() == 0  # nothing is visible before the commit
    outcome = job.commit([of_part[1] for of_part in attempts])
    assert outcome.rows == 30 and keys_of(table) == sorted(f"k{i}" for i in range(30))
    assert set(table.files()["state"].to_pylist()) == {"current"}
    assert len(table.timeline()) == 1


@pytest.mark.parametrize("kind", ["buckets", "no buckets"])
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_attempt_that_goes_on_after_the_end_of_its_job_leaves_nothing(tmp_path, kind, end) -> None:
    table = of_kind(kind, tmp_path / "t")
    job = WriteJob(table)
    task = job.begin(SCHEMA)
    counted = sent(task).write(rows(range(5)))

    def lost_sight_of() -> Iterator[pa.Table]:
        yield rows(range(100, 250_000), fare=7.0)  # large enough to be written at once
        job.commit([counted]) if end == "commit" else job.abort()
        yield rows(range(50, 60))

    with pytest.raises(RolledBack, match="its job has ended"):
        sent(task).write(lost_sight_of())
    with pytest.raises(RolledBack, match="its job has ended"):
        sent(task).write(rows(range(60, 70)))
    assert keys_of(table) == ([f"k{i}" for i in range(5)] if end == "commit" else [])
    assert table.files()["state"].to_pylist() == ["current"] * (job.outcome.files if end == "commit" else 0)


@pytest.mark.parametrize(
    ("operation", "given"),
    [
        ("upsert", rows(range(5, 15), ts=2, fare=9.0)),
        ("insert", rows(range(20, 30))),
        ("delete", rows(range(3)).select(["id", "city"])),
        ("update_columns", rows(range(4), ts=3, fare=5.0).drop_columns([])),
        ("insert_overwrite", rows(range(0, 8, 2), ts=5)),
        ("insert_overwrite_table", rows(range(0, 8, 2), ts=5)),
    ],
)
@pytest.mark.supports("Engines", "writes that tasks share: every operation but bulk_insert")
def test_each_operation_does_in_tasks_what_it_does_in_one_call(tmp_path, operation, given) -> None:
    partial = {"properties": {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}}
    kind = partial if operation == "update_columns" else {}
    tables = [made(tmp_path / name, **kind) for name in ("tasks", "call")]
    for table in tables:
        table.upsert(rows(range(10)))
    getattr(tables[1], operation)(given)
    job = WriteJob(tables[0], operation)
    task = job.begin(given.schema)
    halves = [given.slice(0, 3), given.slice(3)]
    outcome = job.commit([sent(task).write(half) for half in halves])
    assert outcome.status == "committed" and outcome.rows == given.num_rows
    found, meant = (t.scan(columns=SCHEMA.names).to_arrow().sort_by("id") for t in tables)
    assert found.equals(meant)


def test_new_columns_are_added_and_values_cast_where_nothing_is_lost(tmp_path) -> None:
    table = made(tmp_path / "t")
    wider = rows(range(4)).append_column("tip", pa.array([1, None, 3, 4]))
    as_pandas = wider.set_column(1, "ts", pa.array([1.0] * 4))  # whole numbers with nulls come as doubles
    job = WriteJob(table)
    task = job.begin(as_pandas.schema)
    job.commit([sent(task).write(as_pandas)])
    assert table.schema.field("tip").type == pa.int64() and table.schema.field("ts").type == pa.int64()
    assert table.scan(columns=["tip"]).to_arrow()["tip"].null_count == 1


def test_a_batch_that_a_commit_holds_is_not_written_again(tmp_path) -> None:
    table, guard = made(tmp_path / "t"), mainstem.StreamGuard("nightly", 7)
    job = WriteJob(table, guard=guard)
    first = job.commit([job.begin(SCHEMA).write(rows(range(3)))])
    again = WriteJob(table, guard=guard)
    task = again.begin(SCHEMA)
    assert task.spec is None and sent(task).write(rows(range(9))) == b""
    assert again.commit([]).status == "already_committed" and again.outcome.instant == first.instant
    assert len(keys_of(table)) == 3


def test_a_job_without_rows_publishes_nothing(tmp_path) -> None:
    table = made(tmp_path / "t")
    job = WriteJob(table)
    assert job.commit([sent(job.begin(SCHEMA)).write(rows(range(0)))]).status == "empty"
    assert WriteJob(table).commit([]).status == "empty"
    table.upsert(rows(range(2)))
    assert WriteJob(table, "insert_overwrite_table").commit([]).status == "committed"
    assert keys_of(table) == [] and len(table.timeline()) == 2


@pytest.mark.disk("a worker of another machine")
def test_a_worker_that_does_not_see_the_table_says_so_and_makes_nothing(tmp_path) -> None:
    task = WriteJob(made(tmp_path / "t")).begin(SCHEMA)
    elsewhere = replace(task.spec, location=replace(task.spec.location, path=str(tmp_path / "nowhere")))
    with pytest.raises(Unavailable, match="this worker finds no table at its path"):
        WriteTask(elsewhere).write(rows(range(3)))
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "loop").symlink_to("loop")
    broken = replace(task.spec, location=replace(task.spec.location, path=str(tmp_path / "loop")))
    with pytest.raises(Unavailable, match=r"this worker cannot write to the table: .*symbolic links"):
        WriteTask(broken).write(rows(range(3)))


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda table: WriteJob(table, "bulk_insert"), Unsupported, "use insert or upsert"),
        (lambda table: WriteJob(table, "delete_partition"), Unsupported, "call Table.delete_partition"),
        (lambda table: WriteJob(table, "merge"), Invalid, "operation 'merge'"),
        (
            lambda table: WriteJob(table).begin().write(rows(range(2)).append_column("x", [[1, 2]])),
            Invalid, "x",
        ),
        (lambda table: WriteJob(table).begin().write(rows(range(2)).drop_columns(["fare"])), Invalid, "fare"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(tmp_path, call: Callable, kind, said) -> None:
    table = made(tmp_path / "t")
    with pytest.raises(kind, match=said):
        call(table)
    assert keys_of(table) == []
