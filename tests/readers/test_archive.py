"""Goal: the archived timeline is read as Hudi's readers do, and hostile or half-switched archives
do no harm.

Method: archives made here byte by byte (parquet files, manifests, version file) in every state
that a crash or a concurrent archival leaves; and the archive that Java wrote (golden table
``archive_lsm``).
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.errors import CorruptTable
from mainstem.lsm_archive.reader import Archive, ArchivedInstant
from tests.golden_tables.tables import expectations, unpack
from tests.storage.steps import storage_at

pytestmark = pytest.mark.versions
FOLDER = ".hoodie/timeline/history"
SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)


def time(number: int) -> str:
    return f"{20260101000000000 + number}"


class Made:
    """An archive under construction."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.folder = base / FOLDER
        self.folder.mkdir(parents=True)

    def data(self, numbers, level=0, name=None, schema=SCHEMA):
        rows = [
            {
                "instantTime": time(n),
                "completionTime": None if n % 100 == 99 else time(n + 5),
                "action": "deltacommit",
                "metadata": f"metadata {n}".encode(),
                "plan": None,
                "version": 1,
            }
            for n in numbers
        ]
        name = name or f"{time(numbers[0])}_{time(numbers[-1])}_{level}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA).select(schema.names), self.folder / name)
        return name

    def manifest(self, version, names, switch=True):
        files = [{"fileName": n, "fileLen": 1} for n in names]
        (self.folder / f"manifest_{version}").write_text(json.dumps({"files": files}))
        if switch:
            (self.folder / "_version_").write_text(str(version))

    def open(self):
        return Archive.load(storage_at(self.base), FOLDER)


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


def test_times_and_metadata_of_archived_instants(made):
    made.manifest(1, [made.data(range(0, 50, 10)), made.data(range(50, 100), level=1)])
    archive = made.open()
    assert archive.completion_time(time(20)) == time(25)
    assert archive.completion_time(time(99)) == time(99)  # legacy row without completion time
    assert archive.completion_time(time(21)) is None
    assert archive.completion_time("") is None
    assert archive.completion_time("9" * 40) is None
    assert archive.is_archived(time(60))
    assert archive.metadata(time(60)) == b"metadata 60"
    assert archive.metadata(time(60), "commit") is None
    assert archive.metadata(time(5)) is None
    expected = [ArchivedInstant(time(n), time(n + 5), "deltacommit") for n in (20, 30)]
    assert archive.instants(time(15), time(30)) == expected
    completed = archive.completed(time(15), time(35))
    assert completed["instantTime"].to_pylist() == [time(20), time(30)]


def test_an_instant_in_two_overlapping_files_is_told_once(made):
    made.manifest(1, [made.data(range(10)), made.data(range(5, 15))])
    assert len(made.open().instants()) == 15


@pytest.mark.parametrize("version", [None, b"", b"seven", b"\xff\xfe", b"9" * 5000])
def test_without_a_readable_version_file_the_newest_manifest_counts(made, version):
    made.manifest(1, [made.data(range(10))])
    made.manifest(2, [made.data(range(10)), made.data(range(10, 20))])
    made.manifest(10, [made.data(range(30))])
    (made.folder / "manifest_11.tmp").write_text("half")
    if version is None:
        (made.folder / "_version_").unlink()
    else:
        (made.folder / "_version_").write_bytes(version)
    assert len(made.open().instants()) == 30


def test_no_archive_at_all_is_an_empty_one(tmp_path):
    archive = Archive.load(storage_at(tmp_path), FOLDER)
    assert archive.instants() == []
    assert archive.completion_time(time(1)) is None
    assert archive.metadata(time(1)) is None


def test_a_reader_follows_a_switch_that_takes_its_files_away(made):
    """Compaction of the archive: one file for two, then a clean deletes the sources."""
    old = [made.data(range(10)), made.data(range(10, 20))]
    made.manifest(1, old)
    archive = made.open()
    assert len(archive.instants()) == 20
    made.manifest(2, [made.data(range(20), level=1)])
    for name in old:
        (made.folder / name).unlink()
    (made.folder / "manifest_1").unlink()
    assert archive.metadata(time(3)) == b"metadata 3"
    assert len(archive.instants()) == 20
    assert archive.completion_time(time(12)) == time(17)


def test_a_manifest_whose_files_stay_away_is_an_error(made):
    made.manifest(1, [f"{time(0)}_{time(9)}_0.parquet"])
    with pytest.raises(CorruptTable, match="are gone"):
        made.open().completion_time(time(1))


@pytest.mark.parametrize(
    "name",
    ["../../hoodie.properties", "/etc/passwd", "x.parquet", "1_2_0.parquet", "", None, 7, ["a"]],
)
def test_a_manifest_that_names_something_else_is_refused(made, name):
    (made.folder / "manifest_1").write_text(json.dumps({"files": [{"fileName": name}]}))
    with pytest.raises(CorruptTable, match="manifest lists") as caught:
        made.open().instants()
    assert caught.value.path == f"{FOLDER}/manifest_1"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 3}', "{" * 100_000, "null"])
def test_a_manifest_that_is_none_is_refused(made, text):
    (made.folder / "manifest_1").write_text(text)
    with pytest.raises(CorruptTable):
        made.open().instants()


@pytest.mark.parametrize("kind", ["garbage", "empty", "columns", "times"])
def test_a_damaged_archive_file_is_an_error_with_its_path(made, kind):
    name = made.data(range(10))
    if kind == "columns":
        made.data(range(10), name=name, schema=pa.schema([SCHEMA.field("action")]))
    elif kind == "times":
        bad = pa.table({"instantTime": ["../x"], "completionTime": ["1"], "action": ["commit"]})
        pq.write_table(bad, made.folder / name)
    else:
        (made.folder / name).write_bytes(b"PAR1" * 50 if kind == "garbage" else b"")
    made.manifest(1, [name])
    with pytest.raises(CorruptTable) as caught:
        made.open().completion_time(time(1))
    assert caught.value.path == f"{FOLDER}/{name}"


def test_the_archive_that_java_wrote_holds_what_java_lists(tmp_path_factory):
    path = unpack("archive_lsm", tmp_path_factory.mktemp("golden"))
    archive = Archive.load(storage_at(path), FOLDER)
    listed = expectations("archive_lsm")["archived_instants"]
    found = [(i.requested, i.completion, i.action) for i in archive.instants()]
    assert found == sorted((i["requested"], i["completion"], i["action"]) for i in listed)
    assert all(archive.metadata(i["requested"], i["action"]) for i in listed)
    assert mainstem.open_table(path).scan().to_arrow().num_rows > 0


def test_an_instant_archived_after_the_timeline_was_listed_stays_invisible(tmp_path):
    """Its completion is newer than all that the listing shows: it is not in this view."""
    from mainstem.layout.properties import load_config
    from mainstem.readers.planning.table_state import TableState

    schema = pa.schema([("id", pa.int64())])
    table = mainstem.create_table(
        tmp_path / "t",
        schema,
        record_key=["id"],
        buckets=1,
        properties={"hoodie.time.generator.max_expected_clock_skew_ms": "0"},
    )
    first = table.upsert(pa.table({"id": [1]}, schema=schema))
    storage = storage_at(tmp_path / "t")
    state = TableState.load(storage, load_config(storage))
    later = table.upsert(pa.table({"id": [2]}, schema=schema))
    rows = [
        {"instantTime": o.instant, "completionTime": o.completion_time, "action": "deltacommit",
         "metadata": b"", "plan": None, "version": 1}
        for o in (first, later)
    ]  # fmt: skip
    name = f"{first.instant}_{later.instant}_0.parquet"
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), tmp_path / "t" / FOLDER / name)
    (tmp_path / "t" / FOLDER / "manifest_1").write_text(
        json.dumps({"files": [{"fileName": name, "fileLen": 1}]})
    )
    assert state.completion(first.instant) == first.completion_time
    assert state.completion(later.instant) is None
    assert TableState.load(storage, load_config(storage)).completion(later.instant) is not None


@pytest.mark.parametrize(("after", "last"), [(None, None), (3, 40), (12, 12), (11, 12), (0, 5), (50, None)])
def test_instants_are_told_newest_first_whatever_files_they_lie_in(made, after, last):
    files = [range(1, 30, 3), range(2, 60, 7), range(10, 20), range(40, 48)]
    names = [made.data(sorted(numbers), level=at) for at, numbers in enumerate(files)]
    made.manifest(1, names)
    low, high = "" if after is None else time(after), None if last is None else time(last)
    found = [i.requested for i in made.open().newest_first(low, high)]
    every = sorted({time(n) for numbers in files for n in numbers}, reverse=True)
    assert found == [t for t in every if t > low and (high is None or t <= high)]


def test_the_newest_archived_instants_are_told_without_opening_the_oldest_files(made):
    names = [made.data(list(range(first, first + 5))) for first in (10, 20, 30)]
    made.manifest(1, names)
    archive = made.open()
    assert next(archive.newest_first()).requested == time(34)
    assert list(archive._open) == names[2:]
