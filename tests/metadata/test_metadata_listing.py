"""Goal: a query shows the same with the metadata table and without it, whatever state the metadata is in.

Method: every one of Java's tables with metadata is planned both ways, at every query's time; metadata that is
gone, damaged or behind the timeline; writers that are pending and instants that are being taken back.
"""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.metadata.commits import partition_rows
from mainstem.readers.planning.file_listing import query_listing
from mainstem.storage import paths
from tests.golden_tables.tables import encoded, expectations, unpack
from tests.metadata.metadata_tables import WITH_METADATA, state_of
from tests.services.city_table import make, rows
from tests.storage.steps import Proxy, storage_at

FALLBACK = "folders are listed instead"


def table(path: Path, *, metadata: bool) -> mainstem.Table:
    return mainstem.open_table(path, properties={"hoodie.metadata.enable": str(metadata).lower()})


@pytest.mark.supports("Indexes", "files: listed through the metadata table, or from folders")
@pytest.mark.parametrize("name", WITH_METADATA)
def test_queries_read_the_same_files_with_metadata_and_without(name: str, unpacked: Path) -> None:
    path = unpack(name, unpacked)
    times = [
        q["options"]["as.of.instant"]
        for q in expectations(name)["queries"]
        if q["kind"] == "time_travel" and "rowset" in q
    ]
    with_it, without = table(path, metadata=True), table(path, metadata=False)
    for query in ({}, {"mode": "read_optimized"}, *({"as_of": time} for time in times)):
        assert with_it.scan(**query).splits() == without.scan(**query).splits()


class NoFolders(Proxy):
    """Refuses to list the data's folders."""

    def entries(self, folder: str, **which: str) -> list:
        assert folder.startswith(paths.HOODIE), f"folder {folder!r} was listed"
        return self.inner.entries(folder, **which)


@pytest.mark.parametrize("name", WITH_METADATA)
def test_no_folder_of_the_data_is_listed_and_no_file_of_a_pending_instant_shown(name, unpacked: Path) -> None:
    path = unpack(name, unpacked)
    state = state_of(path, NoFolders(storage_at(path)))
    listed = {p.partition: p.names for p in query_listing(state, metadata=True)}
    pending = {i.requested for i in state.timeline.pending}
    for partition, names in listed.items():
        for name_ in names:
            parsed = paths.parse_log_name(name_) or paths.parse_base_name(name_)
            assert parsed is not None
            assert parsed.instant not in pending
            assert (path / partition / name_).exists()


def damage_gone(path: Path) -> None:
    shutil.rmtree(path / ".hoodie/metadata")


def damage_no_properties(path: Path) -> None:
    (path / ".hoodie/metadata/.hoodie/hoodie.properties").write_text("")


def damage_files(path: Path) -> None:
    for file in (path / ".hoodie/metadata/files").glob("*files-0000-0*"):
        file.write_bytes(file.read_bytes()[:-20])


def damage_definitions(path: Path) -> None:
    (path / ".hoodie/.index_defs/index.json").write_text("{")


def damage_no_file_groups(path: Path) -> None:
    for file in (path / ".hoodie/metadata/files").glob("*files-0000-0*"):
        file.unlink()


def damage_behind(path: Path) -> None:
    """The newest commit was made by a writer that does not know the metadata table."""
    newest = max(state_of(path).timeline.completed, key=lambda i: i.completion).requested
    for file in [*(path / ".hoodie/metadata").rglob(f"*{newest}*")]:
        file.unlink()


@pytest.mark.parametrize(
    "damage",
    [
        damage_gone,
        damage_no_properties,
        damage_files,
        damage_definitions,
        damage_no_file_groups,
        damage_behind,
    ],
    ids=lambda f: f.__name__.removeprefix("damage_"),
)
def test_metadata_that_is_damaged_or_behind_is_not_used(damage, tmp_path: Path) -> None:
    path = unpack("clean_mor_mdt", tmp_path)
    expected = encoded(table(path, metadata=False).scan().to_arrow())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert encoded(table(path, metadata=True).scan().to_arrow()) == expected
    damage(path)
    with pytest.warns(UserWarning, match=FALLBACK):
        found = table(path, metadata=True).scan().to_arrow()
    assert encoded(found) == expected
    assert encoded(table(path, metadata=False).scan().to_arrow()) == expected


def test_files_of_a_partition_that_java_let_be_called_like_all_are_found(monkeypatch, tmp_path) -> None:
    made = make(tmp_path / "t", hoodie__metadata__enable="true")
    real = partition_rows.files_rows

    def as_java(files, deleted):
        found = real({"a": files["__all_partitions__"]}, deleted)
        for at in (0, 1):
            name = pc.replace_substring_regex(found.column(at), "^a$", "__all_partitions__")
            found = found.set_column(at, found.schema.field(at), name)
        return found

    monkeypatch.setattr(partition_rows, "files_rows", as_java)
    made.upsert(rows([1], 1).set_column(1, "city", pa.array(["__all_partitions__"])))
    with pytest.warns(UserWarning, match="is called '__all_partitions__'"):
        assert mainstem.open_table(made.path).scan().to_arrow().num_rows == 1


def test_while_a_clean_is_under_way_folders_are_listed(tmp_path: Path) -> None:
    path = unpack("clean_mor_mdt", tmp_path)
    clean = max((path / ".hoodie/timeline").glob("*_*.clean"))
    clean.unlink()
    removed = next(p for p in path.rglob("*.parquet") if p.name[0] != ".")
    removed.unlink()
    state = state_of(path)
    assert {p.partition: p.names for p in query_listing(state, metadata=True)} == {
        p.partition: p.names for p in state.partitions()
    }


def test_metadata_that_was_switched_off_meanwhile_is_no_reason_to_warn(tmp_path: Path) -> None:
    path = unpack("clean_mor_mdt", tmp_path)
    state = state_of(path)
    damage_gone(path)
    file = path / ".hoodie/hoodie.properties"
    lines = [
        line for line in file.read_text().splitlines() if not line.startswith("hoodie.table.metadata.part")
    ]
    file.write_text("\n".join(lines))
    listed = {p.partition: p.names for p in query_listing(state, metadata=True)}
    assert listed == {p.partition: p.names for p in state.partitions()}
