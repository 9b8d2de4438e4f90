"""Goal: a row that comes late does not bring back what was deleted before a compaction, and nothing is lost.

Method: tables of one file group, in which a key is deleted with an ordering value, compacted and written
again, in every order that matters; with each type of ordering value, with writes in flight, with services,
failures and the metadata table around. Every short history: ``tests/model``. Java: ``tests/interop``.
"""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid, Unavailable
from mainstem.formats.log_file import BlockKind, Header
from mainstem.formats.native_log import NativeBlock
from mainstem.readers.rows import last_deletes as last_deletes_module
from mainstem.readers.rows.last_deletes import last_deletes
from mainstem.readers.rows.native_logs import blocks_of
from mainstem.readers.rows.split import Split
from mainstem.services import compact_group, compaction
from mainstem.services.kept_deletes import KeptDeletes
from mainstem.storage import paths
from mainstem.truetime.instant_times import instant_text, parse_wall
from mainstem.writers.write_spec import DELETE_MARK, DELETE_ROWS, MERGE_ROWS
from tests.services.city_table import QUICK

pytestmark = pytest.mark.supports("Services", "compaction: late rows do not bring deleted rows back")

KEEP = "hoodie.mainstem.keep.tombstones"
INT64 = pa.int64()


def schema(kind: pa.DataType = INT64) -> pa.Schema:
    return pa.schema(
        [("id", pa.string()), ("ts", kind), ("value", pa.string()), ("_hoodie_is_deleted", pa.bool_())]
    )


def make(path: Path, kind: pa.DataType = INT64, version: int = 9, **properties: Any) -> mainstem.Table:
    given = {**QUICK, **{key.replace("__", "."): value for key, value in properties.items()}}
    return mainstem.create_table(
        path, schema(kind), record_key="id", ordering="ts", buckets=1, table_version=version, properties=given
    )


def rows(key: str, ts: Any, value: str | None, kind: pa.DataType = INT64) -> pa.Table:
    """One row; without a value it is a delete."""
    return pa.table(
        {"id": [key], "ts": [ts], "value": [value], "_hoodie_is_deleted": [value is None]},
        schema=schema(kind),
    )


def put(table: mainstem.Table, key: str, ts: Any, value: str | None) -> None:
    table.upsert(rows(key, ts, value, table.schema.field("ts").type))


def found(table: mainstem.Table, **options: Any) -> dict[str, str]:
    listed = table.scan(columns=["id", "value"], **options).to_arrow().to_pylist()
    return {row["id"]: row["value"] for row in listed}


def kept_files(table: mainstem.Table) -> list[str]:
    """Names of the log files of kept deletes, oldest first."""
    bases = {f.name for f in Path(table.path).glob("*.parquet") if paths.parse_base_name(f.name)}
    names = {paths.kept_deletes_name(base, native=native) for base in bases for native in (False, True)}
    return sorted(f.name for f in Path(table.path).iterdir() if f.name in names)


def kept(table: mainstem.Table) -> dict[str, Any]:
    """Key -> ordering value of the deletes that the newest compaction kept, {} if there are none."""
    newest = next(s for s in table.file_slices() if s.latest)
    names = set(newest.log_files) - set(newest.later_logs)
    deletes = [block.deletes() for name in names for block in blocks_of(table.opened.seams.storage, name)]
    listed = [row for found in deletes for row in found.to_pylist()]
    return {row["record_key"]: row["ordering"] for row in listed}


def kept_since(table: mainstem.Table, name: str) -> list[str]:
    """The compactions that first kept the deletes in a file, oldest first."""
    blocks = blocks_of(table.opened.seams.storage, name)
    native = [block.kept_since() for block in blocks if isinstance(block, NativeBlock)]
    told = [instant for found in native if found is not None for instant in found.tolist()]
    return sorted(set(told or (block.headers[Header.INSTANT_TIME] for block in blocks)))


@pytest.fixture(params=[9, 10])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> mainstem.Table:
    """k was deleted at 5, and b is there; all is compacted."""
    table = make(tmp_path / "t", version=request.param)
    put(table, "k", 4, "first")
    put(table, "b", 1, "b")
    put(table, "k", 5, None)
    table.compact()
    return table


# -- what later writes meet ------------------------------------------------------------------------------


def test_an_older_row_that_comes_after_a_compaction_stays_deleted_and_a_newer_one_counts(table):
    assert kept(table) == {"k": 5}
    put(table, "k", 4, "late")
    assert found(table) == {"b": "b"}
    put(table, "k", 5, "as new")
    assert found(table) == {"b": "b", "k": "as new"}
    put(table, "k", 6, "newer")
    table.compact()
    assert found(table) == {"b": "b", "k": "newer"} and kept(table) == {}


def test_the_next_compactions_keep_a_delete_as_well(table):
    for number in range(3):
        put(table, "other", number, "row")
        table.compact()
        assert kept(table) == {"k": 5} and len(kept_files(table)) == number + 2
    put(table, "k", 4, "late")
    table.compact()
    assert found(table) == {"b": "b", "other": "row"} and kept(table) == {"k": 5}


def test_a_delete_that_lost_against_its_row_is_kept_and_changes_nothing(table):
    put(table, "b", 0, None)
    table.compact()
    put(table, "b", 0, "late")
    assert found(table) == {"b": "b"}
    table.compact()
    assert found(table) == {"b": "b"}


def test_a_delete_without_an_ordering_value_is_not_kept_and_forgets_the_one_before(table):
    table.delete(pa.table({"id": ["k", "b"]}))
    table.compact()
    assert kept(table) == {}
    put(table, "k", 1, "again")
    assert found(table) == {"k": "again"}


@pytest.mark.parametrize(
    "kind, low, high",
    [
        (pa.int32(), 3, 4),
        (pa.int64(), -1, 0),
        (pa.float32(), 0.5, 0.75),
        (pa.float64(), -0.5, 0.0),
        (pa.string(), "a", "b"),
        (pa.date32(), datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)),
        (pa.timestamp("us", "UTC"), datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2)),
        (pa.timestamp("ms", "UTC"), datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2)),
        (pa.decimal128(12, 3), Decimal("1.125"), Decimal("1.250")),
    ],
    ids=str,
)
def test_ordering_values_of_every_type_are_kept(tmp_path, kind, low, high):
    table = make(tmp_path / "t", kind)
    put(table, "k", high, None)
    put(table, "b", high, "b")
    table.compact()
    assert list(kept(table)) == ["k"]
    put(table, "k", low, "late")
    assert found(table) == {"b": "b"}
    table.compact()
    put(table, "k", high, "as new")
    assert found(table) == {"b": "b", "k": "as new"}


def test_a_delete_at_the_int_0_which_java_reads_as_no_value_is_forgotten(tmp_path):
    table = make(tmp_path / "t", pa.int32())
    put(table, "zero", 0, None)
    put(table, "k", 1, None)
    table.compact()
    assert kept(table) == {"k": 1}


# -- deletes of SQL's statements, which no column marks -----------------------------------------------------


PLAIN = schema().remove(3)


def unmarked(path: Path, **properties: str) -> mainstem.Table:
    """A table whose rows cannot be marked as deletes."""
    given = {**QUICK, **properties}
    return mainstem.create_table(path, PLAIN, record_key="id", ordering="ts", buckets=1, properties=given)


def merge(table: mainstem.Table, *given: tuple[str, int, str | None]) -> None:
    """What MERGE does: rows, and deletes of rows that were read, which have no value here."""
    listed = [dict(zip(PLAIN.names, row, strict=True)) for row in given]
    found = pa.Table.from_pylist(listed, schema=PLAIN)
    with table.begin(MERGE_ROWS) as txn:
        txn.write(found.append_column(DELETE_MARK, found["value"].is_null()))
        txn.commit()


@pytest.mark.parametrize("order", [{}, {"hoodie.clustering.plan.strategy.sort.columns": "value"}])
def test_a_delete_of_a_merge_outlives_compactions_though_no_column_marks_deletes(tmp_path, order):
    table = unmarked(tmp_path / "t", **order)
    merge(table, ("k", 6, "first"), ("b", 1, "b"), ("m", 3, "m"))
    merge(table, ("k", 7, None), ("c", 1, "c"))
    with table.begin(DELETE_ROWS) as txn:
        txn.write(rows("m", 4, None).select(["id", "ts"]))
        txn.commit()
    table.compact()
    assert kept(table) == {"k": 7, "m": 4}
    merge(table, ("k", 6, "late"), ("m", 3, "late"))
    assert found(table) == {"b": "b", "c": "c"}
    table.compact()
    merge(table, ("k", 6, "later still"), ("m", 4, "as new"))
    assert found(table) == {"b": "b", "c": "c", "m": "as new"} and kept(table) == {"k": 7, "m": 4}


def test_where_no_delete_has_an_ordering_value_nothing_is_read_for_them(tmp_path, monkeypatch):
    table = unmarked(tmp_path / "t")
    merge(table, ("k", 6, "first"))
    merge(table, ("b", 1, "b"))
    table.delete(pa.table({"id": ["k"]}))
    task = planned_task(table)
    with monkeypatch.context() as patched:
        patched.setattr(compact_group.GroupTask, "_keep", lambda *_: 1 / 0)
        table.run_compaction()
    assert found(table) == {"b": "b"} and kept_files(table) == []
    # Who did not read them looks at delete blocks, and no further.
    decoded, kinds = last_deletes_module.entries_of, []

    def noted(run: Any, spec: Any) -> Any:
        kinds.extend(block.kind for _, block in run)
        return decoded(run, spec)

    monkeypatch.setattr(last_deletes_module, "entries_of", noted)
    split = Split("", task.operation.file_id, None, task.operation.log_files, task.spec)
    assert len(last_deletes(table.opened.seams.storage, split, 1 << 20)) == 0
    assert kinds == [BlockKind.DELETE]


def test_who_finds_the_base_file_made_looks_for_deletes_in_the_logs(tmp_path, monkeypatch):
    table = unmarked(tmp_path / "t")
    merge(table, ("k", 7, None), ("b", 1, "b"))
    task = planned_task(table)
    with monkeypatch.context() as patched:
        patched.setattr(KeptDeletes, "content", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            task.run("0" * 16)
    table.run_compaction()
    assert kept(table) == {"k": 7}


# -- which tables ----------------------------------------------------------------------------------------


def test_new_tables_with_an_ordering_field_and_buckets_keep_deletes_for_a_day(tmp_path):
    plain = {"record_key": "id", "properties": QUICK}
    by_time = mainstem.create_table(tmp_path / "a", schema(), ordering="ts", buckets=1, **plain)
    assert by_time.properties[KEEP] == "24"
    assert KEEP not in mainstem.create_table(tmp_path / "b", schema(), buckets=1, **plain).properties
    given = {**QUICK, "hoodie.index.type": "SIMPLE"}
    simple = mainstem.create_table(
        tmp_path / "c", schema(), record_key="id", ordering="ts", properties=given
    )
    assert KEEP not in simple.properties
    with pytest.raises(Invalid, match=f"{KEEP}='soon', expected a whole number"):
        make(tmp_path / "d", hoodie__mainstem__keep__tombstones="soon")


def test_a_table_that_does_not_say_so_keeps_none(tmp_path):
    table = make(tmp_path / "t", hoodie__mainstem__keep__tombstones="0")
    put(table, "k", 5, None)
    put(table, "b", 5, "b")
    table.compact()
    assert kept_files(table) == []
    put(table, "k", 4, "late")
    assert found(table) == {"b": "b", "k": "late"}
    assert "forgets deletes" in str(table.cautions[0])


def test_a_table_says_what_is_left_of_the_case(table):
    late = table.cautions[0]
    assert late.name == "late row" and KEEP in late.text and "still in flight" in late.text


def test_a_table_that_cannot_keep_deletes_says_so_whatever_its_columns(tmp_path):
    assert "still in flight" in unmarked(tmp_path / "a").cautions[0].text
    for name, given in (("b", {KEEP: "0"}), ("c", {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"})):
        late = unmarked(tmp_path / name, **given).cautions[0]
        assert late.name == "late row" and "forgets deletes" in late.text
    no_buckets = mainstem.create_table(
        tmp_path / "d", PLAIN, record_key="id", ordering="ts",
        properties={**QUICK, KEEP: "24", "hoodie.index.type": "SIMPLE"},
    )  # fmt: skip
    assert "forgets deletes" in no_buckets.cautions[0].text


# -- writes in flight ------------------------------------------------------------------------------------


def test_a_delete_is_forgotten_while_a_write_that_began_after_it_is_in_flight(tmp_path):
    table = make(tmp_path / "t")
    put(table, "k", 5, None)
    write = table.begin("upsert")
    put(table, "m", 5, None)
    table.compact()
    assert kept(table) == {"m": 5}, "only what was deleted behind it"
    write.write(rows("k", 5, "as new"))
    write.commit()
    assert found(table) == {"k": "as new"}, "it won against the delete, and does so still"
    put(table, "m", 4, "late")
    assert found(table) == {"k": "as new"}


@pytest.mark.parametrize("ts, stays", [(4, False), (5, True), (6, True)])
def test_a_delete_is_kept_if_the_write_across_the_compaction_has_ended_by_then(tmp_path, ts, stays):
    table = make(tmp_path / "t")
    put(table, "k", 5, None)
    put(table, "other", 5, None)
    write = table.begin("upsert")
    write.write(rows("k", ts, "across"))
    planned = table.schedule_compaction()
    write.commit()
    table.run_compaction(planned)
    assert kept(table) == ({"other": 5} if ts == 5 else {"other": 5, "k": 5})
    assert found(table) == ({"k": "across"} if stays else {})
    put(table, "k", 4, "late")
    put(table, "other", 4, "late")
    assert found(table) == ({"k": "across"} if stays else {})


def test_behind_a_delete_without_a_value_that_crosses_any_row_counts(tmp_path):
    table = make(tmp_path / "t")
    put(table, "k", 5, None)
    gone, row = table.begin("delete"), table.begin("upsert")
    gone.write(pa.table({"id": ["k"]}))
    row.write(rows("k", 1, "across"))
    planned = table.schedule_compaction()
    gone.commit()
    row.commit()
    before = found(table)
    table.run_compaction(planned)
    assert found(table) == before == {"k": "across"} and kept(table) == {}


# -- how long --------------------------------------------------------------------------------------------


def planned_task(table: mainstem.Table) -> compact_group.GroupTask:
    """The work of a compaction that is planned and not executed."""
    planned = next((i.requested for i in table.timeline() if i.action == "compaction"), None)
    planned = planned or table.schedule_compaction()
    assert planned
    (task,) = compaction._begun(table.writer_context(), planned, 1).tasks
    return task


def is_kept_at(table: mainstem.Table, hours: float) -> bool:
    """Whether a compaction so many hours after the newest one would keep something."""
    task = planned_task(table)
    newest = next(s for s in table.file_slices() if s.latest).base_instant
    later = instant_text(parse_wall(newest) + datetime.timedelta(hours=hours))
    base = paths.base_name(task.operation.file_id, "0-0-0", later)
    made = KeptDeletes(later, task.operation, task.spec, task.schema, base, task.keep_hours, 1 << 20)
    return made.content(table.opened.seams.storage) is not None


def test_a_delete_is_forgotten_after_as_many_hours_as_the_table_says(table):
    put(table, "b", 2, "b")
    assert is_kept_at(table, 23.9)
    assert not is_kept_at(table, 24.1)


def test_the_time_counts_from_the_compaction_that_kept_a_delete_first(table):
    first = next(s for s in table.file_slices() if s.latest).base_instant
    put(table, "m", 7, None)
    table.compact()
    (name,) = (n for n in kept_files(table) if first not in n)
    instants = kept_since(table, name)
    newest = next(s for s in table.file_slices() if s.latest).base_instant
    # Deletes of three hours share a block.
    assert instants in ([first, newest], [newest])
    assert kept(table) == {"k": 5, "m": 7}


def test_compactions_at_short_intervals_do_not_make_a_delete_younger(table, monkeypatch):
    first = next(s for s in table.file_slices() if s.latest).base_instant
    monkeypatch.setattr("mainstem.services.kept_deletes._BLOCKS_PER_HORIZON", 10**9)
    for number in range(3):
        put(table, f"m{number}", 7, None)
        table.compact()
    instants = kept_since(table, kept_files(table)[-1])
    assert len(set(instants)) == 4 and instants[0] == first


# -- what others see -------------------------------------------------------------------------------------


def test_kept_deletes_alone_make_no_compaction_due_and_are_not_read(table):
    assert table.schedule_compaction() is None and table.compact() == []
    explained = table.scan().explain()
    assert (explained.base_files_read, explained.log_files_read) == (1, 0)
    assert found(table, mode="read_optimized") == {"b": "b"}
    put(table, "c", 1, "c")
    assert table.scan().explain().log_files_read == 2
    assert table.schedule_compaction() is not None


def test_changes_and_views_of_the_past_know_nothing_of_them(table):
    start = table.timeline()[-1].completion
    put(table, "c", 1, "c")
    mark = table.timeline()[-1].completion
    put(table, "m", 5, None)
    wanted = {key: table.changes(after=at, deletes=True).to_arrow().select(["id", "_change_type"]).to_pylist()
              for key, at in (("all", None), ("new", start))}  # fmt: skip
    table.compact()
    for key, at in (("all", None), ("new", start)):
        told = table.changes(after=at, deletes=True).to_arrow().select(["id", "_change_type"]).to_pylist()
        assert sorted(map(str, told)) == sorted(map(str, wanted[key]))
    assert found(table, as_of_completion=mark) == {"b": "b", "c": "c"}
    assert found(table, as_of=table.timeline()[0].requested) == {"k": "first"}


def test_the_commit_and_the_metadata_table_name_the_file(tmp_path):
    table = make(tmp_path / "t", hoodie__metadata__enable="true")
    table.indexes.create("record_index")
    put(table, "k", 5, None)
    put(table, "b", 5, "b")
    table.compact()
    (name,) = kept_files(table)
    put(table, "k", 4, "late")
    report = table.validate_metadata()
    assert report is not None and not report.differences
    assert found(table) == {"b": "b"}
    assert name in next(s for s in table.file_slices() if s.latest).log_files


def test_log_compactions_leave_them_alone(table):
    put(table, "k", 4, "late")
    put(table, "c", 1, "c")
    (done,) = table.log_compact()
    assert done.log_files == 2
    assert found(table) == {"b": "b", "c": "c"}
    table.compact()
    assert found(table) == {"b": "b", "c": "c"} and kept(table) == {"k": 5}


def test_logs_on_both_sides_of_them_are_not_merged(tmp_path):
    table = make(tmp_path / "t")
    write = table.begin("upsert")
    write.write(rows("m", 5, "across"))
    put(table, "m", 5, None)
    table.compact()
    write.commit()
    put(table, "m", 4, "late")
    assert found(table) == {} and kept(table) == {"m": 5}
    assert table.log_compact() == []
    assert found(table) == {}


def test_a_clean_removes_them_with_their_base_file(table):
    (first,) = kept_files(table)
    for number in range(3):
        put(table, "c", number, "c")
        table.compact()
    cleaner = mainstem.open_table(table.path, {"hoodie.clean.commits.retained": "1"})
    cleaner.clean()
    assert first not in kept_files(table) and len(kept_files(table)) >= 1
    put(table, "k", 4, "late")
    assert found(table) == {"b": "b", "c": "c"}


def test_a_restore_takes_them_back_with_the_compaction(tmp_path):
    table = make(tmp_path / "t")
    put(table, "k", 4, "first")
    put(table, "k", 5, None)
    saved = table.savepoint()
    put(table, "m", 5, None)
    table.compact()
    (name,) = kept_files(table)
    table.restore(saved.instant)
    assert not (Path(table.path) / name).exists()
    assert kept_files(table) == [] and len(list(Path(table.path).glob(".*.log.*"))) == 2
    put(table, "m", 4, "not late")
    assert found(table) == {"m": "not late"}


def test_a_savepoint_holds_them_while_the_table_is_cleaned_and_a_restore_brings_them_back(table):
    saved = table.savepoint()
    for number in range(3):
        put(table, "c", number, "c")
        table.compact()
    mainstem.open_table(table.path, {"hoodie.clean.commits.retained": "1"}).clean()
    table.restore(saved.instant)
    put(table, "k", 4, "late")
    assert found(table) == {"b": "b"}


# -- failures ----------------------------------------------------------------------------------------------


def test_an_execution_that_failed_between_the_two_files_is_finished_by_the_next(tmp_path, monkeypatch):
    table = make(tmp_path / "t")
    put(table, "k", 5, None)
    planned = table.schedule_compaction()

    def full_disk(*_given: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(KeptDeletes, "content", full_disk)
        with pytest.raises(Unavailable, match="did not end"):
            table.run_compaction()
    assert list(Path(table.path).glob("*.parquet")) and kept_files(table) == []
    (done,) = table.run_compaction()
    assert done.requested == planned and kept(table) == {"k": 5}


def test_a_file_that_an_earlier_execution_made_is_used(tmp_path, monkeypatch):
    table = make(tmp_path / "t")
    put(table, "k", 5, None)
    table.schedule_compaction()
    with monkeypatch.context() as patched:
        patched.setattr(compaction.Execution, "complete", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            table.run_compaction()
    (name,) = kept_files(table)
    put(table, "k", 5, "as new")
    monkeypatch.setattr(KeptDeletes, "content", lambda *_: 1 / 0)
    table.run_compaction()
    assert kept_files(table) == [name] and kept(table) == {"k": 5} and found(table) == {"k": "as new"}


def test_an_execution_that_does_not_know_of_the_file_of_another_one_does_not_complete(tmp_path, monkeypatch):
    table = make(tmp_path / "t")
    put(table, "k", 5, None)
    planned = table.schedule_compaction()
    keep = compact_group.GroupTask._keep

    def overtaken(self: Any, storage: Any, identity: str) -> None:
        keep(self, storage, identity)  # another executor, which found something to keep

    with monkeypatch.context() as patched:
        patched.setattr(compact_group.GroupTask, "_keep", overtaken)
        with pytest.raises(Unavailable, match="executes the compaction"):
            table.run_compaction()
    (done,) = table.run_compaction()
    assert done.requested == planned and done.completion and kept(table) == {"k": 5}


def test_a_file_that_appears_when_another_executor_completed_the_plan_without_it_is_removed(
    tmp_path, monkeypatch
):
    table = make(tmp_path / "t")
    put(table, "k", 5, None)
    task = planned_task(table)
    (name,) = [paths.kept_deletes_name(task.file_name)]
    with monkeypatch.context() as patched:
        patched.setattr(compact_group.GroupTask, "_keep", lambda *_: None)
        table.run_compaction()
    # It looked before the plan was completed, and was then stopped.
    monkeypatch.setattr(compact_group, "pending", lambda _timeline: [task.time])
    made: list[bool] = []
    put_ = compact_group.make_file

    def awake(*given: Any, **named: Any) -> Any:
        then = named.pop("then")

        def looked() -> None:
            made.append((Path(table.path) / name).exists())
            then()

        return put_(*given, **named, then=looked)

    monkeypatch.setattr(compact_group, "make_file", awake)
    with pytest.raises(Unavailable, match="was ended by another executor"):
        task._keep(table.opened.seams.storage, "0" * 16)
    assert made == [True] and not (Path(table.path) / name).exists()
    assert found(table) == {}


def test_a_rollback_of_the_compaction_removes_the_file(tmp_path, monkeypatch):
    table = make(tmp_path / "t")
    put(table, "k", 5, None)
    planned = table.schedule_compaction()
    with monkeypatch.context() as patched:
        patched.setattr(compaction.Execution, "complete", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            table.run_compaction()
    assert len(kept_files(table)) == 1
    table.rollback(planned)
    assert [f.name for f in Path(table.path).iterdir() if planned in f.name] == []
    table.compact()
    assert kept(table) == {"k": 5}


# -- overwrites ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["compaction", "overwrite"])
def test_deletes_of_a_compaction_beside_an_overwrite_do_not_lie_on_top_of_its_rows(tmp_path, first):
    table = make(tmp_path / "t")
    put(table, "k", 1, "old")
    put(table, "k", 10, None)
    planned = table.schedule_compaction()
    with table.begin("insert_overwrite") as txn:
        txn.write(rows("k", 5, "over"))
        if first == "compaction":
            table.run_compaction(planned)
            assert len(kept_files(table)) == 1
        txn.commit()
    if first == "overwrite":
        (done,) = table.run_compaction(planned)
        assert done.completion is not None and kept_files(table) == []
    assert found(table) == {"k": "over"}
    put(table, "k", 6, "newer")
    table.compact()
    assert found(table) == {"k": "newer"}


def test_a_compaction_that_an_overwrite_passed_by_after_its_deletes_were_written_steps_back(
    tmp_path, monkeypatch
):
    table = make(tmp_path / "t")
    table.create_index("column_stats")
    put(table, "k", 1, "old")
    put(table, "k", 10, None)
    planned = table.schedule_compaction()
    complete = compaction.Execution.complete

    def passed_by(self, stats):
        monkeypatch.undo()
        table.insert_overwrite(rows("k", 5, "over"))
        return complete(self, stats)

    monkeypatch.setattr(compaction.Execution, "complete", passed_by)
    (done,) = table.run_compaction(planned)
    assert done.completion is None and found(table) == {"k": "over"}
    assert [f.name for f in Path(table.path).rglob("*") if f.name.startswith(planned)] == []
    assert [f.name for f in Path(table.path).iterdir() if planned in f.name] == []
    put(table, "k", 6, "newer")
    table.compact()
    assert found(table) == {"k": "newer"} and table.validate_metadata().ok


# -- how they are found --------------------------------------------------------------------------------------


def test_logs_that_do_not_fit_into_memory_are_read_twice_with_the_same_result(tmp_path):
    table = make(tmp_path / "t")
    for number in range(4):
        put(table, f"k{number}", 5, None)
        put(table, f"b{number}", 5, "b")
    put(table, "k0", 6, "newer")
    task = planned_task(table)
    split = Split("", task.operation.file_id, None, task.operation.log_files, task.spec)
    storage = table.opened.seams.storage
    large, small = (last_deletes(storage, split, memory) for memory in (1 << 20, 1))
    assert large.keys.to_pylist() == small.keys.to_pylist() == ["k1", "k2", "k3"]
    assert large.places.tolist() == small.places.tolist() == sorted(large.places.tolist())
    assert len(set(large.places)) == 3, "each at its own commit, though the blocks are decoded together"


def test_a_log_compactions_deletes_are_at_the_place_of_the_last_log_that_it_merged(tmp_path):
    table = make(tmp_path / "t")
    put(table, "k", 5, None)
    put(table, "b", 5, "b")
    last = table.timeline()[-1].requested
    (merged,) = table.log_compact()
    task = planned_task(table)
    split = Split("", task.operation.file_id, None, task.operation.log_files, task.spec)
    deletes = last_deletes(table.opened.seams.storage, split, 1 << 20)
    assert deletes.keys.to_pylist() == ["k"] and deletes.ordering[0].to_pylist() == [5]
    assert deletes.places.tolist() == [last] and last < merged.requested


def test_rows_that_are_marked_in_data_blocks_count_each_at_its_own_commit(tmp_path):
    plain = schema().remove(3)
    table = mainstem.create_table(
        tmp_path / "t", plain, record_key="id", ordering="ts", buckets=1, properties=QUICK
    )
    written = (("a", 5, "gone"), ("b", 5, "gone"), ("b", 6, "row"), ("c", 5, "row"), ("c", 6, "gone"))
    for key, ts, value in written:
        table.upsert(pa.table({"id": [key], "ts": [ts], "value": [value]}, schema=plain))
    times = [i.requested for i in table.timeline()]
    task = planned_task(table)
    # As another engine leaves them: ours writes marked rows as deletes.
    rules = replace(task.spec.rules, delete_field="value", delete_marker="gone")
    spec = replace(task.spec, rules=rules)
    split = Split("", task.operation.file_id, None, task.operation.log_files, spec)
    for memory in (1 << 20, 1):
        deletes = last_deletes(table.opened.seams.storage, split, memory)
        told = zip(deletes.keys.to_pylist(), deletes.ordering[0].to_pylist(), deletes.places, strict=True)
        assert sorted(told) == [("a", 5, times[0]), ("c", 6, times[4])]
