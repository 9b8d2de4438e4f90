"""Goal: no file of a table can vanish, or lose its content, without either the same rows or an error that
names it; and no service makes such a loss permanent.

Method: every file of tables of ours and of Java's is taken away, and emptied, one at a time, and the table is
read. Left out is what nothing else tells: the completed file of an instant (it looks like one that has not
ended), and, without a metadata table, data files whose instants are archived. Then the services are asked to
work on a table without one of its log files.
"""

from __future__ import annotations

import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import CorruptTable, MainstemError
from mainstem.layout import committed_files
from mainstem.storage import paths
from tests.bad_input.common import golden, is_clear
from tests.services.city_table import QUICK, content, layered, make, rows

DAMAGES = {"missing": Path.unlink, "empty": lambda file: file.write_bytes(b"")}
SMALL = {
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED",
}


def _ours(folder: Path) -> Path:
    return Path(layered(make(folder / "t")).path)


def _ours_archived(folder: Path) -> Path:
    table = make(folder / "t", **SMALL)
    for number in range(5):
        table.upsert(rows(range(8), number))
    table.compact()
    table.clean()
    table.upsert(rows(range(4), 9))
    table.archive()
    return Path(table.path)


def _ours_indexed(folder: Path) -> Path:
    table = make(folder / "t")
    table.upsert(rows(range(10), 1))
    table.create_index("files")
    table = mainstem.open_table(table.path, QUICK)
    table.upsert(rows(range(5), 2))
    table.compact()
    table.upsert(rows(range(3), 3))
    return Path(table.path)


def _java(name: str) -> Callable[[Path], Path]:
    return lambda folder: golden(name, folder)


TABLES: dict[str, Callable[[Path], Path]] = {
    "ours": _ours,
    "ours, archived": _ours_archived,
    "ours, indexed": _ours_indexed,
    **{name: _java(name) for name in ("basic_mor", "cow_bucket", "clean_mor_mdt", "archive_lsm")},
}


def _rows(path: Path) -> Counter[str]:
    found: pa.Table = mainstem.open_table(path).scan().to_arrow()
    return Counter(str(row) for row in found.to_pylist())


def _untold(path: Path, file: Path, what: str) -> bool:
    """Whether nothing tells that the file is not as it should be."""
    relative = file.relative_to(path)
    if relative.parts[:2] == (".hoodie", "timeline") and "history" not in relative.parts:
        return what == "missing" and "_" in file.name
    if ".hoodie" in relative.parts or (path / paths.METADATA / paths.TIMELINE).exists():
        return False
    parsed = paths.parse_log_name(file.name) or paths.parse_base_name(file.name)
    active = {i.requested for i in mainstem.open_table(path).timeline()}
    return parsed is not None and parsed.instant not in active


def _files(path: Path) -> Iterator[Path]:
    for file in sorted(path.rglob("*")):
        if file.is_file() and not file.name.endswith(".crc") and file.stat().st_size:
            yield file


@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("name", TABLES)
def test_a_file_that_vanished_is_named_or_not_needed(name: str, what: str, tmp_path: Path) -> None:
    path = TABLES[name](tmp_path)
    right = _rows(path)
    named = 0
    for file in list(_files(path)):
        if _untold(path, file, what):
            continue
        data = file.read_bytes()
        alike = {file.parent.name, *(other.name for other in _files(path) if other.samefile(file))}
        DAMAGES[what](file)
        committed_files.forget()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # folders are listed where the metadata table is damaged
                found = _rows(path)
        except MainstemError as error:
            is_clear(str(error), ("",))
            assert any(name in str(error) for name in alike), f"{file}: {error}"
            named += 1
        else:
            assert found == right, f"{file.relative_to(path)} {what}: {found.total()} of {right.total()} rows"
        file.write_bytes(data)
    assert named >= 3
    assert _rows(path) == right


@pytest.mark.disk("a store has no folders: a timeline without files has no instants")
@pytest.mark.parametrize("name", ["ours", "ours, indexed"])
def test_a_timeline_that_vanished_is_named_by_readers_and_writers(name: str, tmp_path: Path) -> None:
    path = TABLES[name](tmp_path)
    right = _rows(path)
    table = mainstem.open_table(path)
    aside = tmp_path / "aside"
    (path / paths.TIMELINE).rename(aside)
    for work in (
        lambda: _rows(path),
        lambda: table.scan().count_rows(),
        lambda: table.changes().count_rows(),
        lambda: table.begin("upsert"),
    ):
        with pytest.raises(CorruptTable, match="timeline's folder is gone"):
            work()
    assert not (path / paths.TIMELINE).exists()
    aside.rename(path / paths.TIMELINE)
    assert _rows(path) == right


def test_a_table_without_commits_is_read_and_one_without_a_partitions_metafile_is_not(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    assert table.scan().count_rows() == 0
    table.upsert(rows(range(4), 1))
    metafile = Path(table.path, "a", ".hoodie_partition_metadata")
    metafile.unlink()
    with pytest.raises(CorruptTable, match=r"no metafile.*a/\.hoodie_partition_metadata"):
        table.scan().count_rows()


SERVICES: dict[str, Callable[[mainstem.Table], object]] = {
    "compact": lambda table: table.compact(),
    "log_compact": lambda table: table.log_compact(),
    "clean": lambda table: table.clean(),
    "archive": lambda table: table.archive(),
    "index": lambda table: table.create_index("files"),
    "record index": lambda table: table.create_index("record_index"),
    "savepoint": lambda table: table.savepoint(),
}


@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("service", SERVICES)
def test_no_service_works_on_what_is_left(service: str, what: str, tmp_path: Path) -> None:
    if (service, what) in {("clean", "empty"), ("archive", "empty")}:
        pytest.skip("what is there stays there")
    table = make(tmp_path / "t", **SMALL)
    for number in range(6):
        table.upsert(rows(range(8), number))
    right = content(table)
    log = min(Path(table.path, "a").glob(".*.log.*"), key=lambda file: file.name.split("_")[1])
    data = log.read_bytes()
    DAMAGES[what](log)
    with pytest.raises(CorruptTable) as caught:
        SERVICES[service](mainstem.open_table(table.path, {**QUICK, **SMALL}))
    is_clear(str(caught.value), (log.name.replace(".", r"\."),))
    log.write_bytes(data)
    again = mainstem.open_table(table.path, {**QUICK, **SMALL})
    assert content(again).equals(right)
    SERVICES[service](again)
    assert content(mainstem.open_table(table.path)).equals(right)


def test_the_past_and_changes_name_what_vanished(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    done = [table.upsert(rows(range(8), number)) for number in range(4)]
    log = min(Path(table.path, "b").glob(".*.log.*"), key=lambda file: file.name.split("_")[1])
    log.unlink()
    for ask in (
        lambda: table.scan(as_of_completion=done[1].completion_time).count_rows(),
        lambda: table.scan(as_of=done[2].instant).count_rows(),
        lambda: table.changes().count_rows(),
        lambda: table.changes(deletes=True).count_rows(),
        lambda: table.scan().to_dataset().count_rows(),
        lambda: table.scan().splits(),
    ):
        with pytest.raises(CorruptTable, match=log.name):
            ask()
    assert table.changes(after=done[1].completion_time).count_rows() == 8
    assert table.scan(mode="read_optimized").count_rows() == 0


@pytest.mark.disk("on a store nothing is written before the commit")
def test_a_log_file_cut_off_between_two_blocks_is_named(tmp_path: Path) -> None:
    """Every block that is left is whole; the commit alone tells that one is missing."""
    table = make(tmp_path / "t")
    with table.begin("upsert") as txn:
        txn.write(rows(range(4), 1))
        first = {file: file.stat().st_size for file in Path(table.path).rglob("*.log.*")}
        txn.write(rows(range(4, 8), 1))
        txn.commit()
    file = next(file for file, size in first.items() if file.stat().st_size > size > 0)
    with file.open("r+b") as log:
        log.truncate(first[file])
    with pytest.raises(CorruptTable, match=rf"its commit says.*{file.name}"):
        table.scan().count_rows()


def test_what_a_clean_removed_is_not_missed(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **{"hoodie.clean.commits.retained": "1"})
    for number in range(4):
        table.upsert(rows(range(8), number))
        table.compact()
    assert table.clean()
    assert mainstem.open_table(table.path).scan().count_rows() == 8
    shutil.rmtree(Path(table.path, "a"))
    with pytest.raises(CorruptTable, match="no clean removed it"):
        mainstem.open_table(table.path).scan().count_rows()
    skipping = mainstem.open_table(table.path, {"mainstem.read.damaged": "skip"})
    assert skipping.scan().count_rows() == 4
