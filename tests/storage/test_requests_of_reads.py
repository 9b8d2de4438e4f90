"""Goal: a read of a table in an object store makes the requests that it needs, and no others; what a handle
remembers never changes an answer.

Method: the requests of each kind of read of one small table, with and without a metadata table, by verb, in
a store in memory. Then the table is changed, damaged and replaced behind an open handle.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import CorruptTable, TableReplaced
from mainstem.formats.hfile import Ranges, open_hfile
from mainstem.formats.hfile_write import write_hfile
from mainstem.layout.partitions import list_partitions
from mainstem.limits import KEPT_END_BYTES
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.publish.table_identity import note_identity
from mainstem.storage import object_store, paths
from mainstem.storage.backends import location_of, storage_of
from mainstem.storage.final_files import final_ranges
from mainstem.storage.kept_reads import End, KeptReads
from mainstem.storage.local import LocalStorage
from mainstem.storage.memory_store import forget, memory_store
from mainstem.storage.object_store import ObjectStorage
from tests.storage.requests_made import Requests

URL = "memory://reads/t"
SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
KINDS = ("get", "list_with_delimiter", "head", "get_range", "list")


def batch(first: int, count: int) -> pa.Table:
    rows = range(first, first + count)
    return pa.table([[str(n) for n in rows], [f"day{n % 3}" for n in rows], list(rows)], schema=SCHEMA)


@dataclass
class Copied:
    """A local table, its copy in a store in memory, and the requests that are made there."""

    local: Any
    requests: Requests = field(default_factory=Requests)

    @property
    def folder(self) -> Path:
        return Path(self.local.path)

    def copy(self) -> None:
        """Make the store show what the folder holds."""
        store = memory_store("reads")
        there = {one["path"] for one in store.list().collect()}
        for path in self.folder.rglob("*"):
            key = f"t/{path.relative_to(self.folder).as_posix()}"
            if path.is_file():
                there.discard(key)
                if key.endswith(".properties") or not _has(store, key, path.stat().st_size):
                    store.put(key, path.read_bytes())
        for key in there - {f"t/{paths.GATE}"}:
            store.delete(key)
        self.identify()

    def identify(self) -> None:
        """Note which table it is, where a store's tables have their notes."""
        note_identity(ObjectStorage(memory_store("reads"), location_of(URL)), random.SystemRandom())

    @property
    def identity_asked(self) -> tuple[int, int, int]:
        """What it costs to ask which table it is."""
        return (1, 0, 0) if _has(memory_store("reads"), f"t/{paths.GATE}") else (0, 1, 0)

    def cost(self, read: Callable[[], Any]) -> tuple[int, ...]:
        """How many gets, listings and heads a read makes (all reads of ranges count as gets)."""
        self.requests.made.clear()
        read()
        made = self.requests.made
        assert set(made) <= set(KINDS)
        gets, lists = made["get"] + made["get_range"], made["list_with_delimiter"] + made["list"]
        return gets, lists, made["head"]


def _has(store: Any, key: str, size: int | None = None) -> bool:
    try:
        return store.head(key)["size"] == size or size is None
    except FileNotFoundError:
        return False


NO_SYNC = {"hoodie.mainstem.fsync": "false", "hoodie.mainstem.exclusive": "true"}


@pytest.fixture(scope="module", params=["folders", "metadata"])
def built(request, tmp_path_factory) -> Path:
    metadata = request.param == "metadata"
    path = tmp_path_factory.mktemp("reads") / "t"
    local = mainstem.create_table(
        path, SCHEMA, record_key="id", partition_by="day", buckets=2,
        properties={"hoodie.metadata.enable": str(metadata).lower(), **NO_SYNC},
    )  # fmt: skip
    if metadata:
        local.create_index("column_stats")
    local.upsert(batch(0, 30))
    local.compact()
    local.upsert(batch(20, 20))
    return path


@pytest.fixture
def copied(built: Path, tmp_path: Path, monkeypatch) -> Iterator[Copied]:
    shutil.copytree(built, tmp_path / "t")
    made = Copied(mainstem.open_table(tmp_path / "t", {"hoodie.mainstem.fsync": "false"}))
    real = ObjectStorage.__init__

    def counting(self, *args, **how) -> None:
        real(self, *args, **{**how, "calls": made.requests})

    monkeypatch.setattr(object_store.ObjectStorage, "__init__", counting)
    made.copy()
    yield made
    forget("reads")


def rows(table: Any, **how: Any) -> pa.Table:
    return table.scan(**how).to_arrow().sort_by("id")


#: read -> (gets, listings, heads) from folders, and with a metadata table
COSTS = {
    "open": ((1, 0, 0), (1, 0, 0)),
    "first scan": ((16, 8, 0), (29, 6, 0)),
    "second scan": ((1, 1, 0), (1, 1, 0)),
    "time travel": ((2, 3, 0), (2, 3, 0)),
    "time travel again": ((1, 1, 0), (1, 1, 0)),
    "as of completion": ((1, 2, 0), (1, 2, 0)),
    "as of completion again": ((1, 1, 0), (1, 1, 0)),
    "changes": ((1, 2, 0), (1, 2, 0)),
    "scan after a commit": ((5, 8, 0), (12, 6, 0)),
    "changes after a commit": ((2, 3, 0), (2, 3, 0)),
}
#: those that also ask which table it is
ASKING = ("open", "first scan", "scan after a commit")
FILES = 12  # a base file and a log file of two buckets in three partitions


def test_each_kind_of_read_makes_the_requests_of_this_table(copied: Copied) -> None:
    place = int(copied.local.properties.get("hoodie.table.metadata.partitions", "") != "")
    made: dict[str, tuple[int, ...]] = {}
    opened: list[Any] = []
    made["open"] = copied.cost(lambda: opened.append(mainstem.open_table(URL)))
    table = opened[0]
    made["first scan"] = copied.cost(lambda: rows(table))
    made["second scan"] = copied.cost(lambda: rows(table))
    done = [instant for instant in copied.local.timeline() if instant.is_completed]
    past, moment = done[-1].requested, done[-1].completion
    made["time travel"] = copied.cost(lambda: rows(table, as_of=past))
    made["time travel again"] = copied.cost(lambda: rows(table, as_of=past))
    made["as of completion"] = copied.cost(lambda: rows(table, as_of_completion=moment))
    made["as of completion again"] = copied.cost(lambda: rows(table, as_of_completion=moment))
    made["changes"] = copied.cost(lambda: table.changes(after=done[-2].completion).to_arrow())
    copied.local.upsert(batch(0, 3))
    copied.copy()
    made["scan after a commit"] = copied.cost(lambda: rows(table))
    made["changes after a commit"] = copied.cost(lambda: table.changes(after=moment).to_arrow())
    expected = {name: costs[place] for name, costs in COSTS.items()}
    for name in ASKING:
        more = zip(expected[name], copied.identity_asked, strict=True)
        expected[name] = tuple(one + other for one, other in more)
    assert made == expected


def test_a_filter_costs_what_is_asked_of_the_indexes(copied: Copied) -> None:
    table = mainstem.open_table(URL)
    first = copied.cost(lambda: rows(table, filter=pc.field("day") == "day1"))
    again = copied.cost(lambda: rows(table, filter=pc.field("day") == "day1"))
    whole = copied.cost(lambda: rows(table))
    # All partitions are listed now, or looked up in the metadata table, as the filter named one of three.
    listed, looked_up = (1 + FILES * 2 // 3, 1 + 1 + 3 + 1, 0), (3 + FILES * 2 // 3, 3, 0)
    assert whole in (listed, looked_up) and first[0] > again[0]
    assert copied.cost(lambda: rows(table)) == (1, 1, 0)
    assert copied.cost(lambda: rows(table, filter=pc.field("day") == "day1")) == again
    # Indexes: their timeline, and the properties once more, which say whether they were dropped meanwhile.
    assert again in ((1, 1, 0), (2, 2, 0))


def test_a_look_up_reads_the_slice_of_its_bucket(copied: Copied) -> None:
    table = mainstem.open_table(URL)
    found = table.scan(filter=pc.field("id") == "25").to_arrow()
    assert found.column("v").to_pylist() == [25]
    data = {str(key) for _, key in copied.requests.log if "/day" in str(key) and "." in str(key)}
    assert 1 <= len(data) <= 6, data  # base and log file of this bucket in each of three partitions
    cost = copied.cost(lambda: table.scan(filter=pc.field("id") == "25").to_arrow())
    assert sum(cost) <= 6


def test_a_handle_sees_what_was_committed_since(copied: Copied) -> None:
    table = mainstem.open_table(URL)
    assert rows(table).num_rows == 40
    for first in (100, 200):
        copied.local.upsert(batch(first, 5))
        copied.copy()
        assert rows(table).equals(rows(copied.local))
    copied.local.compact()
    copied.local.clean()
    copied.copy()
    assert rows(table).equals(rows(copied.local))
    copied.local.delete(batch(0, 3).select(["id", "day"]))
    copied.copy()
    assert rows(table).equals(rows(copied.local)) and rows(table).num_rows == 47


def test_a_handle_sees_properties_that_changed_alone(copied: Copied) -> None:
    table = mainstem.open_table(URL)
    before = rows(table)
    key = "t/.hoodie/hoodie.properties"
    text = bytes(memory_store("reads").get(key).bytes())
    memory_store("reads").put(key, text.replace(b"hoodie.table.version=9", b"hoodie.table.version=5"))
    if b"hoodie.table.version=9" in text:
        with pytest.raises(mainstem.errors.Unsupported):
            rows(table)
    memory_store("reads").put(key, text)
    assert rows(table).equals(before)


def test_a_handle_notices_another_table_at_its_path(copied: Copied, tmp_path: Path) -> None:
    table = mainstem.open_table(URL)
    rows(table)
    shutil.rmtree(copied.folder)
    copied.local = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", partition_by="day", buckets=2,
        properties=NO_SYNC,
    )  # fmt: skip
    memory_store("reads").delete([f"t/{paths.GATE}"])
    copied.copy()
    with pytest.raises(TableReplaced):
        rows(table)
    copied.local.upsert(batch(0, 3))
    copied.copy()
    with pytest.raises(TableReplaced):
        rows(table)


def test_an_index_that_is_rebuilt_behind_a_known_view_is_not_asked(
    tmp_path: Path, monkeypatch
) -> None:
    local = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", buckets=2,
        properties={"hoodie.metadata.enable": "true", **NO_SYNC},
    )  # fmt: skip
    local.upsert(batch(0, 30).set_column(1, "day", pa.array([""] * 30)))
    local.create_index("column_stats")
    copied = Copied(local)
    copied.copy()
    table = mainstem.open_table(URL)
    wanted = pc.field("v") == 3
    assert rows(table, filter=wanted).num_rows == 1
    real, done = MetadataTable.refreshed, []

    def late(self: MetadataTable) -> MetadataTable:
        if not done:
            done.append(True)
            local.delete(batch(3, 1).select(["id"]))
            local.compact()
            local.reindex("column_stats")
            copied.copy()
        return real(self)

    monkeypatch.setattr(MetadataTable, "refreshed", late)
    assert rows(table, filter=wanted).num_rows == 1 and done
    assert rows(table, filter=wanted).num_rows == 0
    forget("reads")


def newest_file(copied: Copied, suffix: str) -> str:
    """The key of a file that the newest slices need."""
    found = [path for path in copied.folder.glob("day*/*") if suffix in path.name]
    newest = max(found, key=lambda path: max(path.name.split("_")[1:]))
    return f"t/{newest.relative_to(copied.folder).as_posix()}"


@pytest.mark.parametrize("suffix", [".parquet", ".log."])
@pytest.mark.parametrize("what", ["gone", "short", "empty"])
def test_a_file_that_is_gone_or_cut_off_is_the_error_of_the_local_disk(
    copied: Copied, suffix: str, what: str
) -> None:
    key = newest_file(copied, suffix)
    store = memory_store("reads")
    local = copied.folder / key.removeprefix("t/")
    content = local.read_bytes()
    if what == "gone":
        store.delete(key)
        local.unlink()
    else:
        kept = b"" if what == "empty" else content[: len(content) - 7]
        store.put(key, kept)
        local.write_bytes(kept)
    tables = (mainstem.open_table(copied.folder), mainstem.open_table(URL))
    said = []
    for table in tables:
        for read in (lambda one: rows(one), lambda one: list(one.scan().to_batches())):
            with pytest.raises(CorruptTable) as error:
                read(table)
            said.append(str(error.value).replace(URL, str(copied.folder)))
    assert said == [said[0]] * 4
    lenient = [
        rows(mainstem.open_table(place, {"mainstem.read.damaged": "skip"}))
        for place in (copied.folder, URL)
        if what != "gone" and suffix == ".log."
    ]
    assert not lenient or lenient[0].equals(lenient[1])
    store.put(key, content)
    assert rows(tables[1]).num_rows == 40  # the repaired file is noticed


def test_a_file_that_vanishes_behind_a_handle_is_damage_once_it_is_needed(copied: Copied) -> None:
    remembers = mainstem.open_table(URL)
    forgets = mainstem.open_table(URL, {"hoodie.mainstem.storage.memory": "0"})
    assert rows(remembers).equals(rows(forgets))
    memory_store("reads").delete(newest_file(copied, ".log."))
    assert rows(remembers).num_rows == 40
    with pytest.raises(CorruptTable, match="it is gone, and no clean removed it"):
        rows(forgets)


def test_queries_of_several_threads_share_what_is_known(copied: Copied) -> None:
    table = mainstem.open_table(URL)
    done = [instant for instant in copied.local.timeline() if instant.is_completed]

    def read(number: int) -> int:
        if number % 3 == 0:
            return int(table.scan(as_of=done[-1].requested).to_arrow().num_rows)
        return int(table.scan(filter=pc.field("v") >= 0).to_arrow().num_rows)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, range(24))) == {40}


def test_folders_of_a_store_are_listed_level_by_level_in_the_order_of_the_local_disk(tmp_path: Path) -> None:
    store = memory_store("levels")
    for partition in ("b", "a/b", "a", "a-b", "a/b/c", "x/y/z"):
        (tmp_path / partition).mkdir(parents=True, exist_ok=True)
        for name in (".hoodie_partition_metadata", "one.parquet"):
            (tmp_path / partition / name).write_bytes(b"x")
            store.put(f"{partition}/{name}", b"x")
    (tmp_path / ".hoodie").mkdir()
    store.put(".hoodie/hoodie.properties", b"")
    there = storage_of(location_of("memory://levels/"))
    local = LocalStorage(str(tmp_path))
    assert list(list_partitions(there, partitioned=True)) == list(list_partitions(local, partitioned=True))
    forget("levels")


def test_what_is_kept_has_a_bound() -> None:
    kept = KeptReads(10)
    for number in range(5):
        kept.put((str(number), None), End(memoryview(b"1234"), 4))
    assert [kept.get((str(number), None)) is not None for number in range(5)] == [False] * 3 + [True] * 2
    kept.get(("3", None))
    kept.put(("5", None), End(memoryview(b"1234"), 4))
    assert kept.get(("3", None)) is not None and kept.get(("4", None)) is None
    kept.put(("6", None), End(memoryview(b"12345678901"), 11))
    assert kept.get(("6", None)) is None and kept.get(("5", None)) is not None
    kept.forget()
    assert kept.get(("5", None)) is None


def test_a_look_up_fetches_the_blocks_of_a_large_hfile_that_it_needs() -> None:
    count, width = 40_000, 100
    keys = pa.array([f"{number:08}" for number in range(count)])
    noise = np.random.default_rng(7).bytes(count * width)
    values = pa.array([noise[at : at + width] for at in range(0, len(noise), width)], pa.binary())
    content = write_hfile(keys, values, schema_text="{}", base_file=True)
    requests = Requests()
    storage = ObjectStorage(memory_store("hfile"), location_of("memory://hfile/t"), calls=requests)
    storage.put_new("one.hfile", content, durable=True)
    size = len(content)
    assert size > 4 * KEPT_END_BYTES
    whole = open_hfile(content, path="one.hfile")
    for wanted in ([5], [5, 20_000, 39_999], range(0, count, 500)):
        requests.made.clear()
        ranges = final_ranges(storage, "one.hfile")
        assert ranges is not None
        file = open_hfile(Ranges(ranges.size, ranges.part, ranges.prefetch), path="one.hfile")
        some = keys.take(pa.array(wanted))
        assert file.lookup(some) == whole.lookup(some)
        assert requests.made["get_range"] <= 2  # near blocks come together
        assert requests.made["get"] == (1 if wanted == [5] else 0)  # the end is fetched once
    assert file.prefixes(pa.array(["0000001"])) == whole.prefixes(pa.array(["0000001"]))
    forget("hfile")
