"""Goal: what a Flink query reads from a table is what Python reads, in every type, and a stream's position
moves with what it handed out.

Method: plans, parts of slices and the watch of the timeline are asked without Flink; a few queries then run
in Flink, bounded and as a stream, on tables of ours and of Java's.
"""

from __future__ import annotations

import datetime as dt
import decimal
import os
import pickle

import pyarrow as pa
import pytest

pytest.importorskip("pyflink", reason="apache-flink is not installed (it has no wheel for this Python)")
from pyflink.table import EnvironmentSettings, TableEnvironment

import mainstem
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.flink import connect
from mainstem.flink.options import FlinkReadOptions
from mainstem.flink.read_types import flink_type, transport_schema
from mainstem.flink.source import plan, read
from mainstem.flink.split_reader import ReadRows, Slices
from mainstem.flink.timeline_watch import Watch
from mainstem.storage.backends import location_of
from tests.golden_tables.tables import NAMES as NAMES_OF_JAVA
from tests.golden_tables.tables import unpack

UTC = dt.UTC
OPTIONS = {"hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false"}
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
NAMES = SCHEMA.names


def rows(*numbers, n=None):
    return pa.table({"id": [f"k{i}" for i in numbers], "n": [i if n is None else n for i in numbers]}, SCHEMA)


@pytest.fixture
def table(tmp_path):
    return mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", buckets=2, properties=OPTIONS)


def found(scan):
    return sorted((row["id"], row["n"]) for row in scan.to_arrow().to_pylist())


def times(table):
    return [i.completion for i in table.timeline() if i.is_completed]


def watch(table, after="0", end=None, most=None):
    return Watch(table.path, OPTIONS, tuple(NAMES), None, after, end, 1, most)


def handed_out(table, splits):
    """Rows of the splits as a worker reads them."""
    reader = Slices(location_of(table.path), SCHEMA)
    return sorted(
        (r["id"], r["n"]) for s in splits for t in reader.tables(pickle.dumps(s)) for r in t.to_pylist()
    )


# -------------------- which rows


@pytest.mark.supports(
    "Queries", "Flink: snapshot, read optimized, incremental and time travel by completion times"
)
def test_times_choose_what_a_bounded_read_shows_both_ends_included(table):
    table.upsert(rows(1, 2))
    table.upsert(rows(2, n=20))
    table.upsert(rows(3))
    first, second, third = times(table)

    def shown(**options):
        return found(plan(table, FlinkReadOptions(**options), NAMES))

    newest = [("k1", 1), ("k2", 20), ("k3", 3)]
    assert shown() == shown(start="0") == newest
    assert shown(start=second) == [("k2", 20), ("k3", 3)]
    assert shown(start=second, end=second) == [("k2", 20)]
    assert shown(end=first) == shown(start="0", end=first) == [("k1", 1), ("k2", 2)]
    assert shown(end=third) == shown(end=str(int(third) + 10**9)) == newest
    assert shown(query_type="READ_OPTIMIZED") == []


def test_times_that_show_nothing_or_everything_by_mistake_are_refused(table):
    table.upsert(rows(1))
    with pytest.raises(Invalid, match="nothing was completed by then"):
        plan(table, FlinkReadOptions(end="20200101000000"), NAMES)
    range_before = FlinkReadOptions(start="0", end="20200101000000")
    assert plan(table, range_before, NAMES).to_arrow().num_rows == 0  # a range may be empty
    with pytest.raises(Invalid, match=r"needs read\.start-commit"):
        plan(table, FlinkReadOptions(query_type="INCREMENTAL"), NAMES)


# -------------------- the watch of a stream


@pytest.mark.supports("Queries", "Flink: streaming reads, exactly once across failures of the job")
def test_a_stream_hands_out_the_snapshot_then_what_each_look_finds_once(table):
    table.upsert(rows(1, 2))
    table.upsert(rows(1, n=10))
    position, splits = watch(table).look("0")
    assert handed_out(table, splits) == [("k1", 10), ("k2", 2)]
    assert watch(table).look(position) == (position, [])
    table.upsert(rows(3))
    table.upsert(rows(2, n=20))
    table.delete(rows(1))
    later, splits = watch(table).look(position)
    assert handed_out(table, splits) == [("k2", 20), ("k3", 3)]
    assert later == times(table)[-1]


def test_a_late_instant_is_not_missed(table):
    late = table.begin()
    late.write(rows(7))
    table.upsert(rows(1))
    position, _ = watch(table).look("0")
    late.commit()
    _, splits = watch(table).look(position)
    assert handed_out(table, splits) == [("k7", 7)]


def test_a_limit_of_commits_and_an_end_bound_a_look(table):
    for number in range(4):
        table.upsert(rows(number))
    first, second, third, _ = times(table)
    until, splits = watch(table, most=2).look(first)
    assert (until, handed_out(table, splits)) == (third, [("k1", 1), ("k2", 2)])
    until, splits = watch(table, end=second).look(first)
    assert (until, handed_out(table, splits)) == (second, [("k1", 1)])


def test_a_compaction_adds_no_rows_to_a_stream(table):
    table.upsert(rows(1, 2))
    position, _ = watch(table).look("0")
    table.compact()
    until, splits = watch(table).look(position)
    assert until > position
    assert handed_out(table, splits) == []


def test_a_stream_whose_instants_a_restore_removed_fails(table):
    table.upsert(rows(1))
    beyond = str(int(times(table)[-1]) + 1)
    with pytest.raises(Invalid, match="a restore removed instants"):
        watch(table).look(beyond)


def test_a_slice_whose_files_a_clean_removed_is_an_error(table):
    table.upsert(rows(1))
    (split,) = plan(table, FlinkReadOptions(), NAMES).splits()
    os.unlink(f"{table.path}/{split.log_files[0]}")
    slices = Slices(location_of(table.path), SCHEMA, [split])
    with pytest.raises(Unavailable, match="removed while it was read"):
        list(slices.tables(slices.first))


def test_what_a_checkpoint_left_of_a_bounded_read_is_not_taken_for_slices_of_another_moment(table):
    table.upsert(rows(1))
    splits = plan(table, FlinkReadOptions(), NAMES).splits()
    old, again = (Slices(location_of(table.path), SCHEMA, splits) for _ in range(2))
    left = old.first + len(splits) - 1
    assert sum(part.num_rows for part in again.tables(left)) == sum(p.num_rows for p in old.tables(left))
    table.upsert(rows(2))
    new = Slices(location_of(table.path), SCHEMA, plan(table, FlinkReadOptions(), NAMES).splits())
    with pytest.raises(Invalid, match="bounded read of another moment"):
        list(new.tables(left))


# -------------------- rows on their way


def test_early_moments_keep_their_fraction_in_pyflinks_coders(tmp_path):
    kind = pa.list_(pa.struct([("x", pa.int32()), ("t", pa.timestamp("us", "UTC"))]))
    schema = pa.schema([("id", pa.string()), ("a", kind)])
    table = mainstem.create_table(tmp_path / "t", schema, record_key="id", buckets=1, properties=OPTIONS)
    before_1970 = dt.datetime(1931, 5, 6, 7, 8, 9, 987654, UTC)
    table.upsert(pa.Table.from_pylist([{"id": "k", "a": [{"x": 1, "t": before_1970}, None]}], schema))
    kinds = {"id": flink_type(pa.string(), "id"), "a": flink_type(kind, "a")}
    splits = plan(table, FlinkReadOptions(), schema.names).splits()
    slices = Slices(location_of(table.path), transport_schema(kinds), splits)
    ((key, (row, nothing)),) = ReadRows(slices).eval(slices.first)
    assert (key, nothing, row[0]) == ("k", None, 1)
    moment = row[1]
    seconds = moment.replace(tzinfo=UTC).timestamp()
    assert (seconds, moment.microsecond) == (before_1970.replace(microsecond=0).timestamp(), 987654)


@pytest.mark.supports("Queries", "Flink: tables of every Hudi engine, all their types")
def test_every_table_of_java_has_types_in_flink_and_all_its_rows_reach_the_workers(tmp_path):
    for name in (name for name in NAMES_OF_JAVA if not name.endswith(".logs")):
        table = mainstem.open_table(unpack(name, tmp_path), {"mainstem.read.damaged": "skip"})
        kinds = {field.name: flink_type(field.type, field.name) for field in table.schema}
        splits = plan(table, FlinkReadOptions(), list(kinds)).splits()
        slices = Slices(location_of(table.path), transport_schema(kinds), splits)
        count = sum(rows.num_rows for at in range(len(splits)) for rows in slices.tables(slices.first + at))
        assert count == table.scan(columns=[]).count_rows(), name


# -------------------- in Flink


TYPES = pa.schema(
    [
        ("id", pa.string()), ("b", pa.bool_()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32()),
        ("d", pa.float64()), ("y", pa.binary()), ("dec", pa.decimal128(20, 4)), ("day", pa.date32()),
        ("ts3", pa.timestamp("ms", "UTC")), ("ts6", pa.timestamp("us", "UTC")), ("ltz", pa.timestamp("us")),
        ("a", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int64())),
        ("r", pa.struct([("x", pa.int32()), ("z", pa.string())])),
        ("ar", pa.list_(pa.struct([("x", pa.int32())]))),
    ]
)  # fmt: skip


def typed(key, moment):
    full = moment.replace(tzinfo=UTC)
    return {
        "id": key, "b": True, "i": -5, "l": 2**40, "f": 1.5, "d": -2.25, "y": b"\x00\xff",
        "dec": decimal.Decimal("12345.6789"), "day": moment.date(), "ts6": full, "ltz": moment,
        "ts3": full.replace(microsecond=moment.microsecond // 1000 * 1000), "a": [1, None, 3],
        "m": [("a", 1), ("b", None)], "r": {"x": 7, "z": None}, "ar": [{"x": 1}, None],
    }  # fmt: skip


def shown(flink_table):
    """Rows as dictionaries, in order."""
    names = flink_table.get_resolved_schema().get_column_names()
    with flink_table.execute().collect() as result:
        return sorted((dict(zip(names, row, strict=True)) for row in result), key=str)


def without_zone(value):
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value


@pytest.mark.supports("Engines", "Flink SQL: SELECT, joins and streaming reads, without a connector jar")
def test_flink_shows_every_type_as_it_is_stored_in_any_time_zone(tmp_path, table_environment):
    table = mainstem.create_table(tmp_path / "t", TYPES, record_key="id", buckets=2, properties=OPTIONS)
    early, late = dt.datetime(1931, 5, 6, 7, 8, 9, 987654), dt.datetime(2024, 3, 31, 1, 30, 0, 123456)
    stored = [typed("k1", late), typed("k2", early), dict.fromkeys(TYPES.names) | {"id": "k3"}]
    table.upsert(pa.Table.from_pylist(stored, TYPES))
    nested = ("a", "m", "r", "ar")
    plain = [name for name in TYPES.names if name not in (*nested, "ltz", "ts6")]
    expected = [{name: without_zone(row[name]) for name in plain} for row in stored]
    assert shown(read(table_environment, table, columns=plain)) == expected

    # PyFlink's collect() takes no nulls in arrays and no instants, and cuts microseconds off: as text.
    session = table_environment.get_config()
    before = session.get_local_timezone()
    session.set_local_timezone("Asia/Tokyo")
    try:
        rows_ = read(table_environment, table, columns=["id", "a", "m", "r", "ts6", "ar", "ltz"])
        table_environment.create_temporary_view("all_types", rows_)
        texts = ", ".join(f"CAST({n} AS STRING) {n}" for n in ("a", "m", "r", "ts6", "ltz"))
        query = f"SELECT id, {texts}, ar[1].x x, CARDINALITY(ar) c FROM all_types"
        found = shown(table_environment.sql_query(query))
        early_ones = "SELECT id FROM all_types WHERE ts6 < TIMESTAMP '1970-01-01 00:00:00'"
        filtered = shown(table_environment.sql_query(early_ones))
    finally:
        session.set_local_timezone(before)
    same = {"a": "[1, NULL, 3]", "m": "{a=1, b=NULL}", "r": "(7, NULL)", "x": 1, "c": 2}
    first = {"ts6": "2024-03-31 01:30:00.123456", "ltz": "2024-03-31 10:30:00.123456"}
    second = {"ts6": "1931-05-06 07:08:09.987654", "ltz": "1931-05-06 16:08:09.987654"}
    nothing = dict.fromkeys((*same, *first))
    assert found == [{"id": "k1", **same, **first}, {"id": "k2", **same, **second}, {"id": "k3", **nothing}]
    assert filtered == [{"id": "k2"}]


def test_a_table_of_java_is_joined_with_one_of_ours(tmp_path, table, table_environment):
    java = mainstem.open_table(unpack("basic_mor", tmp_path))
    names = java.scan(columns=["id", "name"]).to_arrow().to_pylist()[:3]
    table.upsert(pa.table({"id": [str(row["id"]) for row in names], "n": [1, 2, 3]}, SCHEMA))
    one_reader = read(table_environment, java, FlinkReadOptions(tasks=1))
    table_environment.create_temporary_view("java", one_reader)
    table_environment.create_temporary_view("ours", read(table_environment, table))
    joined = table_environment.sql_query(
        "SELECT n, java.name FROM ours JOIN java ON ours.id = CAST(java.id AS STRING)"
    )
    assert shown(joined) == [{"n": at, "name": row["name"]} for at, row in enumerate(names, 1)]


def test_a_stream_shows_what_is_committed_while_it_runs_until_it_is_cancelled(table, table_environment):
    table.upsert(rows(1, 2))
    options = FlinkReadOptions(streaming=True, check_interval_s=1, start="0", tasks=1)
    result = read(connect(table_environment), table, options).execute()
    try:
        changes = result.collect()
        first = sorted(tuple(next(changes)) for _ in range(2))
        table.upsert(rows(2, 3, n=7))
        second = sorted(tuple(next(changes)) for _ in range(2))
    finally:
        result.get_job_client().cancel().result()
    assert (first, second) == ([("k1", 1), ("k2", 2)], [("k2", 7), ("k3", 7)])


def test_a_stream_finds_its_position_by_path_and_name_whatever_the_shape_of_the_job(table, environment):
    table.upsert(rows(1))

    def uid(flink, name=None, tasks=None):
        made = read(flink, table, FlinkReadOptions(streaming=True, tasks=tasks), name=name)
        operators = flink.to_data_stream(made)._j_data_stream.getTransformation().getTransitivePredecessors()
        (found,) = (one.getUid() for one in operators if one.getUid() is not None)
        return found

    first, second = environment(tasks=1), environment(tasks=4)
    assert uid(first, "a") == uid(second, "a", tasks=2) != uid(second, "b")
    numbered = [uid(first), uid(first)]
    assert [uid(second), uid(second)] == numbered and len({uid(first, "a"), *numbered}) == 3


def test_a_plain_table_environment_cannot_stream_and_is_told_what_can(table):
    table.upsert(rows(1))
    batch = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    with pytest.raises(Unsupported, match="StreamTableEnvironment"):
        read(batch, table, FlinkReadOptions(streaming=True))
    with pytest.raises(Invalid, match="no column 'nix'"):
        read(batch, table, columns=["nix"])
    batch.create_temporary_view("t", read(batch, table))
    assert shown(batch.sql_query("SELECT COUNT(*) AS c, SUM(n) AS n FROM t")) == [{"c": 1, "n": 1}]
