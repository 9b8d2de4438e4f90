"""Goal: ranges, expressions, index rows and whole indexes are right where Java's tables show no example.

Method: each is computed for small columns made here, and compared with what Python says of the same values.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import arrow_to_avro
from mainstem.indexing.spill import spilled
from mainstem.metadata.derive.bootstrap import (
    Place,
    Sorter,
    check_single,
    pair_rows,
    placed_rows,
    sort_keys,
    table_groups,
)
from mainstem.metadata.derive.column_ranges import (
    Range,
    base_file_ranges,
    footer_ranges,
    indexed_columns,
    joined,
    ranges_of,
    ranges_of_slices,
)
from mainstem.metadata.derive.expression_functions import Expression, strftime_pattern
from mainstem.metadata.derive.index_rows import files_rows, record_index_rows, removed_blooms, secondary_rows
from mainstem.metadata.derive.short_bounds import lower_bound, upper_bound
from mainstem.metadata.derive.statistics_rows import (
    column_stats_rows,
    few_stats_rows,
    partition_ranges,
    partition_stats_rows,
    removed_stats,
    stats_rows,
)
from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.records.flat_rows import decode, encode, encode_listed, schema_of_version
from mainstem.metadata.records.row_keys import V1, V2, file_groups, hashed_texts

NAN, INF = math.nan, math.inf
SCHEMA = schema_of_version(9)
FILE_ID = "00000000-24f2-493c-a7cb-ff1bd75356a9-0"


def range_of(values: pa.Array) -> Range:
    (found,) = ranges_of(pa.table({"c": values}), ["c"])
    return found


def shown(found: Range) -> tuple[str, str, int, int]:
    return repr(found.low), repr(found.high), found.rows, found.nulls


# ------------------------------------------------------------------------------------------ ranges


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([1.0, NAN, -INF], "-inf", "nan"),
        ([NAN, None], "nan", "nan"),
        ([0.0, -0.0, 0.0], "-0.0", "0.0"),
        ([-0.0], "-0.0", "-0.0"),
        ([0.0], "0.0", "0.0"),
        ([2.0, -0.0, -1.0], "-1.0", "2.0"),
        ([None], "None", "None"),
    ],
)
def test_floats_are_ordered_as_spark_orders_them(values, low, high):
    for kind in (pa.float32(), pa.float64()):
        found = range_of(pa.array(values, kind))
        assert (repr(found.low), repr(found.high)) == (low, high)
        assert (found.rows, found.nulls) == (len(values), values.count(None))


def test_values_are_the_plain_ones_that_avro_stores():
    day = datetime.date(1969, 12, 31)
    time = datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
    assert range_of(pa.array([day])).low == -1
    assert range_of(pa.array([time], pa.timestamp("us", "UTC"))).high == 1_000_000
    assert range_of(pa.array([Decimal("-12.340"), Decimal("9")], pa.decimal128(38, 3))).low == -12340
    assert range_of(pa.array(["b", "\U0010ffff", "\ue000"])).high == "\U0010ffff"
    assert range_of(pa.array([b"\x7f", b"\x80"])).high == b"\x80"
    assert range_of(pa.array(["x", "y"]).dictionary_encode()).low == "x"
    assert range_of(pa.array([True, False])).low is False


def test_fields_of_structs_have_ranges_and_columns_that_are_missing_have_none():
    rows = pa.table({"s": pa.array([{"a": {"b": 3}}, {"a": {"b": None}}, None])})
    (found,) = ranges_of(rows, ["s.a.b", "s.a.x", "t"])
    assert (found.column, found.low, found.rows, found.nulls) == ("s.a.b", 3, 3, 2)


def test_ranges_of_batches_are_those_of_all_rows():
    batches = [pa.table({"c": pa.array(part, pa.int64())}) for part in ([5, None], [], [-2, 7], [None])]
    assert ranges_of(batches, ["c"]) == ranges_of(pa.concat_tables(batches), ["c"])


DRAWN = {
    "int8": st.integers(-128, 127),
    "uint64": st.integers(0, 2**64 - 1),
    "float": st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1.5, -2.5]),
    "double": st.sampled_from([NAN, INF, -INF, 0.0, -0.0, 1.5, -2.5]),
    "date32[day]": st.dates(),
    "timestamp[us]": st.datetimes(),
    "time32[ms]": st.times().map(lambda time: time.replace(microsecond=0)),
    "string": st.sampled_from(["", "a", "b", "\U0010ffff", "\ue000"]),
    "bool": st.booleans(),
    "binary": st.binary(max_size=2),
    "decimal": st.decimals(-9, 9, places=2),
}
ARROW = {str(kind): kind for kind in (
    pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.date32(), pa.timestamp("us"), pa.time32("ms"),
    pa.string(), pa.bool_(), pa.binary(),
)} | {"decimal": pa.decimal128(9, 2)}  # fmt: skip


@pytest.mark.parametrize("kind", DRAWN)
@given(drawn=st.data())
def test_ranges_of_slices_are_those_of_each_slice(kind, drawn):
    values = drawn.draw(st.lists(DRAWN[kind] | st.none(), min_size=1, max_size=12))
    if drawn.draw(st.booleans()):
        values = [value for value in values if value is not None] or [drawn.draw(DRAWN[kind])]
    if drawn.draw(st.booleans()):
        values = values[:1] * len(values)
    rows = pa.table({"c": pa.array(values, ARROW[kind]), "n": pa.array(range(len(values)))})
    places = st.integers(0, len(values) - 1).flatmap(
        lambda low: st.tuples(st.just(low), st.integers(0, len(values) - low))
    )
    slices = drawn.draw(st.lists(places, min_size=1, max_size=4))
    found = ranges_of_slices(rows, slices, ["c", "gone", "n"])
    alone = [ranges_of(rows.slice(*one), ["c", "gone", "n"]) for one in slices]
    assert [list(map(shown, one)) for one in found] == [list(map(shown, one)) for one in alone]
    assert [[r.type for r in one] for one in found] == [[r.type for r in one] for one in alone]


@pytest.mark.parametrize("kind", DRAWN)
@settings(max_examples=10)
@given(drawn=st.data())
def test_statistics_made_as_lists_have_the_rows_and_bytes_of_those_made_by_columns(kind, drawn):
    files, version = [], drawn.draw(st.sampled_from([V1, V2]))
    for number in range(drawn.draw(st.integers(1, 3))):
        values = drawn.draw(st.lists(DRAWN[kind] | st.none(), min_size=1, max_size=4))
        rows = pa.table({"c": pa.array(values, ARROW[kind]), "n": pa.array(range(len(values)))})
        files.append(("p" * (number % 2), f"file {number}", ranges_of(rows, ["c", "n"])))
    plain, listed = stats_rows(files, version=version), few_stats_rows(files, version=version)
    assert listed.table(plain.schema).equals(plain)
    schema = schema_of_version(8 if version == V1 else 9)
    assert encode_listed(Content.STATS, listed, schema) == encode(Content.STATS, plain, schema)


def test_joined_ranges_meet_in_the_wider_type_and_are_unknown_without_one():
    small = range_of(pa.array([1, 2], pa.int32()))
    large = range_of(pa.array([-(2**40)], pa.int64()))
    assert joined(small, large).type == pa.int64()
    assert shown(joined(large, small))[:2] == (str(-(2**40)), "2")
    halves = joined(range_of(pa.array([Decimal("1.5")])), range_of(pa.array([Decimal("0.25")])))
    assert (halves.low, halves.high, halves.type.scale) == (25, 150, 2)
    text = joined(small, range_of(pa.array(["x"])))
    assert not text.is_bounded
    assert text.rows == 3
    nothing = range_of(pa.array([None], pa.int32()))
    assert shown(joined(nothing, large))[:2] == (str(-(2**40)),) * 2


def test_a_footer_is_believed_where_it_is_exact(tmp_path):
    columns = {
        "i": pa.array([3, None, 1]), "s": ["b", "a", None], "f": [1.0, NAN, 0.5], "long": ["x" * 9000] * 3,
        "d": pa.array([Decimal("1.5"), None, Decimal("-2")], pa.decimal128(9, 1)),
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "f.parquet", row_group_size=2)
    file = pq.ParquetFile(tmp_path / "f.parquet")
    found = footer_ranges(file.metadata, [*columns, "gone"])
    assert "gone" not in found
    assert found["f"] is None, "other writers than Java leave NaN out of a footer"
    assert found["long"] is None
    assert [found["i"].low, found["s"].high, found["d"].low] == [1, "b", -20]
    asked = []

    def batches(names):
        asked.append(names)
        return [pa.Table.from_batches([b]) for b in file.iter_batches(columns=names)]

    every = {r.column: r for r in base_file_ranges(file.metadata, list(columns), batches)}
    assert asked == [["f", "long"]]
    real = {r.column: r for r in ranges_of(pa.table(columns), list(columns))}
    assert {name: shown(r) for name, r in every.items()} == {name: shown(r) for name, r in real.items()}
    assert all(r.size > 0 and r.plain_size > 0 for r in every.values())


def test_java_indexes_the_first_32_columns_that_have_a_range():
    fields = [pa.field(f"c{n}", pa.int64()) for n in range(40)]
    fields.insert(1, pa.field("list", pa.list_(pa.int64())))
    fields.insert(2, pa.field("wide", pa.decimal128(38, 2)))
    fields.insert(3, pa.field("s", pa.struct([pa.field("x", pa.string())])))
    text = arrow_to_avro(pa.schema(fields), table_name="t", meta_fields=True)
    meta = ["_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key"]
    assert indexed_columns(text) == [*meta, "c0", "wide", *(f"c{n}" for n in range(1, 31))]
    assert "wide" not in indexed_columns(text, first_version=True)
    assert indexed_columns(text, ["s.x", "list", "c39", "gone"]) == [*meta, "s.x", "c39"]
    assert indexed_columns(text, ["c1"], meta_fields=False) == ["c1"]


# ---------------------------------------------------------------------------------------- statistics


def test_a_column_that_is_not_bounded_has_no_row_and_a_tombstone_in_its_partition():
    lost = Range("c", pa.int32(), None, None, 3, 1)
    known = Range("d", pa.int32(), 1, 2, 3, 1)
    rows = stats_rows([("p", "f", [lost, known])])
    assert rows["column"].to_pylist() == ["d"]
    rows = partition_stats_rows([("p", [lost, known])], tight=True)
    assert dict(zip(rows["column"].to_pylist(), rows["deleted"].to_pylist(), strict=True)) == {
        "d": False, "c": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "high"),
    [
        ("x" * 4096, "x" * 4096),
        ("x" * 4097, "x" * 4095 + "y"),
        ("é" * 3000, "é" * 2047 + "ê"),
        ("\ud7ff" * 2000, "\ud7ff" * 1364 + "\ue000"),
        ("a" + "\U0010ffff" * 2000, "b"),
        (b"a" + b"\xff" * 5000, b"b"),
        ("\U0010ffff" * 2000, None),
        (b"\xff" * 5000, None),
    ],
    ids=range(8),
)
def test_long_bounds_are_short_and_hold_the_value(value, high):
    assert upper_bound(value) == high
    low = lower_bound(value)
    assert low <= value and len(low) <= 4096
    assert high is None or high >= value
    rows = column_stats_rows("p", "f", pa.table({"c": [value]}), ["c"])
    assert rows.num_rows == (0 if high is None else 1)
    assert high is None or max(len(rows[end][0].as_py()) for end in ("min", "max")) <= 4096


def test_rows_survive_the_way_through_the_file_in_both_versions():
    values = {
        "a": pa.array([1, None], pa.int32()), "b": pa.array([1.5, NAN]), "c": pa.array(["x", ""]),
        "d": pa.array([Decimal("-1.25"), Decimal("3")], pa.decimal128(9, 2)),
        "e": pa.array([datetime.date(2026, 1, 2)] * 2), "f": pa.array([None, None], pa.string()),
    }  # fmt: skip
    for version in (V1, V2):
        rows = column_stats_rows("", "f.parquet", pa.table(values), list(values), version=version)
        assert rows.num_rows == len(values)
        for _, keys, stored in table_groups(Content.STATS, rows, 1, schema_text=SCHEMA):
            again = decode(Content.STATS, keys, stored, SCHEMA)
        assert again.sort_by("column").to_pylist() == rows.sort_by("column").to_pylist()


def test_a_log_file_without_rows_has_rows_that_count_nothing():
    rows = column_stats_rows("p", ".f.log", [], ["a", "b"])
    assert rows["value_count"].to_pylist() == [0, 0]
    assert rows["min_kind"].to_pylist() == [0, 0]


def test_the_ranges_of_a_partition_are_those_of_its_files():
    files = [pa.table({"a": [n, n + 5], "b": [None, "x"]}) for n in (3, 1)]
    found = partition_ranges(ranges_of(rows, ["a", "b"]) for rows in files)
    assert found == ranges_of(pa.concat_tables(files), ["a", "b"])


def test_tombstones_name_every_column_of_every_file():
    rows = removed_stats("p", ["g", "f"], ["a", "b"])
    assert rows.num_rows == 4
    assert pc.all(rows["deleted"]).as_py()
    for name, file in (("f", rows.slice(0, 2)), ("g", rows.slice(2))):
        as_without_rows = column_stats_rows("p", name, [], ["a", "b"])  # Java's empty row, but deleted
        assert file.drop(["deleted"]).equals(as_without_rows.drop(["deleted"]))
    for files, columns in (([], ["a"]), (["f"], [])):
        assert removed_stats("p", files, columns).schema == rows.schema
        assert removed_stats("p", files, columns).num_rows == 0
    assert removed_blooms("p", ["g", "f"])["deleted"].to_pylist() == [True, True]


# --------------------------------------------------------------------------------------- expressions

TIMES = [datetime.datetime(2026, 3, 4, 23, 30, 5, 999999, tzinfo=datetime.UTC), None]


@pytest.mark.parametrize(
    ("function", "options", "values", "expected"),
    [
        ("identity", {}, pa.array([3, None]), [3, None]),
        ("lower", {}, pa.array(["AbC", None]), ["abc", None]),
        ("lower", {}, pa.array(["ΑΣ", "İx", None]), ["ας", "i\u0307x", None]),
        ("upper", {}, pa.array(["straße", "abc", None]), ["STRASSE", "ABC", None]),
        ("trim", {}, pa.array(["  a ", None]), ["a", None]),
        ("ltrim", {"trimString": "x"}, pa.array(["xxay"]), ["ay"]),
        ("rtrim", {}, pa.array([" a  "]), [" a"]),
        ("length", {}, pa.array(["é\U0001f600", None]), [2, None]),
        ("substring", {"pos": "2", "len": "2"}, pa.array(["abcd", "a"]), ["bc", ""]),
        ("year", {}, pa.array(TIMES, pa.timestamp("us", "UTC")), [2026, None]),
        ("month", {}, pa.array([datetime.date(2026, 3, 4)]), [3]),
        ("day", {}, pa.array(TIMES, pa.timestamp("us", "UTC")), [4, None]),
        ("hour", {}, pa.array(TIMES, pa.timestamp("us", "UTC")), [23, None]),
        ("from_unixtime", {"format": "yyyy-MM-dd"}, pa.array([0, None]), ["1970-01-01", None]),
        ("from_unixtime", {"format": "yyyy/MM/dd"}, pa.array([-1]), ["1969/12/31"]),
        ("from_unixtime", {}, pa.array([1], pa.int32()), ["1970-01-01 00:00:01"]),
        ("date_format", {"format": "dd.MM.yyyy'T'HH:mm:ss"}, pa.array(TIMES), ["04.03.2026T23:30:05", None]),
        ("to_date", {}, pa.array(TIMES, pa.timestamp("us", "UTC")), [datetime.date(2026, 3, 4), None]),
        ("date_add", {"days": "2"}, pa.array([datetime.date(2026, 2, 27)]), [datetime.date(2026, 3, 1)]),
        ("date_sub", {"days": "1"}, pa.array([datetime.date(2026, 3, 1)]), [datetime.date(2026, 2, 28)]),
    ],
)
def test_expressions_give_sparks_values(function, options, values, expected):
    assert Expression(function, options).values(pa.chunked_array([values])).to_pylist() == expected


def test_times_are_those_of_the_zone():
    column = pa.chunked_array([pa.array(TIMES, pa.timestamp("us", "UTC"))])
    assert Expression("day", zone="Europe/Berlin").values(column).to_pylist() == [5, None]


@pytest.mark.parametrize(
    ("function", "options", "values"),
    [
        ("regexp_replace", {}, pa.array(["a"])),
        ("lower", {}, pa.array([1])),
        ("year", {}, pa.array(["2026-01-01"])),
        ("from_unixtime", {}, pa.array([1.5])),
        ("date_format", {"format": "EEEE"}, pa.array(TIMES)),
        ("date_format", {"format": "yyyy"}, pa.array([datetime.date(1, 1, 1)]).cast(pa.int32())),
        ("substring", {"pos": "-1", "len": "2"}, pa.array(["abcd"])),
        ("from_unixtime", {}, pa.array([10**15])),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(function, options, values):
    with pytest.raises(Unsupported, match=function if "format" not in options else "format|type"):
        Expression(function, options).values(pa.chunked_array([values]))


def test_an_option_that_is_missing_is_named():
    with pytest.raises(Invalid, match="'len'"):
        Expression("substring", {"pos": "1"}).values(pa.chunked_array([pa.array(["a"])]))
    with pytest.raises(Unsupported, match="'%'"):
        strftime_pattern("yyyy%")


# ------------------------------------------------------------------------------------- other rows


def test_the_listing_names_partitions_files_and_tombstones():
    rows = files_rows({"p": {"b": 2, "a": 1}, "q": {}}, {"p": ["a", "old"]}, ["gone"]).to_pylist()
    assert [(r["key"], r["name"], r["size"], r["deleted"]) for r in rows] == [
        ("__all_partitions__", "p", 0, False),
        ("__all_partitions__", "q", 0, False),
        ("__all_partitions__", "gone", 0, True),
        ("p", "a", 1, False),
        ("p", "b", 2, False),
        ("p", "old", 0, True),
    ]
    assert files_rows({"": {"a": 1}})["key"].to_pylist() == ["__all_partitions__", "."]
    assert files_rows({})["name"].to_pylist() == [None]


def test_an_empty_file_is_refused_as_no_java_reader_would_read_on():
    with pytest.raises(Invalid, match="p/a is empty"):
        files_rows({"p": {"a": 0}})


def test_file_ids_are_stored_as_uuids_where_they_are_such():
    keys = pa.array(["k"])
    for file_id, encoding in ((FILE_ID, 0), (FILE_ID[:-2], 0), ("my-file-7", 1)):
        row = record_index_rows(keys, "", file_id, "20260101000000000").to_pylist()[0]
        assert (row["file_id"], row["encoding"], row["partition"]) == (file_id, encoding, "")
        assert row["instant_ms"] == 1767225600000
    with pytest.raises(Invalid, match="1 of 2 record keys are null"):
        record_index_rows(pa.array(["k", None]), "", FILE_ID, "20260101000000000")


def test_secondary_keys_are_texts_as_java_prints_them():
    keys = pa.array(["k$1", "k2"])
    day = pa.array([datetime.date(1970, 1, 2), None])
    assert secondary_rows(day, keys)["key"].to_pylist() == ["1$k\\$1", "\0$k2"]
    assert secondary_rows(pa.array([7, -1]), keys, deleted=True)["deleted"].to_pylist() == [True, True]
    with pytest.raises(Unsupported, match="secondary index on a column of type double"):
        secondary_rows(pa.array([1.5, 2.5]), keys)


# ----------------------------------------------------------------------------------- whole indexes


def slices(rows: int, parts: int):
    for number in range(parts):
        keys = [f"key-{n}\U0001f600" if n % 97 == 0 else f"key-{n}" for n in range(number, rows, parts)]
        batches = [pa.array(keys[low : low + 100]) for low in range(0, len(keys), 100)]
        yield Place(f"p{number}", f"{number:08d}{FILE_ID[8:]}", "20260101000000000"), batches


def whole(groups: int, **options) -> list[dict]:
    found = []
    places, sorter = sort_keys(slices(5000, 7), groups, **options)
    for group, texts, numbers in sorter.sorted_groups():
        check_single(texts, numbers, places)
        keys, values = encode(Content.RECORDS, placed_rows(texts, numbers, places), SCHEMA)
        assert keys.to_pylist() == sorted(keys.to_pylist())
        assert set(file_groups(texts, groups).tolist()) <= {group}
        found += decode(Content.RECORDS, keys, values, SCHEMA).to_pylist()
    return found


def test_a_record_index_has_every_key_once_in_its_file_group(tmp_path):
    rows = whole(13)
    assert len({row["key"] for row in rows}) == len(rows) == 5000
    places = {row["key"]: (row["partition"], row["file_id"]) for row in rows}
    for place, batches in slices(5000, 7):
        keys = [key for batch in batches for key in batch.to_pylist()]
        assert {places[key] for key in keys} == {(place.partition, place.file_id)}
    with spilled(str(tmp_path)) as keep:
        assert whole(13, keep=keep) == rows


def test_many_runs_give_the_same_groups_as_one_and_are_gone_afterwards(tmp_path):
    keys = [pa.array([f"k{n}" for n in range(low, low + 50)]) for low in range(0, 1000, 50)]
    found = []
    with spilled(str(tmp_path)) as keep:
        for size in (1, 2**20):
            sorter = Sorter(4, keep=keep, run_bytes=size)
            for number, batch in enumerate(keys):
                sorter.add(batch, number)
            groups = [(g, k.to_pylist(), n.tolist()) for g, k, n in sorter.sorted_groups()]
            found.append(groups)
        assert len(list(tmp_path.rglob("*.arrow"))) == len(keys) + 1
    assert found[0] == found[1]
    assert list(tmp_path.iterdir()) == []


def test_keys_of_less_than_a_run_are_sorted_at_once_into_the_same_groups():
    found = []
    for size in (1, 2**20):
        sorter = Sorter(7, run_bytes=size)
        for number in range(3):
            sorter.add(pa.array([f"{n * 7919 % 500}é" for n in range(number, 500)]), number)
        parts = list(sorter.sorted_parts())
        found.append([(g, k, n) for keys, numbers, groups in parts
                      for g, k, n in zip(groups.tolist(), keys.to_pylist(), numbers.tolist(), strict=True)])
        assert len(parts) == (7 if size == 1 else 1)
    assert found[0] == found[1]
    assert list(Sorter(7).sorted_parts()) == []


def test_a_key_in_two_places_is_refused_with_both():
    two = [(Place("p", FILE_ID, "20260101000000000"), [pa.array(["k"])]) for _ in range(2)]
    places, sorter = sort_keys(two, 1)
    ((_, keys, numbers),) = sorter.sorted_groups()
    with pytest.raises(Invalid, match=r"'k' lies in partition 'p'.*partitioned one"):
        check_single(keys, numbers, places)


@pytest.mark.parametrize("version", [V1, V2])
def test_a_secondary_index_has_every_pair_once(version):
    keys = pa.array([f"k{n}" for n in range(1000)])
    values = pa.array([None if n % 10 == 0 else f"v{n % 7}$" for n in range(1000)])
    batches = [secondary_rows(values.slice(low, 300), keys.slice(low, 300)) for low in range(0, 1000, 300)]
    found: list[str] = []
    sorter = Sorter(5, secondary_version=version)
    for batch in [*batches, batches[0]]:
        sorter.add(batch.column("key"), 0)
    for group, keys, _ in sorter.sorted_groups():
        rows = decode(Content.SECONDARY, *encode(Content.SECONDARY, pair_rows(keys), SCHEMA), SCHEMA)
        hashed = hashed_texts(rows["key"].combine_chunks(), version) if len(rows) else rows["key"]
        assert set(file_groups(hashed, 5).tolist()) <= {group} if len(rows) else True
        found += rows["key"].to_pylist()
    assert sorted(found) == sorted(key for b in batches for key in b["key"].to_pylist())
