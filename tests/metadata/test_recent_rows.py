"""Goal: a writer's compactions of the metadata table use what it wrote itself, and are right beside others.

Method: two processes' worth of handles write one table with indexes of keys; one of them compacts. The files
that it opens are counted, and every index is compared with the data.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.metadata import metadata_table
from mainstem.metadata.commits import delta_commit
from mainstem.metadata.records import recent_rows
from mainstem.metadata.records.recent_rows import FileRows, RecentRows
from mainstem.services.metadata import metadata_compaction
from mainstem.storage import paths
from mainstem.timeline.commit_metadata import decode_commit

QUIET = {"hoodie.mainstem.fsync": False, "hoodie.table.services.enabled": False}
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("city", pa.string())])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={"hoodie.metadata.enable": True},
    )  # fmt: skip
    for index in (["column_stats"], ["record_index"], ["secondary_index", ["city"]]):
        made.create_index(*index)
    return tmp_path / "t"


def opened(path: Path) -> mainstem.Table:
    return mainstem.open_table(path, QUIET)


def upsert(table: mainstem.Table, name: str) -> str:
    """Write thirty rows; returns the instant."""
    ids = [f"{name}-{i}" for i in range(30)]
    rows = pa.table({"id": ids, "ts": [1] * 30, "city": [f"city {i % 7}" for i in range(30)]}, SCHEMA)
    instant = table.upsert(rows).instant
    assert instant is not None
    return instant


def compacted(table: mainstem.Table, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Compact with this table's handle; returns the instants of the log files that were opened for it."""
    found, real = set(), metadata_table.read_blocks

    def read(view: memoryview, *, path: str) -> list:
        log = paths.parse_log_name(path.rpartition("/")[2])
        assert log is not None
        found.add(log.instant)
        return real(view, path=path)

    with monkeypatch.context() as counting:
        counting.setattr(metadata_table, "read_blocks", read)
        assert metadata_compaction.run(table.writer_context(), if_due=False)
    return found


@pytest.mark.disk("the log file's size is looked at")
def test_rows_of_many_files_in_one_value_count_as_what_they_take(tmp_path: Path) -> None:
    """The row of a partition in ``files`` names all files of a commit: it is one row, however many."""
    mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=64,
        properties={"hoodie.metadata.enable": True},
    )  # fmt: skip
    table = opened(tmp_path / "t")
    for name in "abcd":
        instant = upsert(table, name)
    (log,) = (tmp_path / "t/.hoodie/metadata/files").glob(f"*_{instant}.log.*")
    kept = table.writer_context().recent_rows.get(f"files/{log.name}", log.stat().st_size)
    assert kept is not None and kept.held <= kept.size
    (done,) = (tmp_path / "t/.hoodie/metadata/.hoodie/timeline").glob(f"{instant}_*.deltacommit")
    (stat,) = decode_commit(done.read_bytes(), path=done.name).stats["files"]
    assert stat["numWrites"] == len(kept.keys) == 2


def test_a_compaction_opens_the_log_files_of_others_alone(path: Path, monkeypatch) -> None:
    mine, other = opened(path), opened(path)
    ours, theirs = set(), set()
    for number in range(3):
        ours.add(upsert(mine, f"mine {number}"))
        theirs.add(upsert(other, f"other {number}"))
    read = compacted(mine, monkeypatch)
    assert theirs <= read and not ours & read
    report = opened(path).validate_metadata()
    assert report is not None and report.ok, report
    again = upsert(mine, "mine again")
    assert again not in compacted(mine, monkeypatch)
    report = opened(path).validate_metadata()
    assert report is not None and report.ok, report
    assert opened(path).scan(filter=pa.compute.field("city") == "city 3").to_arrow().num_rows == 28


def test_an_index_made_anew_is_compacted_from_its_own_files(path: Path, monkeypatch) -> None:
    table = opened(path)
    for number in range(2):
        upsert(table, f"before {number}")
    opened(path).reindex("column_stats")
    upsert(table, "after")
    compacted(table, monkeypatch)
    report = opened(path).validate_metadata()
    assert report is not None and report.ok, report


def test_what_is_kept_is_bounded_and_belongs_to_a_file_of_its_size(monkeypatch) -> None:
    kept, some = RecentRows(), pa.array([b"a"], pa.binary())
    rows = FileRows(some, some, "{}", 100, 1_000)
    monkeypatch.setattr(recent_rows, "BYTES_MAX", 10 * rows.cost)
    for number in range(30):
        kept.keep(f"files/{number}", rows)
    assert [n for n in range(30) if kept.get(f"files/{n}", 100) is not None] == list(range(20, 30))
    assert kept.get("files/29", 101) is None


def test_rows_of_large_commits_are_read(path: Path, monkeypatch) -> None:
    table = opened(path)
    monkeypatch.setattr(delta_commit, "SMALL_BYTES", 0)
    large = upsert(table, "large")
    assert large in compacted(table, monkeypatch)
