"""Goal: a record index and a secondary index name every key and every pair of the data, whoever wrote, died
or built meanwhile, and queries by them read few files and miss no row.

Method: histories with updates that move values, deletes, bulk inserts, compactions, cleans and rollbacks;
builds beside writers; two writers that bring the same new partition at once, one of which dies at any call.
Afterwards ``validate_metadata`` finds nothing missing, and queries by key and by value equal the full answer.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import Invalid, MainstemError, Unsupported
from mainstem.indexing import creating, initial_keys
from mainstem.indexing import index_build as build
from mainstem.indexing.initial_keys import InitialKeys
from mainstem.indexing.initial_rows import here
from mainstem.layout import properties
from mainstem.options import GLOBAL_GROUPS, PARTITION_GROUPS, RECORD_GROUP_BYTES, RECORD_GROWTH
from mainstem.storage import paths
from tests.indexing.dying import deaths, doomed
from tests.services.city_table import QUICK, SCHEMA, aged, content, make, rows
from tests.storage.steps import Dead, storage_at

pytestmark = [
    pytest.mark.supports("Indexes", "record index: maintained and built beside writers"),
    pytest.mark.supports("Indexes", "secondary index: maintained and built beside writers"),
]
MERGER = "6b3d0a3c-1f0e-4a52-9b1e-2f8a5c1d7e99"
RETAINED = {"hoodie.clean.commits.retained": "1"}


@pytest.fixture(autouse=True)
def maintained(monkeypatch):
    """What a build needs of the writers."""
    kinds = frozenset({*properties.MAINTAINED, "files", "record_index", "secondary_index"})
    monkeypatch.setattr(properties, "MAINTAINED", kinds)


def plain(path: Path, **given: str) -> mainstem.Table:
    """A table without partitions."""
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=2, properties={**QUICK, **given}
    )


def create(path: Path, partitioned: bool) -> mainstem.Table:
    return make(path, hoodie__clean__commits__retained="1") if partitioned else plain(path, **RETAINED)


def opened(table: mainstem.Table, **more: str) -> mainstem.Table:
    return mainstem.open_table(table.path, {**QUICK, **RETAINED, **more})


def counts(table: mainstem.Table) -> dict[str, dict[str, int]]:
    """Per index what differs from the data; nothing of it may be missing or wrong."""
    report = opened(table).validate_metadata()
    assert report.ok, report.differences
    return {part.partition: {k: n for k, n in part.counts.items() if n} for part in report.partitions}


def asked(table: mainstem.Table, wanted: pc.Expression) -> dict:
    """A query through the indexes equals the one without; what was cut."""
    found = opened(table).scan(filter=wanted)
    without = opened(table, **{"hoodie.metadata.enable": "false"}).scan().to_arrow().filter(wanted)
    order = [("id", "ascending"), ("city", "ascending")]
    assert found.to_arrow().sort_by(order).equals(without.sort_by(order))
    return found.explain().to_dict()


def check(table: mainstem.Table, keys=range(40)) -> None:
    counts(table)
    for key in list(keys)[::13]:
        asked(table, pc.field("id") == f"k{key:02d}")
    for value in ("v3", "moved3", "back3", "nothing"):
        asked(table, pc.field("value") == value)


# ----------------------------------------------------------------------------------- histories


@pytest.mark.parametrize("partitioned", [False, True])
def test_after_any_action_no_key_and_no_pair_is_missing_and_building_anew_leaves_none_too_many(
    tmp_path, partitioned
):
    table = create(tmp_path / "t", partitioned)
    table.upsert(rows(range(20), 1))
    table.create_index("secondary_index", ["value"])
    assert {i.partition: i.state for i in opened(table).indexes()} == dict.fromkeys(
        ("files", "record_index", "secondary_index_value"), "ready"
    )
    assert set(map(tuple, counts(table).values())) == {()}
    opened(table).upsert(rows(range(10), 2, "moved"))
    opened(table).delete(rows(range(8, 12), 3))
    opened(table).compact()
    for ts, value in enumerate(("back", "again", "and again"), 4):
        opened(table).upsert(rows([8, 30, 31], ts, value))
    assert opened(table).log_compact()
    if partitioned:
        opened(table).bulk_insert(rows([50, 52], 5).set_column(1, "city", pa.array(["c", "c"])))
    dead = opened(table).begin()
    dead.write(rows(range(90, 95), 9, "dead"))
    aged(table)
    assert [r.instant for r in opened(table).rollback_failed_writes()] == [dead.instant]
    opened(table).upsert(rows(range(4), 6))
    opened(table).compact()
    opened(table).clean()
    opened(table).run_services("metadata")
    check(table, range(53))
    found = counts(table)
    assert found["record_index"] == {"extra": 3} and found["secondary_index_value"]["extra"] > 3
    opened(table).reindex("value")
    opened(table).drop_index("value")
    opened(table).reindex("record_index")
    opened(table).create_index("secondary_index", ["value"], name="by_value")
    assert set(map(tuple, counts(table).values())) == {()}
    check(table, range(53))


# ------------------------------------------------------------------------------- beside a build


@pytest.mark.parametrize(
    ("kind", "columns", "partitioned"),
    [("record_index", [], True), ("secondary_index", ["value"], False)],
)
def test_writers_and_services_beside_a_build_lose_no_key(tmp_path, monkeypatch, kind, columns, partitioned):
    """Before the files are read and before the index completes: a write from before the plan commits, one
    begins and commits with a new partition, files are compacted and cleaned."""
    table = create(tmp_path / "t", partitioned)
    for ts in range(3):
        opened(table).upsert(rows(range(ts, 20), ts))
    opened(table).compact()
    table.create_index("record_index" if columns else "files")
    early = [opened(table).begin() for _ in range(2)]
    for number, txn in enumerate(early):
        txn.write(rows(range(10 + number, 14), 10 + number, "moved"))
    new = rows([60, 61], 10)
    new = new.set_column(1, "city", pa.array(["d", "e"])) if partitioned else new

    def act(number: int) -> None:
        early[number].commit()
        opened(table).upsert(new.slice(number, 1))
        opened(table).upsert(rows(range(5 + number), 12 + number, "back"))
        assert opened(table).compact()
        opened(table).upsert(rows(range(9), 14 + number, "late"))
        opened(table).clean()

    def once(owner: object, name: str, number: int) -> None:
        real, done = getattr(owner, name), []

        def step(*args, **options):
            if not done:
                done.append(act(number))
            return real(*args, **options)

        monkeypatch.setattr(owner, name, step)

    once(InitialKeys, "of_listing", 0)
    once(build._Build, "_complete", 1)
    built = opened(table).create_index(kind, columns)
    assert built.rows >= 20 and kind in built.index
    check(table, range(66))


def test_a_group_whose_files_were_cleaned_under_the_build_is_read_as_it_is_now(tmp_path, monkeypatch):
    table = create(tmp_path / "t", False)
    opened(table).upsert(rows(range(20), 1))
    opened(table).compact()
    real = InitialKeys.of_listing

    def of_listing(self) -> None:
        run = self.run

        def late(work, pieces, told):
            for ts in (2, 3):
                opened(table).upsert(rows(range(20), ts))
                opened(table).compact()
            assert opened(table).clean()[0].deleted
            self.run = run
            return run(work, pieces, told)

        self.run = late
        real(self)

    monkeypatch.setattr(InitialKeys, "of_listing", of_listing)
    opened(table).create_index("record_index")
    check(table)


# -------------------------------------------------------------- a partition of the data that is new


def groups_of(table: mainstem.Table, partition: str) -> set[str]:
    names = (Path(table.path) / ".hoodie/metadata/record_index").iterdir()
    return {n.name.lstrip(".").partition("_")[0] for n in names if f"-{partition}-0" in n.name}


def brought(value: str, ts: int) -> pa.Table:
    """Rows of one key each, so that most file groups of the index get none."""
    key = {"one": 1, "two": 7}[value]
    return rows([key], ts, value).set_column(1, "city", pa.array(["new"]))


def with_four_groups(path: Path) -> mainstem.Table:
    """A table whose partitions get four file groups each in the record index."""
    table = make(path)
    table.create_index("record_index")
    file = path / paths.PROPERTIES
    file.write_text(f"{file.read_text()}{PARTITION_GROUPS[0][0]}=4\n")
    return opened(table)


def test_two_writers_that_bring_a_partition_at_once_agree_on_its_file_groups(tmp_path):
    table = with_four_groups(tmp_path / "t")
    txns = [opened(table).begin() for _ in range(2)]
    for txn, value in zip(txns, ("one", "two"), strict=True):
        txn.write(brought(value, 5))
    for txn in txns:
        assert txn.commit().status == "committed"
    assert groups_of(table, "new") == {f"record-index-new-000{n}-0" for n in range(4)}
    check(table, range(8))


def test_a_writer_that_dies_with_a_new_partition_takes_no_group_of_another_writer_with_it(tmp_path):
    table = with_four_groups(tmp_path / "t")
    ended = 0
    for calls in range(0, 60, 4):
        copy = tmp_path / f"copy{calls}"
        shutil.copytree(table.path, copy)
        here = mainstem.open_table(copy, QUICK)
        txn = here.begin()
        txn.write(brought("one", 5))
        doomed(txn._ctx, calls)
        try:
            txn.commit()
            ended += 1
        except (Dead, MainstemError):
            pass
        aged(here)
        opened(here).upsert(brought("two", 6))
        assert len(groups_of(here, "new")) == 4
        opened(here).rollback_failed_writes()
        assert len(groups_of(here, "new")) == 4
        check(here, range(8))
        shutil.rmtree(copy)
        if ended:
            return
    raise AssertionError("it never ended")


# ------------------------------------------------------------------------------------- look-ups


def test_a_query_by_key_reads_only_where_the_key_is_also_what_came_after_the_index(tmp_path):
    """Of a partitioned table the hash of a key names a bucket in every partition, the index one of them."""
    table = make(tmp_path / "t")
    cities = [f"c{n}" for n in range(6)]
    for n, city in enumerate(cities):
        some = rows(range(10 * n, 10 * n + 10), 1).set_column(1, "city", pa.array([city] * 10))
        opened(table).upsert(some)
    opened(table).compact()
    table.create_index("record_index")
    assert asked(table, pc.field("id") == "k23")["file_slices_read"] == 1
    opened(table).upsert(rows([23], 2).set_column(1, "city", pa.array(["c0"])))  # the same key, elsewhere
    opened(table).upsert(rows([99], 2).set_column(1, "city", pa.array(["new"])))
    assert asked(table, pc.field("id") == "k23")["file_slices_read"] == 2
    assert asked(table, pc.field("id") == "k99")["file_slices_read"] == 1
    assert asked(table, pc.field("id") == "k98")["file_slices_read"] == 0
    assert asked(table, pc.field("id").isin(["k03", "k55", "k98"]))["file_slices_read"] == 2


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_query_by_value_reads_only_where_the_value_is_or_was(tmp_path, partitioned):
    table = create(tmp_path / "t", partitioned)
    opened(table).upsert(rows(range(40), 1))
    opened(table).compact()
    table.create_index("secondary_index", ["value"])
    before = asked(table, pc.field("value") == "v3")["file_slices_read"]
    assert before <= 2
    opened(table).upsert(rows(range(3, 5), 2, "moved"))
    asked(table, pc.field("value") == "moved3")
    asked(table, pc.field("value") == "v3")
    assert asked(table, pc.field("value") == "nothing")["file_slices_read"] == 0
    opened(table).delete(rows([3], 3))
    asked(table, pc.field("value") == "moved3")
    opened(table).upsert(rows([3], 4, None).set_column(3, "value", pa.nulls(1, pa.string())))
    assert opened(table).scan(filter=pc.field("value").is_null()).to_arrow().num_rows == 1
    check(table)


# ------------------------------------------------------------------------------------ what is asked for


def test_updates_that_leave_the_column_out_keep_their_pairs(tmp_path):
    table = plain(tmp_path / "t")
    table.upsert(rows(range(10), 1))
    table.create_index("secondary_index", ["value"])
    late = opened(table, **{"hoodie.mainstem.write.partial.blocks": "true"})
    with pytest.warns(UserWarning, match="IS_PARTIAL"):
        late.update_columns(rows([*range(5), 20, 21], 2).drop_columns(["value"]))
    found = counts(table)
    assert found["secondary_index_value"] == {}
    asked(table, pc.field("value") == "v3")


def test_file_groups_are_as_many_as_hudi_makes_for_so_many_rows(tmp_path):
    table = make(tmp_path / "t")
    table.upsert(rows(range(20), 1))
    table.compact()
    few = {RECORD_GROUP_BYTES: "96", RECORD_GROWTH: "1.5", PARTITION_GROUPS[1][1]: "6"}
    table.create_index("record_index", options=few)
    # ten rows a partition, half as many again to come, two a group; six at most
    assert {len(groups_of(table, city)) for city in "ab"} == {6}
    table.create_index("secondary_index", ["value"], options={**few, GLOBAL_GROUPS[0][1]: "3"})
    (folder,) = (Path(table.path) / ".hoodie/metadata").glob("secondary_index_value")
    assert len({n.name.lstrip(".").partition("_")[0] for n in folder.glob("*secondary*")}) == 15
    check(table, range(20))
    with pytest.raises(Invalid, match=r"growth\.factor"):
        table.create_index("secondary_index", ["ts"], options={RECORD_GROWTH: "much"})


@pytest.mark.parametrize(
    ("kind", "columns", "why"),
    [("record_index", ["id"], "leave the columns"), ("secondary_index", [], "on one column"),
     ("secondary_index", ["id", "ts"], "on one column"), ("secondary_index", ["nothing"], "has no column"),
     ("secondary_index", ["price"], "secondary index on a column of type double"),
     ("secondary_index", ["_hoodie_record_key"], "no meta column"),
     ("secondary_index", ["inner.a"], "no field of a struct")],
)  # fmt: skip
def test_what_cannot_be_an_index_of_keys_is_refused_and_nothing_changes(tmp_path, kind, columns, why):
    table = make(tmp_path / "odd")
    odd = rows(range(2), 1).append_column("price", pa.array([1.0, 2.0]))
    table.upsert(odd.append_column("inner", pa.array([{"a": "x"}] * 2)))
    with pytest.raises(Invalid, match=why):
        opened(table).create_index(kind, columns)
    assert opened(table).indexes() == []


def test_a_value_too_long_for_an_index_is_refused_by_name_before_anything_is_visible(tmp_path):
    table = plain(tmp_path / "t")
    table.upsert(rows(range(4), 1))
    table.create_index("secondary_index", ["value"])
    before = content(table)
    with pytest.raises(Invalid, match=r"secondary_index_value.*32,767"):
        opened(table).upsert(rows([7], 2, "x" * 40_000))
    assert content(table).equals(before)
    opened(table).upsert(rows([7], 2, "x" * 30_000))
    check(table)


@pytest.mark.parametrize(("size", "portions"), [(2**30, [4]), (1, [1, 1, 1, 1])])
def test_keys_of_few_file_groups_at_a_time_are_in_memory(tmp_path, monkeypatch, size, portions):
    table = create(tmp_path / "t", True)
    table.upsert(rows(range(20), 1))
    table.create_index("files")
    monkeypatch.setattr(initial_keys, "_AT_ONCE_BYTES", size)
    seen, run = [], here(storage_at(table.path))

    def counted(work, pieces, told):
        seen.append(len(pieces))
        return run(work, pieces, told)

    creating.create_index(opened(table).index_context(), "record_index", [], {}, run=counted)
    assert seen == portions
    check(table, range(20))


def test_fractions_for_a_column_with_a_secondary_index_are_refused_when_they_are_written(tmp_path):
    table = plain(tmp_path / "t")
    narrow = rows(range(4), 1)
    narrow = narrow.append_column("count", pa.array(range(4), pa.int32()))
    table.upsert(narrow)
    table.create_index("secondary_index", ["count"])
    txn = opened(table).begin()
    halves = narrow.set_column(narrow.num_columns - 1, "count", pa.array([0.5, 1, 2, 3]))
    with pytest.raises(Invalid, match=r"'count'.*secondary index, which holds no fractions"):
        txn.write(halves)
    txn.declare(halves.schema)
    txn.write(narrow.set_column(narrow.num_columns - 1, "count", pa.array([2**40, 1, 2, 3])))
    txn.commit()
    assert asked(opened(table), pc.field("count") == 2**40)["file_slices_read"] <= 1
    opened(table).drop_index("count")
    opened(table).upsert(halves)
    assert opened(table).scan(filter=pc.field("count") == 0.5).to_arrow().num_rows == 1


def test_a_table_with_a_merger_of_its_own_has_no_secondary_index(tmp_path):
    mainstem.register_merger(MERGER, lambda older, newer: newer)
    table = plain(
        tmp_path / "t",
        **{"hoodie.record.merge.mode": "CUSTOM", "hoodie.record.merge.strategy.id": MERGER},
    )
    with pytest.raises(Unsupported, match="its own merger"):
        table.create_index("secondary_index", ["value"])


def test_a_builder_that_dies_at_any_call_leaves_an_index_that_the_next_builds_whole(tmp_path):
    """The record index and a secondary one at once; writers go on in between."""
    table = make(tmp_path / "t")
    table.upsert(rows(range(12), 1))
    table.create_index("files")

    def build(ctx):
        creating.create_index(ctx, "secondary_index", ["value"], {})

    died = 0
    for copy in deaths(table.path, tmp_path, build, QUICK, every=23):
        died += 1
        here = mainstem.open_table(copy, QUICK)
        for filter in (pc.field("id") == "k03", pc.field("value") == "v3"):
            asked(here, filter)
        aged(here)
        opened(here).upsert(rows(range(10, 14), 2, "moved"))
        opened(here).create_index("secondary_index", ["value"])
        check(here, range(14))
    assert died >= 5


def test_a_value_that_a_writer_in_flight_brings_back_is_in_a_secondary_index_built_meanwhile(tmp_path):
    schema = pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())])

    def row(ts: int, value: str | None, deleted: bool = False) -> pa.Table:
        values = {"id": "k", "city": "oslo", "ts": ts, "value": value, "_hoodie_is_deleted": deleted}
        return pa.Table.from_pylist([{n: values.get(n) for n in schema.names}], schema)

    keeps = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    table = mainstem.create_table(
        tmp_path / "t", schema, record_key="id", ordering="ts", buckets=2, properties=QUICK | keeps
    )
    table.upsert(row(1, "anna"))
    with table.begin() as txn:
        txn.write(row(5, None))
        opened(table).upsert(row(3, "gone", deleted=True))  # requested later, and older
        opened(table).create_index("secondary_index", ["value"])
        txn.commit()
    assert not counts(table).get("secondary_index_value", {}).get("missing")
    asked(table, pc.field("value") == "anna")
    assert opened(table).scan(columns=["value", "ts"]).to_arrow().to_pylist() == [{"value": "anna", "ts": 5}]


def test_a_value_that_a_pending_compaction_brings_back_is_in_a_secondary_index_built_meanwhile(tmp_path):
    """The base file's row outranks a late one, until the compaction has applied the delete to it."""
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("value", pa.string())])
    table = mainstem.create_table(
        tmp_path / "t", schema, record_key="id", ordering="ts", buckets=1, properties={**QUICK, **RETAINED}
    )
    table.upsert({"id": ["k"], "ts": [19], "value": ["first"]})
    table.compact()
    table.delete({"id": ["k"]})
    table.schedule_compaction()
    table.upsert({"id": ["k"], "ts": [0], "value": ["late"]})
    table.create_index("secondary_index", ["value"], name="by_value")
    table.run_compaction()
    assert table.scan(columns=["value"]).to_arrow()["value"].to_pylist() == ["late"]
    found = opened(table).scan(columns=["id"], filter=pc.field("value") == "late")
    assert found.to_arrow()["id"].to_pylist() == ["k"]
    assert opened(table).validate_metadata().ok


def test_a_partition_whose_name_is_too_long_for_the_index_is_refused_by_name_and_leaves_nothing(tmp_path):
    table = create(tmp_path / "t", True)
    table.upsert(rows(range(4), 1))
    table.create_index("record_index")
    far = rows(range(4), 2)
    far = far.set_column(far.column_names.index("city"), "city", pa.array(["-" * 80] * 4))
    with pytest.raises(Invalid, match=r"partition '---.* is too long for names of files of record_index"):
        table.upsert(far)
    check(table)
