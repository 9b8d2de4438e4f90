"""Goal: a publication of Iceberg's metadata is whole or not there, never names files that go, and refuses
what Iceberg would show otherwise than Hudi.

Method: tables of ours on every store, and Java's golden tables; publishers that meet; damaged and foreign
metadata; types and evolutions that Iceberg has not.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import clear_manifest_cache

import mainstem
from mainstem.cli.main import main
from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.iceberg.after_changes import IcebergWarning
from mainstem.storage import paths
from tests.golden_tables.tables import NAMES, unpack
from tests.iceberg.conftest import check_shows_base_files, iceberg_table

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
QUIET = {
    "hoodie.mainstem.services": "off", "hoodie.mainstem.fsync": "false", "hoodie.clean.commits.retained": "1",
}  # fmt: skip
ASKED = {**QUIET, "hoodie.mainstem.iceberg.enable": "true"}


def rows(*ids: int, n: int = 0) -> pa.Table:
    cities = ["oslo" if i % 2 else "rome" for i in ids]
    return pa.table({"id": list(map(str, ids)), "city": cities, "n": [n] * len(ids)}, schema=SCHEMA)


def made(
    path: Path, properties: dict[str, str] = QUIET, schema: pa.Schema = SCHEMA, **how: Any
) -> mainstem.Table:
    how = {"record_key": "id", "partition_by": ["city"], "buckets": 1, **how}
    return mainstem.create_table(path, schema, properties=properties, **how)


def compacted(table: mainstem.Table, *ids: int, n: int = 0) -> None:
    table.upsert(rows(*ids, n=n))
    table.services.compact()


# -- publishers -----------------------------------------------------------------------------------


def test_only_new_base_files_are_added_and_an_unchanged_table_is_left_alone(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    compacted(table, 1, 2)
    first = table.services.publish_iceberg()
    assert (first.version, first.files, first.rows, first.added, first.removed) == (1, 2, 2, 2, 0)
    table.upsert(rows(1, 3, n=1))
    assert not table.services.publish_iceberg().changed
    check_shows_base_files(table)
    table.services.compact()
    second = table.services.publish_iceberg()
    assert (second.version, second.files, second.rows, second.added, second.removed) == (2, 2, 3, 1, 1)
    check_shows_base_files(table)
    plan = iceberg_table(table).scan(row_filter="city = 'oslo'").plan_files()
    assert [task.file.partition[0] for task in plan] == ["oslo"]


class Meeting:
    """A table's storage in which something happens just before versions of Iceberg's metadata are listed for
    the first time (the table was looked at by then), or just before one appears."""

    def __init__(self, storage: Any, meanwhile: Callable[[], None], at: str) -> None:
        self._storage, self._meanwhile, self._at = storage, [meanwhile], at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def put_new(self, path: str, data: Any, *, durable: bool) -> None:
        if self._at == "put" and path.startswith(f"{paths.ICEBERG}/v") and self._meanwhile:
            self._meanwhile.pop()()
        self._storage.put_new(path, data, durable=durable)

    def names(self, folder: str, **how: str) -> list[str]:
        if self._at == "list" and folder == paths.ICEBERG and self._meanwhile:
            self._meanwhile.pop()()
        return self._storage.names(folder, **how)


@pytest.mark.parametrize("at", ["list", "put"])
def test_of_two_publishers_that_meet_the_later_view_stays(tmp_path: Path, at: str) -> None:
    table = made(tmp_path / "t")
    compacted(table, 1, 2)

    def meanwhile() -> None:
        compacted(table, 1, 2, 3, n=1)
        assert table.services.publish_iceberg().version == 1

    opened = table.opened
    met = replace(opened.seams, storage=Meeting(opened.seams.storage, meanwhile, at))
    late = mainstem.Table(met, opened.config, opened.given)
    found = late.services.publish_iceberg()
    assert (found.version, found.rows) == (1, 3)
    check_shows_base_files(table)
    shown = iceberg_table(table)
    named = {m.manifest_path for s in shown.snapshots() for m in s.manifests(shown.io)}
    there = [n for n in opened.seams.storage.names(paths.ICEBERG) if "-m" in n]
    assert sorted(n.rpartition("/")[2] for n in named) == sorted(there)  # the one that lost left nothing


@pytest.mark.disk("sets times of files")
def test_what_no_version_names_goes_after_an_hour(tmp_path: Path) -> None:
    table = made(tmp_path / "t", {**ASKED, "hoodie.mainstem.iceberg.snapshots": "2"})
    for n in range(12):
        compacted(table, 1, n=n)
    folder = tmp_path / "t" / paths.ICEBERG
    before = sorted(path.name for path in folder.iterdir())
    (folder / "notes.txt").write_text("mine")
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    compacted(table, 1, n=99)
    left = sorted(path.name for path in folder.iterdir())
    assert "v13.metadata.json" in left and "v4.metadata.json" in left and "v3.metadata.json" not in left
    assert "notes.txt" in left and len(left) < len(before)
    assert len(iceberg_table(table).snapshots()) == 2
    check_shows_base_files(table)


def test_every_process_follows_what_the_table_says(tmp_path: Path) -> None:
    made(tmp_path / "t", {**ASKED, "hoodie.mainstem.iceberg.snapshots": "1"})
    for n in range(3):
        compacted(mainstem.open_table(tmp_path / "t", QUIET), 1, n=n)
    table = mainstem.open_table(tmp_path / "t")
    assert [row["n"] for row in check_shows_base_files(table)] == [2]
    assert len(iceberg_table(table).snapshots()) == 1


# -- failures -------------------------------------------------------------------------------------


def test_a_commit_stands_where_iceberg_fails_and_a_clean_waits(tmp_path: Path) -> None:
    table = made(tmp_path / "t", ASKED)
    compacted(table, 1, 2)
    storage = table.opened.seams.storage
    storage.put(paths.iceberg_version(7), b"{", durable=False)
    with pytest.warns(IcebergWarning, match=r"does not parse.*remove the folder metadata"):
        compacted(table, 1, n=1)
    with pytest.warns(IcebergWarning):
        compacted(table, 1, n=2)
    before = sorted(storage.names("oslo"))
    with pytest.raises(CorruptTable, match="does not parse"):
        table.services.clean()
    assert sorted(storage.names("oslo")) == before
    storage.delete(paths.iceberg_version(7))
    lists = [name for name in storage.names(paths.ICEBERG) if name.startswith("snap-")]
    kept = storage.read(f"{paths.ICEBERG}/{lists[0]}", max_bytes=1 << 20)
    storage.put(f"{paths.ICEBERG}/{lists[0]}", b"Obj", durable=False)
    clear_manifest_cache()
    with pytest.raises(CorruptTable, match=r"cannot be read.*it holds no rows"):
        table.services.clean()
    storage.put(f"{paths.ICEBERG}/{lists[0]}", kept, durable=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", IcebergWarning)
        assert table.services.clean()[0].deleted
    check_shows_base_files(table)


def test_a_clean_brings_up_what_was_published_by_hand(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    compacted(table, 1, 2)
    table.services.publish_iceberg()
    for n in range(3):
        compacted(table, 1, 2, n=n)
    assert table.services.clean()[0].deleted
    check_shows_base_files(table)
    assert len(iceberg_table(table).snapshots()) == 1  # the older one names files that are gone


def test_iceberg_tables_of_others_and_moved_tables(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    compacted(table, 1, 2)
    table.services.publish_iceberg()
    storage = table.opened.seams.storage
    path = paths.iceberg_version(1)
    told = json.loads(storage.read(path, max_bytes=1 << 20))
    moved = {**told, "location": "file:///elsewhere"}
    storage.put(path, json.dumps(moved).encode(), durable=False)
    assert table.services.publish_iceberg().version == 2
    check_shows_base_files(table)
    del told["properties"]["mainstem-seen"]
    storage.put(paths.iceberg_version(3), json.dumps(told).encode(), durable=False)
    with pytest.raises(Invalid, match="an Iceberg table that mainstem did not publish"):
        table.services.publish_iceberg()


def test_the_command_line_publishes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = made(tmp_path / "t")
    compacted(table, 1, 2)
    assert main(["iceberg", table.path]) == 0
    assert "2 base files with 2 rows, 2 of them new" in capsys.readouterr().out
    assert main(["iceberg", table.path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] is False


# -- columns, partitions --------------------------------------------------------------------------


def test_a_type_that_iceberg_has_not_is_refused_by_its_name(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("s", pa.struct([("at", pa.time32("ms"))])))
    table = made(tmp_path / "t", schema=schema)
    with pytest.raises(Unsupported, match=r"the column s\.at is of the type time32"):
        table.services.publish_iceberg()


def test_files_that_iceberg_reads_otherwise_are_waited_for(tmp_path: Path) -> None:
    """Iceberg widens the float 0.1 to 0.10000000149011612, Hudi to 0.1."""
    narrow = pa.schema([("id", pa.string()), ("city", pa.string()), ("x", pa.float32())])
    table = made(tmp_path / "t", schema=narrow)
    table.bulk_insert({"id": ["a", "b"], "city": ["oslo", "rome"], "x": pa.array([0.1, 0.2], pa.float32())})
    table.services.publish_iceberg()
    table.evolve(narrow.set(2, pa.field("x", pa.float64())))
    with pytest.raises(Unsupported, match=r"parquet holds the column x as float, not double.*compaction"):
        table.services.publish_iceberg()
    table.upsert({"id": ["a"], "city": ["oslo"], "x": [0.3]})
    table.services.compact()
    with pytest.raises(Unsupported, match=r"rome/.*column x"):
        table.services.publish_iceberg()
    table.services.cluster("x")
    table.services.publish_iceberg()
    assert {row["x"] for row in check_shows_base_files(table)} == {0.3, 0.2}


def test_where_a_file_shows_no_single_value_iceberg_has_no_partitions(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    compacted(table, 1, 2)
    table.services.publish_iceberg()
    assert iceberg_table(table).spec().fields
    table.upsert({"id": ["x"], "city": pa.array([None], pa.string()), "n": [1]})
    table.services.compact()
    table.services.publish_iceberg()
    check_shows_base_files(table)
    table.upsert({"id": ["y"], "city": [""], "n": [2]})
    table.services.compact()
    with pytest.raises(Unsupported, match=r"column city of the base file .* is None by the partition's path"):
        table.services.publish_iceberg()
    long = "x" * 5000  # statistics of long texts are left out
    other = made(tmp_path / "u", partition_by=["id"], record_key="n")
    other.bulk_insert({"id": ["a"], "city": [long], "n": [1]})
    other.services.publish_iceberg()
    assert iceberg_table(other).spec().fields
    check_shows_base_files(other)


def test_a_partition_where_the_metadata_goes_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.bulk_insert({"id": ["a"], "city": ["metadata"], "n": [1]})
    with pytest.raises(Unsupported, match="'metadata' lies where Iceberg's metadata goes"):
        table.services.publish_iceberg()
    check = made(tmp_path / "u", {**QUIET, "hoodie.datasource.write.hive_style_partitioning": "true"})
    check.bulk_insert({"id": ["a"], "city": ["metadata"], "n": [1]})
    check.services.publish_iceberg()
    check_shows_base_files(check)


# -- Java's tables --------------------------------------------------------------------------------

#: pyiceberg 0.12 shows a null list, or map, of structs as an empty one; DuckDB and Spark do not
BY_PYICEBERG = {"all_types": ("ast", "ms")}
#: shown as stored, not as text, as Hudi shows it
AS_STORED = {"keys_timestamp": ("m",)}
REFUSED = {
    "all_types_cow_v8": r"holds \w+\.array.*write-old-list-structure",
    "keys_slash_date": "by the partition's path",
    "schema_evolution": "column w as float", "schema_on_read": "ids of their own", "vectors": "the column f",
}  # fmt: skip
SHOWN = [n for n in NAMES if n.startswith("keys_")] + [
    "all_types", "basic_mor", "bucket_hash_date", "bucket_hash_decimal", "bucket_hash_timestamp", "clean_mor",
    "v10_basic_mdt", "v10_lsm_tree_event",
]  # fmt: skip


@pytest.mark.disk("Java's tables are files")
@pytest.mark.supports("Engines", "Iceberg: metadata beside Java's tables")
@pytest.mark.parametrize("name", sorted({*SHOWN, *REFUSED}))
def test_javas_tables_show_their_base_files(name: str, tmp_path: Path) -> None:
    place = unpack(name, tmp_path)
    table = mainstem.open_table(place)
    if name in REFUSED:
        with pytest.raises(Unsupported, match=REFUSED[name]):
            table.services.publish_iceberg()
        assert not (place / paths.ICEBERG / "version-hint.text").exists()
        return
    table.services.publish_iceberg()
    check_shows_base_files(table, (*BY_PYICEBERG.get(name, ()), *AS_STORED.get(name, ())))
    shutil.rmtree(place)
