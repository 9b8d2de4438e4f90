"""Goal: entries of a Hive Metastore are true to their tables, whatever writers and hands do meanwhile.

Method: a real metastore (Hive 2.3 out of Spark's jars, Derby) and real tables. That entries equal those of
Hudi's own tool, field by field, is shown in tests/interop/test_interop_hive_sync.py.
"""

from __future__ import annotations

import itertools
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.catalogs.protocol import Entry, Part
from mainstem.catalogs.sync_after_commit import SyncWarning
from mainstem.cli.main import main
from mainstem.errors import Invalid, NotSynchronised, Unavailable, Unsupported

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("n", pa.int32())])
_numbers = itertools.count()
#: one name for a table, not three: the metastore is slow
ONE = {"hoodie.datasource.hive_sync.table.strategy": "RT"}


@pytest.fixture
def catalog(metastore: str) -> mainstem.Catalog:
    return mainstem.open_catalog(metastore)


@pytest.fixture
def database(catalog: mainstem.Catalog) -> str:
    """One of its own."""
    name = f"db{next(_numbers)}"
    catalog.create_database(name)
    return name


def rows(*cities: str, n: int = 1) -> pa.Table:
    ids = list(range(len(cities)))
    return pa.table({"id": ids, "city": list(cities), "n": [n] * len(cities)}, schema=SCHEMA)


def created(path: Path) -> mainstem.Table:
    return mainstem.create_table(
        path, SCHEMA, record_key="id", partition_by="city", buckets=1, name="trips",
        properties={"hoodie.mainstem.fsync": "false"},
    )  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    made = created(tmp_path / "t")
    made.upsert(rows("oslo", "rome"))
    return made


def synced(
    table: mainstem.Table, metastore: str, database: str, others: dict[str, str] | None = None, **more: str
) -> mainstem.Table:
    """The table, opened by a writer that syncs."""
    options = {
        "hoodie.datasource.hive_sync.enable": "true",
        "hoodie.datasource.hive_sync.metastore.uris": metastore,
        "hoodie.datasource.hive_sync.database": database,
        **ONE,
        **{f"hoodie.datasource.hive_sync.{key}": text for key, text in (others or {}).items()},
        **{f"hoodie.datasource.hive_sync.{key}": text for key, text in more.items()},
    }
    return mainstem.open_table(table.path, options)


def values(catalog: mainstem.Catalog, name: str) -> list[str]:
    entry = catalog.store.entry(*name.split("."))
    assert entry is not None
    return sorted(part.values[0] for part in catalog.store.partitions(entry))


@pytest.mark.supports("Engines", "Catalogs: Hive Metastore: register, open by name, list, refresh, drop")
def test_a_registered_table_is_opened_by_name_and_dropped_as_a_name_alone(
    catalog: mainstem.Catalog, database: str, table: mainstem.Table
) -> None:
    done = catalog.register(f"{database}.trips", table.path)
    assert done.names == tuple(f"{database}.trips{end}" for end in ("_ro", "_rt", ""))
    assert catalog.tables(database) == ["trips", "trips_ro", "trips_rt"]
    for name in ("trips", "trips_rt"):
        opened = mainstem.open_table(f"{database}.{name}", catalog=catalog)
        assert opened.scan(["id"]).to_arrow().num_rows == 2
    with pytest.raises(Invalid, match="read_optimized"):
        catalog.open_table(f"{database}.trips_ro")
    newest = table.timeline()[-1]
    told = catalog.describe(f"{database}.trips")
    assert (told.last_instant, told.last_completion_time) == (newest.requested, newest.completion)
    with pytest.raises(Invalid):
        catalog.drop_database(database)
    catalog.drop_table(f"{database}.trips")
    assert catalog.tables(database) == []
    assert table.scan(["id"]).to_arrow().num_rows == 2
    catalog.drop_database(database)


def test_a_table_is_made_in_the_warehouse_or_elsewhere(
    catalog: mainstem.Catalog, database: str, tmp_path: Path
) -> None:
    one = catalog.create_table(f"{database}.one", SCHEMA, record_key="id", buckets=1)
    assert one.path.endswith(f"/{database}.db/one") and one.config.name == "one"
    catalog.create_table(f"{database}.two", SCHEMA, record_key="id", buckets=1, location=tmp_path / "two")
    assert catalog.open_table(f"{database}.two").path == str(tmp_path / "two")
    assert catalog.describe(f"{database}.two").last_instant is None


@pytest.mark.supports("Engines", "Catalogs: sync after each commit (`hoodie.datasource.hive_sync.*`)")
def test_commits_of_a_syncing_writer_add_their_partitions(
    catalog: mainstem.Catalog, metastore: str, database: str, table: mainstem.Table
) -> None:
    writer = synced(table, metastore, database)
    name = f"{database}.trips"
    writer.upsert(rows("oslo", "bern"))
    assert values(catalog, name) == ["bern", "oslo", "rome"]
    table.upsert(rows("paris"))  # syncs nothing
    assert values(catalog, name) == ["bern", "oslo", "rome"]
    outcome = writer.upsert(rows("lima"))
    assert values(catalog, name) == ["bern", "lima", "oslo", "paris", "rome"]
    assert catalog.describe(name).last_completion_time == outcome.completion_time


def test_a_write_that_was_open_at_the_last_sync_is_not_missed(
    catalog: mainstem.Catalog, metastore: str, database: str, table: mainstem.Table
) -> None:
    writer = synced(table, metastore, database)
    open_one = table.begin("upsert")
    open_one.write(rows("early"))
    writer.upsert(rows("rome"))
    open_one.commit()  # requested before, completed after the sync
    writer.upsert(rows("rome"))
    assert "early" in values(catalog, f"{database}.trips")


def test_columns_that_come_later_reach_entry_and_partitions(
    catalog: mainstem.Catalog, metastore: str, database: str, table: mainstem.Table
) -> None:
    writer = synced(table, metastore, database)
    writer.upsert(rows("oslo"))
    writer.evolve(pa.schema([("n", pa.int64())]))
    writer.upsert(rows("oslo").append_column("tip", pa.array([1.5])))
    name = f"{database}.trips"
    assert dict(catalog.describe(name).columns)["tip"] == "double"
    assert dict(catalog.describe(name).columns)["n"] == "bigint"
    with catalog.store._client("a look") as client:  # type: ignore[attr-defined]
        (one,) = [p for p in client.get_partitions(database, "trips", -1) if p.values == ["oslo"]]
    assert ("tip", "double") in [(c.name, c.type) for c in one.sd.cols]


def test_a_metastore_that_is_away_leaves_the_commit_and_the_next_sync_does_the_rest(
    catalog: mainstem.Catalog, metastore: str, database: str, table: mainstem.Table
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        away = f"thrift://127.0.0.1:{nobody.getsockname()[1]}"
    with pytest.raises(NotSynchronised, match=r"stands, but .* does not answer"):
        synced(table, away, database).upsert(rows("bern"))
    with pytest.warns(SyncWarning, match="next commit tries again"):
        outcome = synced(table, away, database, ignore_exceptions="true").upsert(rows("lima"))
    assert outcome.rows == 1
    there = set(table.scan(["city"]).to_arrow().column("city").to_pylist())
    assert there == {"bern", "lima", "oslo", "rome"}
    synced(table, f"{away},{metastore}", database).upsert(rows("rome"))
    assert values(catalog, f"{database}.trips") == ["bern", "lima", "oslo", "rome"]


def test_a_sync_that_ended_halfway_is_finished_by_the_next_one(
    catalog: mainstem.Catalog, metastore: str, database: str, table: mainstem.Table,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    writer = synced(table, metastore, database)
    writer.upsert(rows("oslo"))
    name = f"{database}.trips"
    catalog.drop_table(name)

    def dies(*_: object) -> None:
        raise Unavailable("the metastore went away")

    with monkeypatch.context() as patch:
        patch.setattr(type(catalog.store), "add_partitions", dies)
        with pytest.raises(NotSynchronised, match="went away"):
            writer.upsert(rows("bern"))
    assert (values(catalog, name), catalog.describe(name).last_instant) == ([], None)
    outcome = writer.upsert(rows("oslo"))
    assert values(catalog, name) == ["bern", "oslo", "rome"]
    assert catalog.describe(name).last_instant == outcome.instant


def test_options_that_cannot_be_followed_end_a_write_before_it_begins(
    metastore: str, database: str, table: mainstem.Table
) -> None:
    before = len(table.timeline())
    for key, text, why in (
        ("mode", "jdbc", "expected HMS or GLUE"), ("create_managed_table", "true", "deletes its files"),
        ("partition_extractor_class", "com.example.Mine", "does not run"), ("database", "a/b", "no name"),
        ("metastore.uris", "http://x", "thrift://host:port"), ("table_properties", "nonsense", "key=value"),
    ):  # fmt: skip
        with pytest.raises((Invalid, Unsupported), match=why):
            synced(table, metastore, database, {key: text}).upsert(rows("rome"))
    assert len(table.timeline()) == before


def test_a_name_of_another_table_is_never_taken_over(
    catalog: mainstem.Catalog, database: str, table: mainstem.Table, tmp_path: Path
) -> None:
    name = f"{database}.trips"
    catalog.register(name, table.path, ONE)
    other = created(tmp_path / "other")
    with pytest.raises(Invalid, match=r"is taken by the table at another place.*Nothing was changed"):
        catalog.register(name, other.path)
    assert catalog.open_table(name).path == table.path
    entry = Entry(database, "ice", f"file:{tmp_path}/ice", parameters={"table_type": "ICEBERG"})
    catalog.store.create(entry)
    with pytest.raises(Invalid, match="a table of the format 'iceberg'"):
        catalog.register(f"{database}.ice", other.path)
    with pytest.raises(Unsupported, match="read it with Iceberg"):
        catalog.open_table(f"{database}.ice")
    with pytest.raises(Unsupported, match="drop it there"):
        catalog.drop_table(f"{database}.ice")
    assert "ice" in catalog.tables(database)


def test_an_entry_whose_table_is_gone_says_so(
    catalog: mainstem.Catalog, database: str, table: mainstem.Table
) -> None:
    name = f"{database}.trips"
    catalog.register(name, table.path, ONE)
    shutil.move(table.path, f"{table.path}.away")
    with pytest.raises(Invalid, match=r"names the folder .*, and there is no table: bring the folder back"):
        catalog.open_table(name)
    shutil.move(f"{table.path}.away", table.path)
    assert catalog.open_table(name).scan(["id"]).to_arrow().num_rows == 2


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("", "no location|cannot be used"), ("s3://KEY:SECRET@bucket/t", "cannot be used"),
        ("gopher://x/y", "cannot be used"), ("/nowhere/../../etc", "there is no table"),
    ],
)  # fmt: skip
def test_what_an_entry_says_of_its_place_is_not_believed(
    location: str, why: str, catalog: mainstem.Catalog, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Entry(database, "odd", location, parameters={"spark.sql.sources.provider": "hudi"})
    monkeypatch.setattr(type(catalog.store), "entry", lambda self, database, name: entry)
    with pytest.raises((Invalid, Unsupported), match=why) as caught:
        catalog.open_table(f"{database}.odd")
    assert "SECRET" not in str(caught.value)


def test_a_refresh_mends_partitions_that_hands_have_changed(
    catalog: mainstem.Catalog, database: str, table: mainstem.Table, tmp_path: Path
) -> None:
    name = f"{database}.trips"
    catalog.register(name, table.path, ONE)
    entry = catalog.store.entry(database, "trips")
    assert entry is not None
    catalog.store.drop_partitions(entry, [Part(("oslo",), "")])
    places = {"gone": f"{table.path}/gone", "far": f"{tmp_path}/far"}
    catalog.store.add_partitions(entry, [Part((value,), place) for value, place in places.items()])
    catalog.store.move_partitions(entry, [Part(("rome",), f"{table.path}/elsewhere")])
    done = catalog.refresh(name)
    assert (done.added, done.moved, done.dropped) == (1, 1, 1)
    assert [place.removeprefix("file:") for place in done.left_alone] == [f"{tmp_path}/far"]
    assert values(catalog, name) == ["far", "oslo", "rome"]
    assert table.scan(["id"]).to_arrow().num_rows == 2


def test_an_older_look_leaves_a_newer_entry_alone_unless_its_time_was_taken_back(
    catalog: mainstem.Catalog, database: str, table: mainstem.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{database}.trips"
    catalog.register(name, table.path, ONE)
    entry = catalog.store.entry(database, "trips")
    assert entry is not None
    ahead = {**entry.parameters, "last_commit_completion_time_sync": "29990101000000000"}
    catalog.store.alter(replace(entry, parameters=ahead), cascade=False)
    catalog.refresh(name)  # no commit has that time any more
    assert catalog.describe(name).last_completion_time == table.timeline()[-1].completion

    from mainstem.catalogs import synchronising

    load = synchronising.TableState.load
    looks: list[Callable[[], object]] = []

    def slow_look(storage: object, config: object) -> object:
        state = load(storage, config)  # type: ignore[arg-type]
        if not looks:
            looks.append(lambda: None)
            table.upsert(rows("later"))
            catalog.refresh(name)  # another process, whose look is newer
        return state

    monkeypatch.setattr(synchronising.TableState, "load", slow_look)
    catalog.refresh(name)
    assert catalog.describe(name).last_completion_time == table.timeline()[-1].completion
    assert "later" in values(catalog, name)


def test_the_command_sync_goes_by_hudis_options(
    catalog: mainstem.Catalog, metastore: str, database: str, table: mainstem.Table,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    prefix = "hoodie.datasource.hive_sync."
    given = [f"{prefix}metastore.uris={metastore}", f"{prefix}database={database}", f"{prefix}table=t2",
             f"{prefix}table.strategy=RT"]  # fmt: skip
    assert main(["sync", table.path, *(part for one in given for part in ("-o", one))]) == 0
    assert f"new: {database}.t2; partitions: 2 added" in capsys.readouterr().out
    assert main(["sync", f"{database}.t2", "--catalog", metastore]) == 0
    assert "partitions: 0 added" in capsys.readouterr().out
    assert main(["catalog", "drop", metastore, f"{database}.t2"]) == 0
    assert catalog.tables(database) == []


def test_a_place_where_no_metastore_answers_is_told(database: str) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        with pytest.raises(Unavailable, match="does not answer"):
            mainstem.open_catalog(f"thrift://127.0.0.1:{deaf.getsockname()[1]}").databases()
    for text in ("thrift://", "thrift://user@host:1", "thrift://host:x", "thrift://a:1,http://b:2"):
        with pytest.raises(Invalid, match="thrift://host:port"):
            mainstem.open_catalog(text)
