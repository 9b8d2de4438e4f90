"""Goal: what Java reads from its metadata tables, we read, in every field.

Method: all of Java's tables that have one, with writers in flight, killed, rolled back, restored, archived,
upgraded, and while an index is built: merged records and file slices against those of Java's own reader; each
key against the file group that its hash names; look-ups against everything read and filtered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mainstem.errors import CorruptTable, MainstemError, Unsupported
from mainstem.metadata.metadata_partitions import RECORD_INDEX, Content, data_partition_of, group_index
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.metadata.records import row_keys
from mainstem.metadata.records.record_schema import commit_schema
from mainstem.metadata.valid_instants import Validity
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import decode_commit
from tests.golden_tables.tables import expectations, unpack
from tests.metadata.java_records import as_java
from tests.metadata.metadata_tables import WITH_METADATA, WITH_RECORDS, java_records, metadata_of, record_text
from tests.services.city_table import make, rows
from tests.storage.steps import Opening, storage_at

INDEXES = pytest.mark.supports("Indexes", "metadata table: every partition of Java Hudi 1.0 to 1.2 (read)")


def test_the_corpus_has_tables_with_metadata() -> None:
    assert len(WITH_RECORDS) >= 45
    assert set(WITH_METADATA) - set(WITH_RECORDS) <= {
        "flink_killed",
        "flink_lost_update",
        "flink_partial_mdt_compact",
    }


@INDEXES
@pytest.mark.parametrize("name", WITH_RECORDS)
def test_records_slices_and_file_groups_are_those_of_java(name: str, unpacked: Path) -> None:
    table = metadata_of(unpack(name, unpacked))
    found: Counter[str] = Counter()
    for partition in table.partitions:
        found.update(map(record_text, as_java(table.content(partition), table.read(partition))))
        check_groups(table, partition)
    assert found == java_records(name)
    check_slices(table, expectations(name)["mdt_file_slices"])


def check_slices(table: MetadataTable, expected: list[dict]) -> None:
    theirs = {
        (s["partition"], s["fileId"], s["baseInstant"], s["baseFile"], tuple(s["logFiles"]), s["latest"])
        for s in expected
    }
    ours = {
        (s.partition, s.file_id, s.base_instant, s.base_file, s.log_files, s.latest)
        for partition in {s["partition"] for s in expected}
        for group in table.groups(partition, visible_only=False)
        for s in group.slices
    }
    assert ours == theirs


def check_groups(table: MetadataTable, partition: str) -> None:
    slices = table.slices(partition)
    version = table.definitions.secondary_version(partition) if partition.startswith("secondary") else None
    split = partition == RECORD_INDEX and table.definitions.partitioned_record_index
    sizes = Counter(data_partition_of(s.file_id) if split else "" for s in slices)
    for found in slices:
        rows = table.slice_rows(found)
        count = sizes[data_partition_of(found.file_id) if split else ""]
        groups = row_keys.file_groups(row_keys.hashed_texts(rows["key"].combine_chunks(), version), count)
        assert set(groups.tolist()) <= {group_index(found.file_id)}


def filtered(table: MetadataTable, partition: str, wanted: Sequence[str]) -> list[dict]:
    rows = table.read(partition)
    return rows.filter(pc.is_in(rows["key"], value_set=pa.array(wanted, pa.string()))).to_pylist()


@INDEXES
@pytest.mark.parametrize("name", ["mdt_all", "mdt_all_cow.secondary"])
def test_look_ups_find_the_keys_in_the_file_groups_that_their_hashes_name(name: str, unpacked: Path) -> None:
    path = unpack(name, unpacked)
    whole = metadata_of(path)
    for partition in whole.partitions:
        every = whole.read(partition)["key"].unique().to_pylist()
        for wanted in (every[:1], every[::3], ["no such key", "k\udcff".encode("utf-8", "replace").decode()]):
            found = whole.lookup(partition, pa.array(wanted))
            assert sorted(map(str, found.to_pylist())) == sorted(map(str, filtered(whole, partition, wanted)))
        storage = Opening(storage_at(path))
        metadata_of(path, storage).lookup(partition, pa.array(every[:1]))
        groups = {Path(p).name.lstrip(".").split("_")[0] for p in storage.opened}
        assert len(groups) == 1


def test_a_prefix_of_a_secondary_key_opens_one_file_group(unpacked: Path) -> None:
    path = unpack("mdt_all", unpacked)
    storage = Opening(storage_at(path))
    table = metadata_of(path, storage)
    partition = "secondary_index_idx_sec"
    every = table.read(partition)["key"].combine_chunks()
    value = row_keys.split_secondary(every)[0][3].as_py()
    storage.opened.clear()
    prefix = row_keys.secondary_prefixes(pa.array([value]))
    found = table.prefixes(partition, prefix)
    assert found["key"].to_pylist() == [k for k in every.to_pylist() if k.startswith(prefix[0].as_py())]
    assert len({Path(p).name.lstrip(".").split("_")[0] for p in storage.opened}) == 1


def test_prefixes_of_statistics_find_the_rows_of_a_column(unpacked: Path) -> None:
    table = metadata_of(unpack("clean_mor_mdt", unpacked))
    rows = table.read("column_stats")
    column = rows["column"][0].as_py()
    found = table.prefixes("column_stats", pa.array([row_keys.name_hash(column)]))
    assert set(found["column"].to_pylist()) == {column}
    assert len(found) == rows["column"].to_pylist().count(column)
    assert len(table.prefixes("column_stats", pa.array([row_keys.name_hash("no such column")]))) == 0


@INDEXES
def test_a_partitioned_record_index_is_asked_partition_by_partition(unpacked: Path) -> None:
    table = metadata_of(unpack("mdt_partitioned_rli", unpacked))
    rows = table.read(RECORD_INDEX)
    for partition in rows["partition"].unique().to_pylist():
        mine = rows.filter(pc.equal(rows["partition"], partition))
        found = table.lookup(RECORD_INDEX, mine["key"].combine_chunks(), data_partition=partition)
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, mine.to_pylist()))
    assert len(table.lookup(RECORD_INDEX, rows["key"].combine_chunks(), data_partition="not there")) == 0
    with pytest.raises(MainstemError, match="data_partition"):
        table.lookup(RECORD_INDEX, pa.array(["1"]))


def test_files_are_listed_by_partition(unpacked: Path) -> None:
    path = unpack("mdt_all", unpacked)
    table = metadata_of(path)
    assert table.data_partitions() == sorted(table.files())
    for partition, names in table.files().items():
        assert table.listing(partition) == names
        assert names == {name: (path / partition / name).stat().st_size for name in names}
    assert table.listing("no such partition") == {}


def damaged_files(table: MetadataTable, partition: str) -> list[Path]:
    (found,) = table.slices(partition)
    names = [n for n in (found.base_file, *found.log_files) if n is not None]
    return [Path(table.folder.base) / partition / name for name in names]


@pytest.mark.parametrize("harm", ["cut", "emptied", "gone", "overwritten"])  # gone: since it was listed
def test_a_damaged_file_is_an_error_that_names_it(harm: str, tmp_path: Path) -> None:
    path = unpack("clean_mor_mdt", tmp_path)
    for file in damaged_files(metadata_of(path), "files"):
        good = file.read_bytes()
        if len(good) < 100:
            continue  # the marker of a file group without rows
        table = metadata_of(path)
        table.slices("files")
        if harm == "gone":
            file.unlink()
        else:
            bad = {
                "cut": good[:-9],
                "emptied": b"#HUDI#",
                "overwritten": good[:80] + b"\0" * (len(good) - 80),
            }
            file.write_bytes(bad[harm])
        with pytest.raises(CorruptTable) as caught:
            table.read("files")
        assert file.name in str(caught.value)
        file.write_bytes(good)
    assert len(metadata_of(path).read("files"))


def test_a_file_group_that_is_missing_is_noticed(tmp_path: Path) -> None:
    path = unpack("mdt_all", tmp_path)
    for file in (path / ".hoodie/metadata/record_index").glob("*record-index-0000-0*"):
        file.unlink()
    with pytest.raises(CorruptTable, match=r"record-index-0000-0.*is gone|is gone.*record-index-0000-0"):
        metadata_of(path).lookup(RECORD_INDEX, pa.array(["1"]))


@pytest.mark.parametrize("change", ["hoodie.table.version=11", "hoodie.metadata.layout.class=a.b.C"])
def test_layouts_of_other_releases_are_refused(change: str, tmp_path: Path) -> None:
    path = unpack("mdt_all", tmp_path)
    file = path / ".hoodie/metadata/.hoodie/hoodie.properties"
    file.write_text(file.read_text() + f"\n{change}\n")
    with pytest.raises(Unsupported, match="versions 8, 9 and 10"):
        metadata_of(path)


def test_an_unknown_partition_is_refused_by_name(unpacked: Path) -> None:
    with pytest.raises(Unsupported, match="vector_index_v"):
        metadata_of(unpack("mdt_all", unpacked)).read("vector_index_v")


# ------------------------------------------------------------------------------------- what counts


def timeline(*names: str) -> ActiveTimeline:
    return ActiveTimeline(names, {})


def at(seconds: int) -> str:
    return f"202601010000{seconds:02d}000"


def validity(data: ActiveTimeline, own: ActiveTimeline, undone: Sequence[str] = ()) -> Validity:
    return Validity(data, own, {at(1): at(2)}.get, undone)


def test_an_instant_counts_once_it_is_completed_on_the_data_table() -> None:
    own = timeline(f"{at(10)}_{at(12)}.deltacommit", f"{at(14)}_{at(15)}.deltacommit")
    pending = validity(timeline(f"{at(10)}.deltacommit.inflight", f"{at(14)}_{at(16)}.deltacommit"), own)
    assert not pending.counts(at(10))
    assert pending.counts(at(14))
    assert validity(timeline(f"{at(10)}_{at(13)}.deltacommit"), own).counts(at(10))


def test_instants_that_are_archived_on_the_data_table_count_and_unknown_ones_do_not() -> None:
    data, own = timeline(f"{at(30)}_{at(31)}.deltacommit"), timeline(f"{at(10)}_{at(12)}.deltacommit")
    assert validity(data, own).counts(at(10))
    assert validity(data, own).counts(at(1))  # archived on both
    assert validity(data, own).counts("00000000000000002")
    assert not validity(data, own).counts(at(20))


def test_what_was_completed_after_the_view_or_is_being_taken_back_does_not_count() -> None:
    own = timeline(f"{at(10)}_{at(12)}.deltacommit", f"{at(40)}_{at(42)}.deltacommit")
    data = timeline(f"{at(30)}_{at(31)}.deltacommit")
    assert not validity(data, own).counts(at(40))
    assert not validity(data, own, undone=[at(10)]).counts(at(10))


def test_a_compacted_file_counts_unless_it_holds_what_does_not() -> None:
    own = timeline(f"{at(10)}_{at(12)}.deltacommit", f"{at(20)}_{at(21)}.commit")
    before = validity(timeline(f"{at(10)}.deltacommit.inflight"), own)
    after = validity(timeline(f"{at(10)}_{at(13)}.deltacommit"), own)
    assert (before.completion(at(20)), after.completion(at(20))) == (None, at(21))
    early = timeline(f"{at(10)}_{at(12)}.deltacommit", f"{at(9)}_{at(21)}.commit")
    assert validity(timeline(f"{at(10)}.deltacommit.inflight"), early).completion(at(9)) == at(21)
    assert validity(timeline(), timeline(f"{at(10)}.deltacommit.inflight")).completion(at(10)) is None


def as_before(path: Path, commits: int) -> tuple[MetadataTable, str]:
    """As of a view that was taken before the last commits, the metadata table listed after them."""
    table = metadata_of(path)
    timeline_now = state_timeline(path)
    last = [i for i in timeline_now.completed if i.action == "deltacommit"][-commits].requested
    names = {n for n in timeline_now.names if n < last and not ("_" in n and n.split("_")[1][:17] >= last)}
    older = Validity(ActiveTimeline(names, {}), table.timeline, table.archive.completion_time)
    return replace(table, validity=older, _groups={}), last


def test_an_older_view_does_not_see_what_was_committed_after_it(unpacked: Path) -> None:
    older, last = as_before(unpack("killed_nbcc_mdt", unpacked), 1)
    listed = {name for names in older.files().values() for name in names}
    assert listed
    assert not [name for name in listed if last in name]
    now = metadata_of(unpack("killed_nbcc_mdt", unpacked)).files()
    assert [name for names in now.values() for name in names if last in name]


def test_a_view_that_is_older_than_a_compaction_of_later_rows_is_taken_again(unpacked: Path) -> None:
    older, _ = as_before(unpack("mdt_all", unpacked), 5)
    with pytest.raises(FileNotFoundError, match="compacted since"):
        older.files()


def state_timeline(path: Path) -> ActiveTimeline:
    from tests.metadata.metadata_tables import state_of

    return state_of(path).timeline


def test_contents_are_told_by_the_partition_and_its_definition(unpacked: Path) -> None:
    table = metadata_of(unpack("mdt_all", unpacked))
    assert {p: table.content(p) for p in table.partitions} == {
        "bloom_filters": Content.BLOOM, "column_stats": Content.STATS, "expr_index_idx_exp": Content.STATS,
        "files": Content.FILES, "partition_stats": Content.STATS, "record_index": Content.RECORDS,
        "secondary_index_idx_sec": Content.SECONDARY,
    }  # fmt: skip


def test_commits_name_the_schema_that_those_of_java_name(tmp_path: Path) -> None:
    """Else a Java writer that compacts the metadata table before its commit fails."""

    def named(table: Path) -> set[str | None]:
        commits = (table / paths.METADATA_TIMELINE).glob("*commit")
        return {decode_commit(file.read_bytes(), path=file.name).extra.get("schema") for file in commits}

    theirs = named(next(unpack("nbcc_two_writers_mdt", tmp_path).rglob(".hoodie/metadata")).parents[1])
    ours = make(tmp_path / "ours")
    ours.upsert(rows(range(4), 1))
    ours.create_index("column_stats")
    ours.upsert(rows(range(4), 2))
    ours.run_services("metadata", if_due=False)
    assert named(Path(ours.path)) == theirs == {commit_schema(9)}
