"""Goal: what we register in a Hive Metastore is what Hudi's own HiveSyncTool registers, field by field, and
each opens by name what the other one registered.

Method: a real metastore; Java's tool out of the Hudi bundle syncs our tables into one database, we sync
them into another. Entries and partitions are compared whole, but for names and times of creation. Then Spark
with Hudi's jar and this metastore as its catalog reads by name what we registered.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from java_hudi import QUICK_JVM, JavaHudi, nbcc_options

import mainstem
from tests.servers import hive_metastore

SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("Name", pa.string()), ("b", pa.bool_()), ("i", pa.int32()), ("f", pa.float32()),
        ("d", pa.float64()), ("dec", pa.decimal128(10, 2)), ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")), ("ms", pa.timestamp("ms", "UTC")), ("ntz", pa.timestamp("us")),
        ("bin", pa.binary()), ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.float64())),
        ("st", pa.struct([("x", pa.int32()), ("Yz", pa.list_(pa.string()))])), ("city", pa.string()),
    ]
)  # fmt: skip
LAYOUTS: dict[str, tuple[list[str], bool]] = {
    "flat": ([], False), "plain": (["city"], False), "hive": (["city"], True), "two": (["city", "i"], True),
}  # fmt: skip
PREFIX = "hoodie.datasource.hive_sync."
# What the metastore itself notes, and what the two databases cannot have in common.
OWN = ("createTime", "dbName", "transient_lastDdlTime")


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    jars = hive_metastore.jars()
    assert jars is not None
    with hive_metastore.running(tmp_path_factory.mktemp("metastore"), jars) as uri:
        yield uri


@pytest.fixture(scope="module")
def hive_java(metastore: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaHudi]:
    """Java Hudi whose Spark has the metastore as its catalog."""
    settings = {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": metastore}
    log = tmp_path_factory.mktemp("java") / "stderr.log"
    with JavaHudi(cores=1, memory="700m", log=log, jvm=QUICK_JVM, settings=settings) as running:
        yield running


def rows(ids: list[int], cities: list[str]) -> pa.Table:
    known = {"id": ids, "city": cities, "i": [7] * len(ids), "Name": ["a"] * len(ids)}
    return pa.Table.from_pylist(
        [{name: values[at] for name, values in known.items()} for at in range(len(ids))], SCHEMA
    )


def created(path: Path, layout: str) -> mainstem.Table:
    parts, hive_style = LAYOUTS[layout]
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="id", partition_by=parts, buckets=2, name=layout,
        properties={"hoodie.datasource.write.hive_style_partitioning": hive_style},
    )  # fmt: skip
    table.upsert(rows([1, 2], ["Oslo", "Rome"]))
    return table


def sync_options(
    uri: str, table: mainstem.Table, layout: str, database: str, timestamps: str
) -> dict[str, str]:
    parts, hive_style = LAYOUTS[layout]
    options = {
        "hoodie.datasource.meta.sync.base.path": table.path,
        f"{PREFIX}database": database, f"{PREFIX}table": layout, f"{PREFIX}mode": "hms",
        f"{PREFIX}metastore.uris": uri, f"{PREFIX}support_timestamp": timestamps,
        f"{PREFIX}partition_fields": ",".join(parts),
        "hoodie.datasource.write.hive_style_partitioning": str(hive_style).lower(),
    }  # fmt: skip
    return options | ({"hoodie.datasource.write.partitionpath.field": ",".join(parts)} if parts else {})


def plain(value: Any) -> Any:
    """Thrift's objects as dictionaries."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items() if key not in OWN}
    if hasattr(value, "__dict__"):
        return plain(vars(value))
    return value


def registered(catalog: mainstem.Catalog, database: str) -> dict[str, Any]:
    """Every entry of a database, with its partitions, as the metastore tells them."""
    found = {}
    with catalog.store._client("a look") as client:  # type: ignore[attr-defined]
        for name in client.get_all_tables(database):
            parts = [plain(part) for part in client.get_partitions(database, name, -1)]
            found[name] = (plain(client.get_table(database, name)), sorted(parts, key=lambda p: p["values"]))
    return found


@pytest.mark.supports("Engines", "Catalogs: entries are those of Hudi's HiveSyncTool, field by field")
def test_our_entries_are_those_of_hudis_own_tool(
    hive_java: JavaHudi, metastore: str, tmp_path: Path
) -> None:
    catalog = mainstem.open_catalog(metastore)
    for number, (timestamps, layouts) in enumerate((("false", ("plain", "two")), ("true", ("flat", "hive")))):
        ours, javas = f"ours{number}", f"javas{number}"
        tables = {layout: created(tmp_path / layout, layout) for layout in layouts}
        for layout, table in tables.items():
            hive_java.call("hive_sync", options=sync_options(metastore, table, layout, javas, timestamps))
            catalog.register(f"{ours}.{layout}", table.path, {f"{PREFIX}support_timestamp": timestamps})
        assert registered(catalog, ours) == registered(catalog, javas)
        # Each goes on with what the other one registered.
        for layout, table in tables.items():
            table.upsert(rows([3], ["Bern"]))
            hive_java.call("hive_sync", options=sync_options(metastore, table, layout, ours, timestamps))
            catalog.refresh(f"{javas}.{layout}")
        assert registered(catalog, ours) == registered(catalog, javas)
        assert len(registered(catalog, ours)) == 6
        assert len(registered(catalog, ours)[layouts[1]][1]) == 3


@pytest.mark.supports("Engines", "Catalogs: Java Hudi's Spark and we open each other's entries by name")
def test_each_opens_by_name_what_the_other_one_registered(
    hive_java: JavaHudi, metastore: str, tmp_path: Path
) -> None:
    catalog = mainstem.open_catalog(metastore)
    catalog.create_database("city")
    table = catalog.create_table(
        "city.trips", SCHEMA, record_key="id", ordering="id", partition_by="city", buckets=2,
        location=tmp_path / "trips",
    )  # fmt: skip
    writer = mainstem.open_table(table.path, {
        f"{PREFIX}enable": True, f"{PREFIX}database": "city", f"{PREFIX}metastore.uris": metastore,
    })  # fmt: skip
    writer.upsert(rows([1, 2], ["Oslo", "Rome"]))
    query = "SELECT id, city FROM city.trips WHERE city = 'Oslo' OR id > 1 ORDER BY id"
    assert hive_java.call("sql", text=query)["rows"] == [["1", "Oslo"], ["2", "Rome"]]
    assert sorted(hive_java.call("sql", text="SHOW PARTITIONS city.trips")["rows"]) == [["Oslo"], ["Rome"]]
    writer.compact()
    writer.upsert(rows([3], ["Oslo"]))
    assert hive_java.call("sql", text="SELECT count(*) FROM city.trips_ro")["rows"] == [["2"]]
    assert hive_java.call("sql", text="SELECT count(*) FROM city.trips_rt")["rows"] == [["3"]]
    # A table that Java makes and syncs with its write opens by its name here.
    path = tmp_path / "javas"
    options = nbcc_options("javas", record_key=["id"], partition_by=["city"], ordering=["id"], buckets=2)
    synced = {
        "hoodie.datasource.meta.sync.enable": "true", f"{PREFIX}mode": "hms", f"{PREFIX}database": "city",
        f"{PREFIX}table": "javas", f"{PREFIX}metastore.uris": metastore,
    }  # fmt: skip
    hive_java.write(path, rows([5, 6], ["Oslo", "Bern"]), {**options, **synced})
    opened = mainstem.open_table("city.javas", catalog=metastore)
    assert opened.path == str(path)
    assert sorted(opened.scan(["id"]).to_arrow().column("id").to_pylist()) == [5, 6]
    before = registered(catalog, "city")["javas"]
    assert catalog.refresh("city.javas").added == 0
    assert registered(catalog, "city")["javas"] == before
