"""Goal: a commit does not list the folders of the indexes again and again, and never goes by file groups that
an index has no more.

Method: what commits list is counted; an index is made anew with other file groups, by us and as Java does it,
at each moment of a commit, and the groups that are known are compared with those in the folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.formats.log_file import empty_group_block
from mainstem.metadata.commits.delta_commit import MetadataCommit
from mainstem.metadata.commits.known_groups import KnownGroups
from mainstem.options import GLOBAL_GROUPS, STATS_GROUPS
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from tests.services.city_table import QUICK, make, rows
from tests.storage.steps import storage_at, store_kind

pytestmark = pytest.mark.supports("Indexes", "builds: listed, built, rebuilt and dropped while writers run")

FOLDER = ".hoodie/metadata/column_stats"


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    table = make(tmp_path / "t")
    table.upsert(rows(range(10), 1))
    table.create_index("column_stats", columns=["ts"])
    return table


def opened(table: mainstem.Table) -> mainstem.Table:
    return mainstem.open_table(table.path, {**QUICK, "hoodie.table.services.enabled": "false"})


def made_anew(table: mainstem.Table, groups: int = 7) -> None:
    opened(table).drop_index("column_stats")
    opened(table).create_index("column_stats", columns=["ts"], options={STATS_GROUPS: str(groups)})


def check(table: mainstem.Table) -> None:
    report = opened(table).validate_metadata()
    assert report.ok, report.differences


def listings(monkeypatch) -> list[str]:
    kind = store_kind()
    real, seen = kind.names, []

    def names(self, folder: str, **which: str) -> list[str]:
        seen.append(folder)
        return real(self, folder, **which)

    monkeypatch.setattr(kind, "names", names)
    return seen


def test_commits_behind_the_first_do_not_list_the_folder_of_an_index(table, monkeypatch) -> None:
    writer = opened(table)
    writer.upsert(rows(range(5), 2))
    writer.upsert(rows(range(5), 3))
    seen = listings(monkeypatch)
    writer.upsert(rows(range(5), 4))
    assert FOLDER not in seen and paths.TIMELINE in seen
    check(table)


def test_an_index_that_was_made_anew_with_other_file_groups_is_listed_again(table, monkeypatch) -> None:
    writer = opened(table)
    for time in (2, 3):
        writer.upsert(rows(range(5), time))
    made_anew(table)
    seen = listings(monkeypatch)
    writer.upsert(rows(range(5), 4))
    assert FOLDER in seen
    check(table)


@pytest.mark.parametrize("groups", [1, 7])
def test_file_groups_that_become_others_while_a_commit_is_prepared_are_not_written_to(
    table, monkeypatch, groups
) -> None:
    writer = opened(table)
    for time in (2, 3):
        writer.upsert(rows(range(5), time))
    real, made = MetadataCommit.prepare.__func__, []

    def prepare(cls, *given) -> MetadataCommit:
        made.append(real(cls, *given))
        if len(made) == 1:
            with monkeypatch.context() as plain:
                plain.setattr(MetadataCommit, "prepare", classmethod(real))
                made_anew(table, groups)
        return made[-1]

    monkeypatch.setattr(MetadataCommit, "prepare", classmethod(prepare))
    writer.upsert(rows(range(5), 4))
    assert len(made) == 2
    check(table)


def test_an_index_whose_files_a_compaction_and_a_clean_replaced_is_listed_again(table) -> None:
    writer = opened(table)
    for time in range(2, 30):
        writer.upsert(rows(range(5), time))
        mainstem.open_table(table.path, QUICK).run_services("metadata")
    check(table)


@pytest.mark.parametrize("completed", [True, False], ids=["of a commit", "of a builder that was ended"])
def test_files_that_a_process_makes_of_an_index_that_is_no_more_are_not_file_groups(table, completed) -> None:
    """It stood still while the index was dropped and made anew of fewer file groups."""
    name, least, most = "secondary_index_value", GLOBAL_GROUPS[0][0], GLOBAL_GROUPS[1][0]
    table.create_index("record_index")
    for count in (7, 2):
        if count == 2:
            commit = opened(table).upsert(rows(range(20), 2)).instant
            opened(table).drop_index(name)
        options = {least: str(count), most: str(count)}
        opened(table).create_index("secondary_index", columns=["value"], options=options)
    late = commit if completed else str(int(commit) + 1)
    for group in range(2, 7):
        file = paths.log_name(f"secondary-index-value-{group:04d}-0", late, 1, "0-0-0")
        content = b"".join(empty_group_block(late))
        storage_at(table.path).put_new(f".hoodie/metadata/{name}/{file}", content, durable=False)
    opened(table).upsert(rows(range(15, 30), 3))
    for key in range(30):
        scan = opened(table).scan(filter=pc.field("value") == f"v{key}")
        assert scan.explain().cuts[0].index == "secondary index" and scan.to_arrow().num_rows == 1, key
    check(table)


def log(group: int, instant: str) -> str:
    return f"{FOLDER}/{paths.log_name(f'col-stats-{group:04d}-0', instant, 1, '0-0-0')}"


def put(storage: Storage, group: int, instant: str, content: bytes = b"") -> None:
    storage.put_new(log(group, instant), content or b"".join(empty_group_block(instant)), durable=False)


def known(storage: Storage, groups: KnownGroups, *, locked: bool = False) -> int:
    return len(groups.ids(storage, "column_stats", locked=locked))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    storage = storage_at(tmp_path)
    storage.put_new(f"{FOLDER}/{paths.PARTITION_METAFILE}", b"commitTime=1\n", durable=False)
    for group in range(2):
        put(storage, group, "00000000000000001")
        put(storage, group, "20261122083732823", b"rows")
    return storage


def test_only_what_was_listed_under_the_lock_is_known(storage) -> None:
    groups = KnownGroups()
    assert known(storage, groups) == 2
    put(storage, 2, "00000000000000001")
    assert known(storage, groups) == known(storage, groups, locked=True) == 3


def test_an_index_that_java_made_anew_at_an_instant_of_ours_is_another_one(storage) -> None:
    """It may begin one at the latest completed instant: a marker then has the name of an earlier log file."""
    groups = KnownGroups()
    assert known(storage, groups, locked=True) == 2
    for name in storage.names(FOLDER):
        storage.delete(f"{FOLDER}/{name}")
    for group in range(3):
        put(storage, group, "20261122083732823")
    assert known(storage, groups) == 3


def test_files_of_instants_that_come_again_with_a_new_metadata_table_prove_nothing(storage) -> None:
    for group in range(2):
        storage.delete(log(group, "20261122083732823"))
    groups = KnownGroups()
    assert known(storage, groups, locked=True) == 2
    put(storage, 2, "00000000000000001")
    assert known(storage, groups, locked=True) == 3


def test_an_index_that_java_has_only_begun_is_listed_each_time(storage) -> None:
    """Java lists it first and writes the partition metafile behind the file groups."""
    os.remove(Path(storage.base) / FOLDER / paths.PARTITION_METAFILE)
    groups = KnownGroups()
    assert known(storage, groups, locked=True) == 2
    put(storage, 2, "20261122083732823")
    assert known(storage, groups, locked=True) == 3
