"""Goal: AWS Glue's entries are what Hudi's AwsGlueCatalogSyncTool makes, and stay true to their tables.

Method: moto's Glue on loopback, and real tables on this disk. moto keeps what it is sent and checks names,
not all that AWS does.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
from moto import server as moto_server

import mainstem
from mainstem.catalogs.protocol import Entry, Part
from mainstem.cli.main import main
from mainstem.errors import Invalid, NotSynchronised, Unavailable, Unsupported

SCHEMA = pa.schema([("id", pa.int64()), ("City", pa.string()), ("at", pa.timestamp("us", "UTC"))])
GLUE = "glue://eu-central-1"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def catalog(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> mainstem.Catalog:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", endpoint)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    return mainstem.open_catalog(GLUE)


@pytest.fixture
def database(catalog: mainstem.Catalog, request: pytest.FixtureRequest) -> str:
    name = f"db_{abs(hash(request.node.name)) % 10**9}"
    catalog.create_database(name)
    return name


def rows(*cities: str) -> pa.Table:
    found = {"id": list(range(len(cities))), "City": list(cities), "at": [None] * len(cities)}
    return pa.table(found, SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", partition_by="City", buckets=1, name="trips",
        properties={"hoodie.mainstem.fsync": "false"},
    )  # fmt: skip
    made.upsert(rows("oslo", "rome"))
    return made


def values(catalog: mainstem.Catalog, name: str) -> list[str]:
    entry = catalog.store.entry(*name.split("."))
    assert entry is not None
    return sorted(part.values[0] for part in catalog.store.partitions(entry))


@pytest.mark.supports("Engines", "Catalogs: AWS Glue: register, open by name, refresh, drop")
def test_entries_are_made_kept_true_and_dropped(
    catalog: mainstem.Catalog, database: str, table: mainstem.Table
) -> None:
    name = f"{database}.trips"
    assert catalog.register(name, table.path).added == 6
    assert catalog.tables(database) == ["trips", "trips_ro", "trips_rt"]
    client = boto3.client("glue", region_name="eu-central-1")
    found = client.get_table(DatabaseName=database, Name="trips")["Table"]
    storage, said = found["StorageDescriptor"], found["Parameters"]
    assert found["TableType"] == "EXTERNAL_TABLE"
    assert storage["InputFormat"] == "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
    assert storage["SerdeInfo"]["Parameters"] == {
        "hoodie.query.as.ro.table": "false", "path": table.path, "serialization.format": "1"
    }  # fmt: skip
    columns = [(c["Name"], c["Type"]) for c in storage["Columns"]]
    assert columns[-2:] == [("id", "bigint"), ("at", "timestamp")]
    assert [(c["Name"], c["Type"]) for c in found["PartitionKeys"]] == [("city", "string")]
    assert said["spark.sql.sources.provider"] == "hudi" and said["hudi.metadata-listing-enabled"] == "FALSE"
    assert said["last_commit_completion_time_sync"] == table.timeline()[-1].completion
    table.upsert(rows("bern"))
    table.evolve(pa.schema([("tip", pa.float64())]))
    assert (catalog.refresh(name).added, values(catalog, name)) == (3, ["bern", "oslo", "rome"])
    assert dict(catalog.describe(name).columns)["tip"] == "double"
    assert mainstem.open_table(name, catalog=GLUE).scan(["id"]).to_arrow().num_rows == 3
    with pytest.raises(Invalid, match="not empty"):
        catalog.drop_database(database)
    catalog.drop_table(name)
    assert catalog.tables(database) == []
    catalog.drop_database(database)
    with pytest.raises(Invalid, match="no database"):
        catalog.drop_database(database)
    assert table.scan(["id"]).to_arrow().num_rows == 3


def test_a_writer_syncs_by_the_options_of_hudis_tool(
    catalog: mainstem.Catalog, database: str, table: mainstem.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    options = {
        "hoodie.datasource.meta.sync.enable": "true",
        "hoodie.meta.sync.client.tool.class": "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool",
        "hoodie.datasource.hive_sync.database": database,
        "hoodie.datasource.meta.sync.glue.metadata_file_listing": "true",
    }
    writer = mainstem.open_table(table.path, options)
    writer.upsert(rows(*(f"c{n:03}" for n in range(130))))  # more than one request takes
    assert len(values(catalog, f"{database}.trips")) == 132
    entry = catalog.store.entry(database, "trips")
    assert entry is not None and entry.parameters["hudi.metadata-listing-enabled"] == "TRUE"
    catalog.store.drop_partitions(entry, catalog.store.partitions(entry)[:60])
    given = (part for pair in options.items() for part in ("-o", "=".join(pair)))
    assert main(["sync", table.path, *given]) == 0
    assert len(values(catalog, f"{database}.trips")) == 132
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://127.0.0.1:9")
    with pytest.raises(NotSynchronised, match=r"stands, but glue: was not synced: Glue does not answer"):
        writer.upsert(rows("later"))
    with pytest.raises(Unavailable, match="does not answer"):
        catalog.databases()


def test_what_is_not_a_table_here_is_told(
    catalog: mainstem.Catalog, database: str, table: mainstem.Table, tmp_path: Path
) -> None:
    name = f"{database}.trips"
    catalog.register(name, table.path)
    entry = catalog.store.entry(database, "trips")
    assert entry is not None
    catalog.store.add_partitions(entry, [Part(("gone",), f"{table.path}/gone"), Part(("far",), "s3://x/far")])
    catalog.store.move_partitions(entry, [Part(("oslo",), f"{table.path}/elsewhere")])
    done = catalog.refresh(name)
    assert (done.added, done.moved, done.dropped, done.left_alone) == (0, 1, 1, ("s3://x/far",))
    ice = Entry(database, "ice", "s3a://x/ice", parameters={"table_type": "ICEBERG"})
    with pytest.raises(Invalid, match="does not take it"):
        catalog.store.create(ice)
    catalog.store.create(replace(ice, serde="x"))
    assert catalog.describe(f"{database}.ice").location == "s3://x/ice"
    with pytest.raises(Unsupported, match="read it with Iceberg"):
        catalog.open_table(f"{database}.ice")
    with pytest.raises(Invalid, match=r"has no table .*\.trip: did you mean"):
        catalog.open_table(f"{database}.trip")
    with pytest.raises(Invalid, match="has no location"):
        catalog.create_table(f"{database}.new", SCHEMA, record_key="id")
    shutil.move(table.path, tmp_path / "away")
    with pytest.raises(Invalid, match="there is no table: bring the folder back"):
        catalog.open_table(name)
