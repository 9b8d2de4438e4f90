"""Goal: in an Iceberg REST catalog tables are registered, opened, listed, refreshed and dropped by name, and
every engine that asks the catalog reads them.

Method: Iceberg's own server; what it says is read by pyiceberg alone; the command line; hostile places.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import mainstem
from mainstem.cli.main import main
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.iceberg.after_changes import IcebergWarning
from tests.servers import iceberg_rest

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])
QUIET = {"hoodie.mainstem.fsync": "false", "hoodie.mainstem.services": "off"}

pytestmark = pytest.mark.skipif(iceberg_rest.missing() is not None, reason=str(iceberg_rest.missing()))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with iceberg_rest.running(tmp_path_factory.mktemp("rest")) as found:
        yield found


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "city": ["oslo" if i % 2 else "rome" for i in ids]}, schema=SCHEMA)


def read_by_name(url: str, name: str, **how: str) -> list[int]:
    """What any client of the catalog reads."""
    client = load_catalog("other", type="rest", uri=url)
    return sorted(client.load_table(name).scan(**how).to_arrow()["id"].to_pylist())


@pytest.mark.supports("Engines", "Catalogs: Iceberg REST: register, open by name, list, refresh, drop")
def test_a_table_is_registered_read_refreshed_and_dropped(url: str, tmp_path: Path) -> None:
    catalog = pickle.loads(pickle.dumps(mainstem.open_catalog(f"rest:{url}")))
    catalog.create_database("city")
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", partition_by="city", properties=QUIET
    )
    table.upsert(rows(1, 2))
    table.services.compact()
    assert catalog.register("city.trips", table.path).created == ("city.trips",)
    assert (catalog.databases(), catalog.tables("city")) == (["city"], ["trips"])
    assert read_by_name(url, "city.trips") == [1, 2]
    assert read_by_name(url, "city.trips", row_filter="city = 'oslo'") == [1]
    found = catalog.describe("city.trips")
    assert (found.format, found.columns, found.partition_columns) == (
        "hudi", (("id", "long"),), (("city", "string"),),
    )  # fmt: skip
    again = catalog.open_table("city.trips", QUIET)
    assert again.scan(["id"]).to_arrow().num_rows == 2
    again.upsert(rows(3))
    again.services.compact()
    assert read_by_name(url, "city.trips") == [1, 2]
    assert catalog.refresh("city.trips").created == ()
    assert read_by_name(url, "city.trips") == [1, 2, 3]
    with pytest.raises(Invalid, match="not empty"):
        catalog.drop_database("city")
    catalog.drop_table("city.trips")
    assert catalog.tables("city") == []
    catalog.drop_database("city")
    assert mainstem.open_table(table.path).scan(["id"]).to_arrow().num_rows == 3


def test_a_name_follows_each_compaction(url: str, tmp_path: Path) -> None:
    options = {
        **QUIET, "hoodie.mainstem.iceberg.enable": "true", "hoodie.mainstem.iceberg.catalog": f"rest:{url}",
        "hoodie.mainstem.iceberg.catalog.table": "follows.trips",
    }  # fmt: skip
    table = mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", buckets=1, properties=options)
    for last in (1, 2, 3):
        table.upsert(rows(last))
        table.services.compact()
        assert read_by_name(url, "follows.trips") == list(range(1, last + 1))
    other = {**options, "hoodie.mainstem.iceberg.catalog": "rest:http://127.0.0.1:9"}
    away = mainstem.create_table(tmp_path / "u", SCHEMA, record_key="id", buckets=1, properties=other)
    with pytest.warns(IcebergWarning, match="look at the address"):
        away.bulk_insert(rows(1))
    assert away.scan().to_arrow().num_rows == 1
    wrong = {**options, "hoodie.mainstem.iceberg.catalog": str(tmp_path)}
    with pytest.raises(Unsupported, match="holds no Iceberg tables"):
        mainstem.create_table(tmp_path / "v", SCHEMA, record_key="id", properties=wrong).bulk_insert(rows(1))


def test_names_of_others_are_left_alone(url: str, tmp_path: Path) -> None:
    catalog = mainstem.open_catalog(f"rest:{url}")
    catalog.create_database("others")
    client = load_catalog("other", type="rest", uri=url)
    client.create_table("others.ice", schema=SCHEMA)
    assert catalog.describe("others.ice").format == "iceberg"
    with pytest.raises(Unsupported, match="read it with Iceberg"):
        catalog.open_table("others.ice")
    with pytest.raises(Unsupported, match="no Hudi table"):
        catalog.drop_table("others.ice")
    for name in ("one", "two"):
        mainstem.create_table(tmp_path / name, SCHEMA, record_key="id", properties=QUIET).upsert(rows(1))
    with pytest.raises(Invalid, match="taken by the table at another place"):
        catalog.register("others.ice", tmp_path / "one")
    catalog.register("others.one", tmp_path / "one")
    with pytest.raises(Invalid, match="taken by the table at another place"):
        catalog.register("others.one", tmp_path / "two")
    with pytest.raises(Invalid, match=r"has no table others\.on: did you mean others\.one"):
        catalog.open_table("others.on")
    with pytest.raises(Invalid, match="no database nowhere"):
        catalog.open_table("nowhere.one")


def test_the_command_line_speaks_to_it(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", properties=QUIET).bulk_insert(rows(1))
    place = f"rest:{url}"
    assert main(["catalog", "create-database", place, "shell"]) == 0
    assert main(["catalog", "register", place, "shell.t", str(tmp_path / "t")]) == 0
    capsys.readouterr()
    assert main(["scan", "shell.t", "--catalog", place, "--columns", "id", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": 1}
    assert main(["catalog", "drop", place, "shell.t", "--purge", "--yes"]) == 0
    assert main(["catalog", "tables", place, "shell", "--json"]) == 0
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("place", ["rest:", "rest:ftp://x", "rest:http://me:secret@x", "rest:http://x?token=secret"])
def test_a_place_that_is_none_or_holds_secrets_is_refused(place: str) -> None:
    with pytest.raises(Invalid) as refused:
        mainstem.open_catalog(place)
    assert "secret" not in str(refused.value)


def test_a_server_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="look at the address"):
        mainstem.open_catalog("rest:http://127.0.0.1:9").databases()
