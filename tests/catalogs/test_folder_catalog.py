"""Goal: in a folder as catalog tables are made, opened, listed and deleted by name; nothing else is one.

Method: catalogs on a disk and in memory; hostile names; folders of other formats; the command line.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.cli.main import main
from mainstem.errors import Invalid, TableExists, Unsupported

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])
QUIET = {"hoodie.mainstem.fsync": "false"}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "city": ["oslo" if i % 2 else "rome" for i in ids]}, schema=SCHEMA)


def made(catalog: mainstem.Catalog, name: str) -> mainstem.Table:
    return catalog.create_table(
        name, SCHEMA, record_key="id", partition_by="city", buckets=1, properties=QUIET
    )


@pytest.mark.supports("Engines", "Catalogs: a folder as catalog, `mode = dfs` of Hudi's Flink catalog")
@pytest.mark.parametrize("on", ["disk", "store"])
def test_a_table_is_made_opened_and_listed_by_its_name(on: str, tmp_path: Path) -> None:
    place = str(tmp_path / "lake") if on == "disk" else "memory://catalog-of-folders/lake"
    catalog = mainstem.open_catalog(place)
    assert catalog.databases() == ["default"]
    catalog.create_database("city")
    with pytest.raises(Invalid, match="already"):
        catalog.create_database("city")
    made(catalog, "city.trips").upsert(rows(1, 2))
    again = pickle.loads(pickle.dumps(catalog))
    assert (again.databases(), again.tables("city")) == (["city", "default"], ["trips"])
    assert mainstem.open_table("city.trips", catalog=place).scan(["id"]).to_arrow().num_rows == 2
    assert catalog.open_table("city.trips").path == f"{place}/city/trips"
    assert catalog.describe("city.trips").format == "hudi"
    assert catalog.register("city.trips", f"{place}/city/trips").names == ("city.trips",)
    with pytest.raises(TableExists, match="there already"):
        made(catalog, "city.trips")
    with pytest.raises(Invalid, match="not empty"):
        catalog.drop_database("city")


def test_a_name_never_leaves_the_folder(tmp_path: Path) -> None:
    catalog = mainstem.open_catalog(tmp_path / "lake")
    mainstem.create_table(tmp_path / "outside", SCHEMA, record_key="id", properties=QUIET)
    hostile = ("../outside", "a.b.c", "", "..", ".hoodie", "default/../../outside", "x\0", "é", str(tmp_path))
    for name in hostile:
        for do in (catalog.open_table, catalog.describe, catalog.drop_table):
            with pytest.raises(Invalid, match="is no name of a"):
                do(name)
    with pytest.raises(Unsupported, match="a table's place is its name"):
        catalog.register("outside", tmp_path / "outside")


def test_what_is_no_table_here_is_told_with_the_way_out(tmp_path: Path) -> None:
    catalog = mainstem.open_catalog(tmp_path)
    made(catalog, "trips")
    with pytest.raises(Invalid, match=r"no table default\.trip: did you mean default\.trips"):
        catalog.open_table("trip")
    with pytest.raises(Invalid, match="no database nowhere"):
        catalog.open_table("nowhere.trips")
    for inside, found in (("_delta_log", "delta"), ("metadata", "iceberg"), ("some", "folder")):
        (tmp_path / "default" / found / inside).mkdir(parents=True)
        with pytest.raises(Unsupported, match=f"a table of the format '{found}', no Hudi table"):
            catalog.open_table(found)
        with pytest.raises(Unsupported, match="no Hudi table"):
            catalog.drop_table(found, purge=True)
        assert (tmp_path / "default" / found / inside).exists()


def test_a_purge_deletes_the_table_and_nothing_else(tmp_path: Path) -> None:
    catalog = mainstem.open_catalog(tmp_path)
    table = made(catalog, "trips")
    table.upsert(rows(1, 2, 3))
    mine = tmp_path / "default/trips/city=oslo.txt"
    mine.write_text("mine")
    (tmp_path / "default/trips/oslo/notes.md").write_text("mine")
    with pytest.raises(Unsupported, match="purge=True"):
        catalog.drop_table("trips")
    assert table.scan(["id"]).to_arrow().num_rows == 3
    done = catalog.drop_table("trips", purge=True)
    assert done is not None and done.left == ("city=oslo.txt", "oslo/notes.md") and done.files == 2
    left = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert left == ["default/trips/city=oslo.txt", "default/trips/oslo/notes.md"]
    with pytest.raises(Invalid, match="no Hudi table"):
        table.upsert(rows(4))
    with pytest.raises(Unsupported, match="format 'folder'"):
        catalog.open_table("trips")


def test_a_purged_table_leaves_no_folder_and_may_be_made_again(tmp_path: Path) -> None:
    catalog = mainstem.open_catalog(tmp_path)
    made(catalog, "trips").upsert(rows(1, 2, 3))
    catalog.drop_table("trips", purge=True)
    assert not (tmp_path / "default" / "trips").exists() and catalog.tables() == []
    table = made(catalog, "trips")
    table.upsert(rows(7))
    assert table.scan(["id"]).to_arrow().column("id").to_pylist() == [7]


def test_the_command_line_has_it_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = str(tmp_path)

    def run(*arguments: str) -> str:
        code = main(list(arguments))
        told = capsys.readouterr()
        assert code == 0, told.err
        return told.out

    run("catalog", "create-database", lake, "city")
    made(mainstem.open_catalog(lake), "city.trips").upsert(rows(1, 2))
    assert json.loads(run("catalog", "tables", lake, "city", "--json"))["table"] == "trips"
    assert "format: hudi" in run("catalog", "show", lake, "city.trips")
    assert run("scan", "city.trips", "--catalog", lake, "--count").strip() == "2"
    assert main(["catalog", "drop", lake, "city.trips", "--purge"]) == 1  # nobody can be asked
    assert "give --yes" in capsys.readouterr().err
    assert "is deleted, 2 data files" in run("catalog", "drop", lake, "city.trips", "--purge", "--yes")
    run("catalog", "drop-database", lake, "city")
    assert json.loads(run("catalog", "databases", lake, "--json")) == {"database": "default"}
