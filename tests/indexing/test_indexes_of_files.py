"""Goal: indexes whose rows are each of one file agree with the data after every action, whoever commits,
cleans or dies beside their build.

Method: every action runs once on a table with the index, with a build in the middle of other writers, and a
builder that dies now and then; ``validate_metadata`` compares with the files, and scans of keys are compared
with scans of everything.
"""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.indexing import creating
from mainstem.indexing.index_build import Built
from mainstem.indexing.initial_rows import InitialRows
from mainstem.layout.properties import load_config
from mainstem.metadata.metadata_partitions import group_index
from mainstem.options import BLOOM_GROUPS, UNSAFE_FOR_JAVA
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from tests.indexing.dying import deaths
from tests.services.city_table import QUICK, aged, base_files, content, layered, make, rows
from tests.sim.indexes_world import KindOfIndex
from tests.storage.steps import storage_at

LEAN = {
    **QUICK, "hoodie.clean.commits.retained": "1", "hoodie.index.bloom.num_entries": "50",
    UNSAFE_FOR_JAVA: "true",
}  # fmt: skip
BLOOMS = KindOfIndex("bloom_filters")
UPPER = KindOfIndex("expr_index", ("value",), "by_upper", (("expr", "upper"), ("type", "column_stats")))
KINDS = [
    pytest.param(
        BLOOMS,
        id="bloom filters",
        marks=pytest.mark.supports("Indexes", "bloom filters: built, and maintained by every action"),
    ),
    pytest.param(
        UPPER,
        id="expression index",
        marks=pytest.mark.supports("Indexes", "expression indexes: built and maintained (column statistics)"),
    ),
]
each_kind = pytest.mark.parametrize("wanted", KINDS)


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    make(tmp_path / "t")
    return layered(mainstem.open_table(tmp_path / "t", LEAN))


def opened(table: mainstem.Table) -> mainstem.Table:
    return mainstem.open_table(table.path, LEAN)


def created(table: mainstem.Table, wanted: KindOfIndex) -> Built:
    return wanted.create(opened(table))


def check(table: mainstem.Table) -> None:
    """The index agrees with the data, and no scan by way of it lacks a row."""
    report = opened(table).validate_metadata()
    assert report is not None and report.ok, report
    answers(table)


def answers(table: mainstem.Table) -> None:
    """No scan by way of it lacks a row."""
    now = opened(table)
    whole = content(now)
    for key in ("k01", "k04", "k21", "k77"):
        upper = pc.utf8_upper(pc.field("value")) == f"V{int(key[1:])}"
        for filter in (pc.field("_hoodie_record_key") == key, upper):
            assert content(now, filter=filter).equals(whole.filter(filter))


def rows_of(table: mainstem.Table, partition: str) -> int:
    (found,) = [p for p in opened(table).validate_metadata().partitions if p.partition == partition]
    return found.rows


@each_kind
def test_every_action_keeps_it_in_step_with_the_files(table, wanted):
    built = created(table, wanted)
    assert built.index == wanted.partition and built.rows
    check(table)
    opened(table).bulk_insert(rows(range(20, 24), 6, "w"))
    opened(table).delete(rows([1], 10).select(["id", "city", "ts"]))
    check(table)
    opened(table).log_compact()
    opened(table).compact()
    check(table)
    before = rows_of(table, wanted.partition)
    opened(table).upsert(rows(range(0, 8, 2), 11))
    opened(table).compact()
    assert rows_of(table, wanted.partition) > before
    assert opened(table).clean()
    check(table)
    assert rows_of(table, wanted.partition) < before
    txn = opened(table).begin()
    txn.write(rows(range(4), 99))
    txn.abort()
    opened(table).run_services("metadata", if_due=False)
    check(table)
    opened(table).reindex(wanted.name or wanted.partition)
    check(table)
    assert opened(table).drop_index(wanted.name or wanted.partition)
    assert [i.name for i in opened(table).indexes()] == ["files"]
    check(table)


@each_kind
@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_commits_or_is_cleaned_beside_a_build_is_in_it(table, monkeypatch, wanted, moment):
    txn = opened(table).begin("bulk_insert")
    txn.write(rows(range(20, 26), 70))
    opened(table).create_index("files")
    of_listing, done = InitialRows.of_listing, []

    def beside(self: InitialRows) -> None:
        if moment == "after":
            of_listing(self)
        if not done:
            done.append(txn.commit())
            opened(table).upsert(rows(range(1, 7, 2), 80))
            opened(table).compact()
            opened(table).clean()
        if moment == "before":
            of_listing(self)

    monkeypatch.setattr(InitialRows, "of_listing", beside)
    created(table, wanted)
    assert done
    check(table)


@pytest.mark.parametrize("wanted", KINDS[1:])  # that one has a definition, too
def test_a_builder_that_dies_hinders_nobody_and_the_next_ends_it(table, tmp_path, wanted):
    opened(table).create_index("files")
    states = set()

    def build(ctx):
        creating.create_index(ctx, wanted.kind, wanted.columns, dict(wanted.options), name=wanted.name)

    for copy in deaths(table.path, tmp_path, build, LEAN, every=17):
        died = mainstem.open_table(copy, LEAN)
        found = {i.state for i in died.indexes() if i.partition == wanted.partition} or {""}
        states |= found
        answers(died)
        died.upsert(rows(range(5), 60))
        answers(died)
        aged(died)
        (copy / ".hoodie/lock").unlink(missing_ok=True)
        if found != {"ready"}:
            created(died, wanted)
        check(died)
    assert "" in states and states & {"building", "left over"}


# ------------------------------------------------------------------------------------ bloom filters


@pytest.mark.supports("Indexes", "bloom filters: built, and maintained by every action")
def test_there_are_as_many_file_groups_of_bloom_filters_as_hudi_makes_or_is_told_to(table):
    def groups() -> set[int | None]:
        names = [f.name for f in (Path(table.path) / ".hoodie/metadata/bloom_filters").iterdir()]
        return {group_index(found) for found in map(paths.file_id_of, names) if found is not None}

    created(table, BLOOMS)
    assert groups() == set(range(4))
    opened(table).drop_index("bloom_filters")
    opened(table).create_index("bloom_filters", options={BLOOM_GROUPS: "2"})
    assert groups() == set(range(2))
    check(table)


def test_a_base_file_without_a_filter_has_no_row(table):
    created(table, BLOOMS)
    before = rows_of(table, "bloom_filters")
    without = mainstem.open_table(table.path, {**LEAN, "hoodie.parquet.bloom.filter.enabled": "false"})
    without.bulk_insert(rows(range(20, 24), 6))
    check(table)
    assert rows_of(table, "bloom_filters") == before


@each_kind
def test_a_clean_of_log_files_alone_keeps_it_in_step(tmp_path, wanted):
    make(tmp_path / "t")
    table = mainstem.open_table(tmp_path / "t", LEAN)
    table.upsert(rows(range(10), 1))
    created(table, wanted)
    opened(table).compact()
    opened(table).upsert(rows(range(5), 2))
    before = base_files(table)
    (cleaned,) = opened(table).clean()
    assert cleaned.deleted and base_files(table) == before
    check(table)


def test_bloom_filters_are_of_no_columns_and_have_no_other_name(table):
    with pytest.raises(Invalid, match="hold record keys: leave the columns"):
        table.create_index("bloom_filters", ["value"])
    with pytest.raises(Invalid, match="one index of the kind bloom_filters"):
        table.create_index("bloom_filters", name="other")
    with pytest.raises(Invalid, match=r"bloom\.filter\.file\.group\.count"):
        table.create_index("bloom_filters", options={BLOOM_GROUPS: "0"})
    assert opened(table).indexes() == []


# ------------------------------------------------------------------------------- expression indexes


def dated(path: Path) -> mainstem.Table:
    """A table with columns of all types that functions take, one of them in one file only."""
    schema = pa.schema(
        [("id", pa.string()), ("text", pa.string()), ("day", pa.date32()), ("wall", pa.timestamp("us")),
         ("at", pa.timestamp("us", "UTC")), ("number", pa.int64())]
    )  # fmt: skip
    mainstem.create_table(path, schema, record_key="id", buckets=2, properties=QUICK)
    return mainstem.open_table(path, LEAN)


def some_days(ids: range) -> pa.Table:
    days = [datetime.date(1970 + i, 1 + i % 12, 1 + i) for i in ids]
    times = [datetime.datetime(d.year, d.month, d.day, 23, 59) for d in days]
    return pa.table(
        {
            "id": [f"k{i}" for i in ids], "text": [f"  Text{i} é " if i % 3 else None for i in ids],
            "day": days, "wall": pa.array(times, pa.timestamp("us")),
            "at": pa.array(times, pa.timestamp("us", "UTC")), "number": pa.array(ids, pa.int64()),
        }
    )  # fmt: skip


KEPT = [
    ("lower", "text", {}), ("trim", "text", {}), ("ltrim", "text", {}),
    ("rtrim", "text", {"trimString": "é"}), ("substring", "text", {"pos": "3", "len": "2"}),
    ("length", "text", {}), ("year", "day", {}), ("month", "day", {}), ("day", "wall", {}),
    ("to_date", "wall", {}), ("date_add", "day", {"days": "3"}), ("date_sub", "day", {"days": "3"}),
]  # fmt: skip


WRONG_IN_JAVA = [
    ("bloom_filters", [], {}),
    ("expr_index", ["day"], {"expr": "month"}),
    ("expr_index", ["text"], {"expr": "lower", "type": "column_stats"}),
]


@pytest.mark.parametrize(("kind", "columns", "options"), WRONG_IN_JAVA)
def test_what_makes_java_s_reads_wrong_is_built_only_for_those_who_insist(tmp_path, kind, columns, options):
    dated(tmp_path / "t").upsert(some_days(range(6)))
    table = mainstem.open_table(tmp_path / "t", QUICK)
    name = None if kind == "bloom_filters" else "x"
    with pytest.raises(Unsupported, match=UNSAFE_FOR_JAVA):
        table.create_index(kind, columns, name=name, options=options)
    assert table.indexes() == []
    built = table.create_index(kind, columns, name=name, options={**options, UNSAFE_FOR_JAVA: "true"})
    assert table.reindex(built.index).index == built.index, "it is there, and may be built anew"
    assert UNSAFE_FOR_JAVA not in str(table.indexes())


@pytest.mark.supports("Indexes", "expression indexes: built and maintained (column statistics)")
def test_an_index_of_every_function_that_is_kept_up_bounds_its_values(tmp_path):
    table = dated(tmp_path / "t")
    table.upsert(some_days(range(6)))
    for function, column, options in KEPT[::2]:
        opened(table).create_index(
            "expr_index", [column], name=function, options={"expr": function, **options}
        )
    opened(table).upsert(some_days(range(4, 20)))
    for function, column, options in KEPT[1::2]:
        opened(table).create_index(
            "expr_index", [column], name=function, options={"expr": function, **options}
        )
    opened(table).compact()
    opened(table).upsert(some_days(range(2, 3)))
    report = opened(table).validate_metadata()
    assert report.ok and not any(p.refused for p in report.partitions)
    full = {p.partition for p in report.partitions if p.rows}
    assert full == {"files", *(f"expr_index_{function}" for function, _, _ in KEPT)}
    years = pc.year(pc.field("day")) == 1971
    assert opened(table).scan(filter=years).to_arrow()["id"].to_pylist() == ["k1"]


def test_its_definition_is_the_one_that_java_writes(tmp_path):
    table = dated(tmp_path / "t")
    table.create_index(
        "expr_index", ["text"], name="part",
        options={"expr": "substring", "type": "column_stats", "pos": "1", "len": "3"},
    )  # fmt: skip
    text = (tmp_path / "t/.hoodie/.index_defs/index.json").read_text()
    assert json.loads(text)["indexDefinitions"]["expr_index_part"] == {
        "indexName": "expr_index_part", "indexType": "column_stats", "indexFunction": "substring",
        "sourceFields": ["text"], "indexOptions": {"expr": "substring", "pos": "1", "len": "3"},
        "version": "V2",
    }  # fmt: skip
    (index,) = [i for i in opened(table).indexes() if i.name == "part"]
    assert opened(table).reindex("part").index == index.partition
    assert index in opened(table).indexes()


@pytest.mark.supports("Indexes", "expression indexes: built and maintained (column statistics)")
def test_rows_of_a_file_without_the_column_count_as_nulls(tmp_path):
    table = make(tmp_path / "t")
    opened(table).upsert(rows(range(6), 1))
    opened(table).compact()
    narrow = opened(table).begin()
    narrow.write(rows(range(2), 3))
    wider = rows(range(6, 12), 2).append_column("note", pa.array([f"n{k}" for k in range(6)]))
    opened(table).upsert(wider)
    opened(table).create_index("expr_index", ["note"], name="notes", options={"expr": "upper"})
    narrow.commit()
    check(table)
    storage = storage_at(table.path)
    metadata = TableState.load(storage, load_config(storage)).metadata_table
    stored = metadata.read("expr_index_notes").to_pylist()
    counts = {row["file"]: (row["value_count"], row["null_count"]) for row in stored}
    assert [counts[path.name] for path in base_files(table)] == [(3, 3)] * 2
    assert [counts[name] for name in counts if narrow.instant in name] == [(1, 1)] * 2
    assert counts["a"] == counts["b"] == (10, 7)


@pytest.mark.parametrize(
    ("column", "options", "kind", "why"),
    [
        ("at", {"expr": "year"}, Unsupported, "zone of the session"),
        ("at", {"expr": "to_date"}, Unsupported, "zone of the session"),
        ("number", {"expr": "from_unixtime"}, Unsupported, "in every time zone of a session"),
        ("day", {"expr": "date_format", "format": "yyyy"}, Unsupported, "in every time zone of a session"),
        ("wall", {"expr": "hour"}, Unsupported, "in every time zone of a session"),
        ("number", {"expr": "identity"}, Unsupported, "in every time zone of a session"),
        ("text", {"expr": "regexp_replace"}, Unsupported, "an index on 'regexp_replace'"),
        ("text", {"expr": "lower", "type": "bloom_filters"}, Unsupported, "of the type 'bloom_filters'"),
        ("number", {"expr": "upper"}, Unsupported, "of a column of type int64"),
        ("day", {"expr": "date_add"}, Invalid, "whole number 'days'"),
        ("text", {"type": "column_stats"}, Invalid, "without a function"),
        ("text", {"expr": "upper", "fromat": "x"}, Invalid, "the option 'fromat'"),
        ("nothing", {"expr": "upper"}, Invalid, "has no column 'nothing'"),
        ("_hoodie_record_key", {"expr": "upper"}, Invalid, "no meta column"),
    ],
)  # fmt: skip
def test_functions_whose_index_could_hide_rows_are_refused_and_nothing_changes(
    tmp_path, column, options, kind, why
):
    table = dated(tmp_path / "t")
    with pytest.raises(kind, match=why):
        table.create_index("expr_index", [column], name="x", options=options)
    assert opened(table).indexes() == []


def test_a_table_with_such_an_index_of_java_is_not_written(table):
    created(table, UPPER)
    before = content(opened(table))
    file = Path(table.path, ".hoodie/.index_defs/index.json")
    plain = file.read_text()
    for old, new, why in (
        ('"indexFunction" : "upper"', '"indexFunction" : "from_unixtime"', "in every time zone of a session"),
        ('"indexType" : "column_stats"', '"indexType" : "bloom_filters"', "of the type 'bloom_filters'"),
        ('"version" : "V2"', '"version" : "V1"', "of the version 'V1'"),
    ):
        assert old in plain
        file.write_text(plain.replace(old, new))
        with pytest.raises(Unsupported, match=why):
            opened(table).begin()
        assert content(opened(table)).equals(before)
    known = json.loads(plain)
    del known["indexDefinitions"]["expr_index_by_upper"]
    file.write_text(json.dumps(known))
    with pytest.raises(CorruptTable, match="no definition names its column"):
        opened(table).upsert(rows(range(3), 9))
    file.write_text(plain)
    opened(table).upsert(rows(range(3), 9))
    check(table)
