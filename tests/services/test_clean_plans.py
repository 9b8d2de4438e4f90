"""Goal: plans and metadata of cleans are Java's, byte for field; a plan that is wrong deletes nothing.

Method: Java's tables are taken back to the moment of each of Java's cleans (names and timeline are enough)
and planned again by us. Plans are bent in every way and executed beside a file that must survive.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import mainstem
from mainstem.errors import CorruptTable, Unsupported
from mainstem.formats.avro_container import decode_container, encode_container
from mainstem.layout.properties import load_config
from mainstem.readers.planning.history import cleaned_since
from mainstem.readers.planning.table_state import TableState
from mainstem.services import cleaning
from mainstem.services.claim import claimed
from mainstem.services.clean_plan import CleanOptions, plan_clean
from mainstem.storage import paths
from mainstem.timeline.clean_records import (
    CleanPlan,
    decode_clean_plan,
    encode_clean_metadata,
    encode_clean_plan,
)
from mainstem.timeline.commit_metadata import VERSION_MARK, schema_text
from tests.golden_tables.tables import expectations, unpack
from tests.services.city_table import make, rows
from tests.services.test_cleaning import RETAINED, turn
from tests.storage.steps import storage_at

pytestmark = pytest.mark.supports("Services", "cleaning: by commits, hours or file versions")
# Java writes too, as far as the table knows.
SHARED = {
    RETAINED: "2", "hoodie.mainstem.exclusive": "false",
    "hoodie.time.generator.max_expected_clock_skew_ms": "1",
}  # fmt: skip
CLEANED = ("clean_mor", "clean_mor_by_1_0_2", "clean_mor_mdt", "cow_basic", "cow_basic_v8")


class Java:
    """One of Java's tables, and its cleans."""

    def __init__(self, name: str, folder: Path) -> None:
        self.storage = storage_at(unpack(name, folder))
        self.state = TableState.load(self.storage, load_config(self.storage))
        self.base = f"/data/hudi/tables/{name}"  # where Java wrote it
        self.cleans = [i for i in self.state.timeline.completed if i.action == "clean"]

    def bytes_of(self, file_name: str) -> bytes:
        return (Path(self.storage.base) / paths.timeline_file(file_name)).read_bytes()

    def record(self, file_name: str) -> dict:
        return decode_container(self.bytes_of(file_name), path=file_name)[0]

    def as_of(self, time: str) -> TableState:
        """What was completed when a clean was planned."""
        late = {i.file_name for i in self.state.timeline.completed if i.completion > time}
        return TableState(
            self.storage, self.state.config, self.state.timeline.without(late), self.state.archive
        )

    def files(self, time: str) -> dict[str, set[str]]:
        gone = cleaned_since(self.state, time)
        return {p.partition: {*p.names, *gone.get(p.partition, ())} for p in self.state.partitions()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("golden")


@pytest.mark.parametrize("name", CLEANED)
def test_we_would_have_removed_what_java_removed(name, folder):
    java = Java(name, folder)
    options = CleanOptions.from_properties(expectations(name)["writer_options"])
    compared = 0
    for clean in java.cleans:
        record = java.record(f"{clean.requested}.clean.requested")
        if record["earliestInstantToRetain"]["timestamp"] < (java.state.timeline.start or ""):
            continue  # the commits that it was planned on are archived
        ours = plan_clean(java.as_of(clean.requested), java.files(clean.requested), options, clean.requested)
        if ours is None:
            assert java.state.archive.instants(), "some of its commits are archived"
            continue
        assert in_order(decode_container(encode_clean_plan(ours, java.base), path="")[0]) == in_order(record)
        compared += 1
    assert compared >= 2


def in_order(record: dict) -> dict:
    """A plan whose lists are sorted: the order is that of Java's hash maps. COW paths have no scheme."""
    files = {
        partition: sorted("file:" + f.pop("filePath").removeprefix("file:") + str(f) for f in planned)
        for partition, planned in record["filePathsToBeDeletedPerPartition"].items()
    }
    return {**record, "filePathsToBeDeletedPerPartition": files}


@pytest.mark.parametrize("name", CLEANED)
def test_plan_and_metadata_come_out_as_java_wrote_them(name, folder):
    java = Java(name, folder)
    for clean in java.cleans:
        requested = f"{clean.requested}.clean.requested"
        plan = decode_clean_plan(java.bytes_of(requested), path=requested, base=java.base)
        again, header = decode_container(encode_clean_plan(plan, java.base), path="")
        assert in_order(again) == in_order(java.record(requested))
        assert header["avro.schema"] == schema_text("HoodieCleanerPlan").encode()
        theirs = java.record(clean.file_name)
        taken = theirs["timeTakenInMillis"]
        data = encode_clean_metadata(plan, requested=clean.requested, taken_ms=taken)
        ours, header = decode_container(data, path="")
        assert ours == theirs and list(ours) == list(theirs)
        assert header["avro.schema"] == schema_text("HoodieCleanMetadata").encode()


def test_replaced_file_groups_go_when_their_replace_commit_is_older_than_the_boundary(folder):
    java = Java("clustering_mor", folder)
    commits = java.state.writes
    replaced = {
        (i.requested, p, file_id)
        for i in commits if i.action == "replacecommit"
        for p, ids in java.state.metadata(i.requested).replaced.items() for file_id in ids
    }  # fmt: skip
    names = {p.partition: p.names for p in java.state.partitions()}
    seen = 0
    for retained in range(1, len(commits)):
        options = CleanOptions(commits=retained)
        plan = plan_clean(java.state, names, options, "20270101000000000")
        gone = (
            set() if plan is None else {(p, paths.file_id_of(n)) for p in plan.files for n in plan.files[p]}
        )
        expired = {(p, f) for time, p, f in replaced if time < commits[-retained].requested}
        there = {(p, paths.file_id_of(n)) for p in names for n in names[p]}
        assert gone & {(p, f) for _, p, f in replaced} == expired & there
        seen += len(gone)
    assert seen > 10
    by_versions = CleanOptions("KEEP_LATEST_FILE_VERSIONS", versions=9)
    plan = plan_clean(java.state, names, by_versions, "20270101000000000")
    assert {(p, paths.file_id_of(n)) for p in plan.files for n in plan.files[p]} == {
        (p, f) for _, p, f in replaced if (p, f) in there
    }


@pytest.fixture
def planned(tmp_path):
    """A table with a pending clean, and its time."""
    table = make(tmp_path / "t", **SHARED)
    for number in range(4):
        turn(table, number)
    return table, table.schedule_clean()


def rewrite(table: mainstem.Table, time: str, change, mark: bool = True) -> None:
    """The plan on the timeline, changed; without ``mark`` as if another engine had made it."""
    file = Path(table.path) / paths.timeline_file(f"{time}.clean.requested")
    record, _ = decode_container(file.read_bytes(), path=file.name)
    change(record["filePathsToBeDeletedPerPartition"])
    file.unlink()
    file.write_bytes(encode_container(schema_text("HoodieCleanerPlan"), record, VERSION_MARK if mark else {}))


def entry(path: str) -> dict:
    return {"filePath": path, "isBootstrapBaseFile": False}


def tree(table: mainstem.Table) -> set[str]:
    return {str(p) for p in Path(table.path).parent.rglob("*") if ".hoodie" not in str(p)}


def live(table: mainstem.Table, wanted: str) -> tuple[str, str]:
    """Partition and name of a file of the newest slice."""
    found = next(s for s in table.file_slices() if s.latest)
    return found.partition, (found.base_file if wanted == "base" else found.log_files[0])


OTHER = "00000000-0000-0000-0000-000000000000-0_0-0-0_20260101000000000.parquet"


WRONG = (
    ("a", "file:/etc/passwd", "no data file"),
    ("a", "{base}/a/.hoodie_partition_metadata", "no data file"),
    ("a", "{base}/.hoodie/hoodie.properties", "no data file"),
    ("a", "file:{outside}/" + OTHER, "not in partition 'a' of this table"),
    ("a", "file:{base}/b/" + OTHER, "not in partition 'a' of this table"),
    ("a", "{base}/a/../../" + OTHER, "not in partition 'a' of this table"),
    ("../outside", "file:{outside}/" + OTHER, "leaves the table"),
    ("/outside", "file:{outside}/" + OTHER, "leaves the table"),
    ("a", "s3://bucket/t/a/" + OTHER, "not in partition 'a' of this table"),
    ("a", "file:{base}/a/\n" + OTHER, "no data file"),
    ("a", "", "no data file"),
    (".hoodie/timeline", "file:{base}/.hoodie/timeline/" + OTHER, "is no partition"),
)


@pytest.mark.parametrize("mark", [True, False], ids=["ours", "another engine's"])
def test_a_plan_that_names_what_is_no_data_file_of_its_partition_is_refused(planned, mark):
    table, time = planned
    outside = Path(table.path).parent / "outside"
    outside.mkdir()
    (outside / OTHER).write_bytes(b"canary")
    before = tree(table)
    for partition, path, expected in WRONG:
        wrong = entry(path.format(base=table.path, outside=outside))
        rewrite(table, time, lambda files: files.setdefault(partition, []).append(wrong), mark)  # noqa: B023
        with pytest.raises(CorruptTable, match=expected):
            table.clean()
        rewrite(table, time, lambda files: files[partition].remove(wrong), mark)  # noqa: B023
        assert tree(table) == before and (outside / OTHER).read_bytes() == b"canary", path
    (done,) = table.clean()
    assert done.deleted == done.files


def test_a_plan_of_another_table_is_refused_and_one_of_ours_follows_its_table(planned, tmp_path):
    table, time = planned
    moved = Path(table.path).rename(tmp_path / "moved")
    table = mainstem.open_table(moved, {"hoodie.mainstem.fsync": False})
    rewrite(table, time, lambda files: None, mark=False)
    before = tree(table)
    with pytest.raises(CorruptTable, match="If the table was moved while the clean was pending"):
        table.clean()
    assert tree(table) == before
    rewrite(table, time, lambda files: None, mark=True)
    (done,) = table.clean()
    assert done.deleted == done.files > 0


@pytest.mark.parametrize("kind", ["base", "log"])
def test_a_plan_that_names_a_file_of_the_newest_slice_is_refused(planned, kind):
    table, time = planned
    table.upsert(rows(range(8), 9))
    partition, name = live(table, kind)
    path = f"file:{table.path}/{partition}/{name}"
    rewrite(table, time, lambda files: files[partition].append(entry(path)), mark=False)
    before = tree(table)
    with pytest.raises(CorruptTable, match="part of the newest file slice; nothing was deleted"):
        table.clean()
    assert tree(table) == before and table.scan().to_arrow().num_rows == 8


@pytest.mark.disk("on a store nothing is written before the commit")
def test_a_plan_that_names_a_file_of_an_open_transaction_is_refused(planned):
    table, time = planned
    with table.begin() as txn:
        txn.write(rows([1], 9))
        log = next(p for p in Path(table.path).rglob(f"*_{txn.instant}.log.*") if ".hoodie" not in str(p))
        partition = log.parent.name
        rewrite(table, time, lambda files: files[partition].append(entry(f"file:{log}")), mark=False)
        with pytest.raises(CorruptTable, match="whose instant is not completed"):
            table.clean()
        assert txn.commit().status == "committed"


def test_a_plan_is_executed_while_instants_of_its_files_are_archived(tmp_path: Path) -> None:
    made = make(tmp_path / "t")
    few = {
        RETAINED: 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3,
        "hoodie.mainstem.services": "off", "hoodie.mainstem.fsync": False,
    }  # fmt: skip
    table = mainstem.open_table(made.path, few)
    first = table.upsert(rows(range(8), 1)).instant
    table.compact()
    table.upsert(rows(range(8), 2))
    table.compact()
    for ts in (3, 4, 5, 6):
        table.upsert(rows(range(8), ts))
    assert table.schedule_clean() is not None and table.archive() is not None
    storage = table.opened.seams.storage
    for state in ("requested", "inflight"):  # a listing may show these, and miss the completed file
        storage.put(paths.timeline_file(f"{first}.deltacommit.{state}"), b"", durable=False)
    (done,) = table.clean()
    assert done.deleted == done.files > 0
    assert set(table.scan().to_arrow()["ts"].to_pylist()) == {6}


def test_a_plan_that_names_savepointed_files_is_refused(tmp_path):
    table = make(tmp_path / "t", **SHARED)
    turn(table, 0)
    saved = table.upsert(rows(range(8), 1)).instant
    table.savepoint(saved)
    kept = next(s for s in table.file_slices() if s.latest)
    for number in range(2, 6):
        turn(table, number)
    time = table.schedule_clean()
    path = f"file:{table.path}/{kept.partition}/{kept.base_file}"
    rewrite(table, time, lambda files: files.setdefault(kept.partition, []).append(entry(path)), mark=False)
    before = tree(table)
    with pytest.raises(CorruptTable, match="which a savepoint or a pending compaction needs"):
        table.clean()
    assert tree(table) == before


@pytest.mark.disk("only disks have Hadoop's checksums, and tell whether a file was there")
def test_files_that_do_not_exist_are_no_trouble_and_checksums_go_with_their_files(planned):
    table, time = planned
    rewrite(table, time, lambda files: files["a"].append(entry(f"file:{table.path}/a/{OTHER}")), mark=False)
    first = min(Path(table.path).rglob("*.parquet"), key=lambda p: paths.parse_base_name(p.name).instant)
    checksum = first.with_name(f".{first.name}.crc")
    checksum.touch()
    (done,) = table.clean()
    assert done.files == done.deleted + 1 and not first.exists() and not checksum.exists()


def test_a_bootstrapped_tables_source_files_are_hudis_to_delete(planned):
    table, time = planned
    source = {"filePath": f"file:/source/{OTHER}", "isBootstrapBaseFile": True}
    rewrite(table, time, lambda files: files["a"].append(source), mark=False)
    with pytest.raises(Unsupported, match="bootstrapped"):
        table.clean()


def test_plans_of_version_1_hold_names_and_are_read_too():
    record = {
        "earliestInstantToRetain": None, "lastCompletedCommitTimestamp": "", "policy": "KEEP_LATEST_COMMITS",
        "filesToBeDeletedPerPartition": {"a": [OTHER]}, "version": 1,
        "filePathsToBeDeletedPerPartition": None, "partitionsToBeDeleted": None, "extraMetadata": None,
    }  # fmt: skip
    data = encode_container(schema_text("HoodieCleanerPlan"), record)
    expected = CleanPlan("KEEP_LATEST_COMMITS", {"a": (OTHER,)})
    assert decode_clean_plan(data, path="p", base="/t") == expected
    with pytest.raises(CorruptTable, match="p"):
        decode_clean_plan(data[:-3], path="p", base="/t")


def test_services_leave_javas_plan_of_the_last_minute_to_java(planned):
    table, time = planned
    rewrite(table, time, lambda files: None, mark=False)
    assert table.clean(if_due=True) == [], "Java has not begun yet"
    requested = Path(table.path, paths.timeline_file(f"{time}.clean.requested"))
    assert requested.exists() and not requested.with_suffix(".inflight").exists()
    age = requested.stat().st_mtime - 61
    os.utime(requested, (age, age))
    (done,) = table.clean(if_due=True)
    assert done.requested == time and done.deleted > 0


def test_our_own_plan_is_executed_at_once_whoever_made_it(planned):
    table, time = planned
    (done,) = table.clean(if_due=True)
    assert done.requested == time and done.deleted > 0


def test_a_clean_that_java_has_begun_is_ended_at_once(planned):
    table, time = planned
    rewrite(table, time, lambda files: None, mark=False)
    Path(table.path, paths.timeline_file(f"{time}.clean.inflight")).touch()
    (done,) = table.clean(if_due=True)
    assert done.requested == time and done.deleted > 0


def test_our_own_plan_is_begun_before_anything_else_is_done_with_it(planned, monkeypatch):
    table, _ = planned
    table.clean()
    for number in range(6, 9):
        turn(table, number)
    seen = []

    def look(ctx, time, what):
        seen.append(Path(table.path, paths.timeline_file(f"{time}.clean.inflight")).exists())
        return claimed(ctx, time, what)

    monkeypatch.setattr(cleaning, "claimed", look)
    assert table.clean()[0].deleted > 0 and seen == [True]
