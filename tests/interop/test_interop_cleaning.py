"""Goal: Java reads what we cleaned, executes what we planned, cleans on after us, and the other way round.

Method: one small table with a compaction after every second commit; after each clean, whoever planned and
executed it, Java and mainstem give the same snapshot, time travel and changes, and Java's procedures show
the cleans. What each of the two would remove is compared by planning the same copy with both.
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same
from java_hudi import (
    READ_OPTIMIZED,
    JavaFailed,
    JavaHudi,
    as_of_options,
    changes_options,
    nbcc_options,
)
from test_interop_services import SCHEMA, rows_of

import mainstem
from mainstem.errors import Invalid
from mainstem.storage.local import LocalStorage
from mainstem.timeline.clean_records import load_clean_plan
from mainstem.truetime.instant_times import instant_text, parse_wall

pytestmark = pytest.mark.supports(
    "Engines", "Java Hudi 1.2.0 reads what mainstem cleaned and executes its plans"
)
RETAINED = {"hoodie.clean.commits.retained": "2"}
OPTIONS = nbcc_options(
    "cleaned", record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=2, extra=RETAINED
)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two commits are retained; four slices of each file group are there."""
    path = tmp_path_factory.mktemp("cleaning") / "table"
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, name="cleaned",
        properties=RETAINED,
    )  # fmt: skip
    grow(table, 3)
    return path


@pytest.fixture
def table(grown: Path, path: str) -> mainstem.Table:
    """A copy of the grown table."""
    return mainstem.open_table(shutil.copytree(grown, path), RETAINED)


def grow(table: mainstem.Table, slices: int) -> None:
    for _ in range(slices):
        ts = 100 * len(table.timeline())
        table.upsert(rows_of(range(20), ts))
        table.upsert(rows_of(range(5, 25), ts + 1))
        table.compact()
    table.upsert(rows_of(range(3), 100 * len(table.timeline())))


def check_same(java: JavaHudi, table: mainstem.Table) -> None:
    """Snapshot, read optimized, time travel to every retained commit, the changes since it."""
    queries: list[dict[str, str]] = [{}, READ_OPTIMIZED]
    ours = [table.scan().to_arrow(), table.scan(mode="read_optimized").to_arrow()]
    for instant in [i for i in table.timeline() if i.completion and i.action in ("commit", "deltacommit")]:
        try:
            ours.append(table.scan(as_of=instant.requested).to_arrow())
        except Invalid:
            continue
        after = instant_text(parse_wall(instant.completion) - timedelta(milliseconds=1))
        ours.append(table.changes(after=after).to_arrow())
        queries += [as_of_options(instant.requested), changes_options(after)]
    assert len(queries) >= 6
    for expected, found in zip(java.read_many(table.path, queries), ours, strict=True):
        assert isinstance(expected, pa.Table), expected
        assert_same(expected, found, ["id", "_hoodie_commit_time"])


def files(table: mainstem.Table) -> set[str]:
    return {str(p.relative_to(table.path)) for p in Path(table.path).rglob("*")
            if ".hoodie" not in str(p) and p.is_file() and not p.name.endswith(".crc")}  # fmt: skip


def cleans(table: mainstem.Table) -> list[tuple[str, bool]]:
    return [(i.requested, i.completion is not None) for i in table.timeline() if i.action == "clean"]


def planned_files(table: mainstem.Table, time: str) -> set[str]:
    return set(load_clean_plan(LocalStorage(table.path), time).paths())


def test_java_reads_what_we_cleaned_shows_our_cleans_and_cleans_on(
    java: JavaHudi, table: mainstem.Table
) -> None:
    oldest = table.timeline()[0].requested
    (done,) = table.clean()
    assert done.deleted == done.files == 20
    check_same(java, table)
    with pytest.raises(Invalid, match="cleaner kept"):
        table.scan(as_of=oldest).to_arrow()
    with pytest.raises(JavaFailed, match=r"(?i)clean"):
        java.read_as_of(table.path, oldest)
    java.call("sql", text=f"create table cleaned using hudi location '{table.path}'")
    shown = java.call("sql", text="call show_cleans(table => 'cleaned')")["rows"]
    assert shown[0][0] == done.requested and str(done.files) in shown[0]
    before = files(table)
    java.clean(table.path, OPTIONS)
    assert files(table) == before, "Java finds nothing left"
    grow(table, 2)
    java.clean(table.path, OPTIONS)
    assert len(files(table)) < len(before) + 32 and len(cleans(table)) == 2
    check_same(java, table)
    java.write(table.path, rows_of(range(30, 40), 10**6), OPTIONS)
    grow(table, 2)
    assert len(table.clean()) == 1
    check_same(java, table)


def test_java_executes_a_clean_that_we_planned(java: JavaHudi, table: mainstem.Table) -> None:
    planned = table.schedule_clean()
    named = planned_files(table, planned)
    before = files(table)
    java.clean(table.path, OPTIONS)
    assert cleans(table) == [(planned, True)]
    assert before - files(table) == named
    check_same(java, table)
    assert table.clean() == []


def test_we_execute_a_clean_that_java_planned_and_both_plan_the_same(
    java: JavaHudi, table: mainstem.Table
) -> None:
    copy = mainstem.open_table(shutil.copytree(table.path, table.path + ".copy"), RETAINED)
    ours = planned_files(copy, copy.schedule_clean())
    planned = java.schedule_clean(table.path, OPTIONS)
    assert planned is not None and planned_files(table, planned) == ours
    table.upsert(rows_of(range(4), 10**6))
    before = files(table)
    done, own = table.clean()
    assert done.requested == planned and done.deleted == len(ours)
    assert (before - files(table)) == ours | planned_files(table, own.requested)
    check_same(java, table)


def test_a_clean_that_died_halfway_is_finished_by_the_other_side(
    java: JavaHudi, table: mainstem.Table
) -> None:
    for finish in (lambda: java.clean(table.path, OPTIONS), table.clean):
        planned = table.schedule_clean()
        named = sorted(planned_files(table, planned))
        for name in named[::2]:
            (Path(table.path) / name).unlink()
        (Path(table.path) / f".hoodie/timeline/{planned}.clean.inflight").touch()
        finish()
        assert cleans(table)[-1] == (planned, True) and not files(table) & set(named)
        check_same(java, table)
        grow(table, 2)


@pytest.mark.parametrize(
    "policy",
    [
        {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "2"},
        {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "1"},
    ],
    ids=["two versions", "one version"],
)
def test_by_versions_both_plan_the_same_and_java_reads_on(
    java: JavaHudi, table: mainstem.Table, policy: dict[str, str]
) -> None:
    copy = mainstem.open_table(shutil.copytree(table.path, table.path + ".copy"), policy)
    java.clean(table.path, {**OPTIONS, **policy})
    (done,) = copy.clean()
    assert files(copy) == files(table) and done.files > 0
    for cleaned in (copy, table):
        assert_same(java.read(cleaned.path), cleaned.scan().to_arrow(), ["id"])
        newest = max(i.requested for i in cleaned.timeline() if i.action == "deltacommit")
        travelled = cleaned.scan(as_of=newest).to_arrow()
        assert_same(java.read_as_of(cleaned.path, newest), travelled, ["id"])


def test_a_savepoint_of_java_is_kept_by_us_and_one_of_ours_by_java(
    java: JavaHudi, table: mainstem.Table
) -> None:
    commits = [i for i in table.timeline() if i.action == "deltacommit"]
    saved, other = commits[1], commits[3]
    at = f"path => '{table.path}', commit_time => '{saved.requested}'"
    java.call("sql", text=f"call create_savepoint({at})", conf=OPTIONS)
    table.savepoint(other.requested)
    views = [table.scan(as_of_completion=i.completion).to_arrow() for i in (saved, other)]
    assert table.clean() == [], "the slices of both are older than the boundary, and stay"
    grow(table, 1)
    assert len(table.clean()) == 1
    grow(table, 1)
    java.clean(table.path, OPTIONS)
    for instant, view in zip((saved, other), views, strict=True):
        assert_same(view, table.scan(as_of_completion=instant.completion).to_arrow(), ["id"])
    assert len(cleans(table)) == 2
    check_same(java, table)
