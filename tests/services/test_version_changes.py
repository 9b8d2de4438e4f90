"""Goal: a table gets another version as Hudi gives it one, while writers run; whoever dies on the way, the
table has one version or the other, and no row is lost.

Method: tables that Java 1.2 wrote at version 8 are upgraded here, and their properties compared with those
that Java's own upgrade of the same table left. Processes that have a table open when it is upgraded go on.
One process is killed at every call of an upgrade.
"""

from __future__ import annotations

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.api.job_table import contradiction
from mainstem.api.real_seams import fence_of
from mainstem.cli.main import main
from mainstem.errors import CorruptTable, Invalid, Unavailable, Unsupported
from mainstem.layout.properties import TableConfig, load_config
from mainstem.layout.version_changes import changes_to, with_changes
from mainstem.publish.publisher import Publisher
from mainstem.services.version_change import change_version
from mainstem.spark.options import WriteOptions
from mainstem.storage import paths
from mainstem.storage.folder_storage import FolderStorage
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.instant_times import InstantTimes
from tests.bad_input.common import GOLDEN, edit_properties, golden
from tests.services.city_table import QUICK, SCHEMA, aged, content, make, rows
from tests.services.test_metadata_compaction import replace_storage
from tests.storage.steps import Dead, Mortal, entered, storage_at

pytestmark = pytest.mark.supports("Services", "table versions: 8 to 9, 9 to 10 beside writers, 10 to 9")

MODEL = "org.apache.hudi.common.model."
BY_PAYLOAD = "00000000-0000-0000-0000-000000000000"
OF_PROPERTY = "hoodie.record.merge.property."


def version(path: Path | str) -> tuple[int, int | None]:
    """Of the table, and of its metadata table."""
    storage = storage_at(path)
    metadata = None
    if storage.stat(f"{paths.METADATA}/{paths.PROPERTIES}") is not None:
        metadata = load_config(FolderStorage(storage, paths.METADATA)).version
    return load_config(storage).version, metadata


def without_seqno(table: mainstem.Table) -> pa.Table:
    """Its rows, but for the numbers that a compaction gives anew."""
    return content(table).drop_columns(["_hoodie_commit_seqno"])


def older(path: Path, **properties: str) -> mainstem.Table:
    """A table of version 8 with rows in base files and logs."""
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, table_version=8,
        properties={"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False, **properties},
    )  # fmt: skip
    table.upsert(rows(range(6), 1))
    table.compact()
    table.upsert(rows(range(3, 9), 2, "w"))
    return table


@pytest.mark.parametrize("mode", ["event", "commit"])
def test_an_upgrade_from_8_to_9_leaves_what_javas_leaves(mode: str, tmp_path: Path) -> None:
    path = golden(f"upgraded_8_to_9_{mode}.before", tmp_path)
    told = json.loads((GOLDEN / f"upgraded_8_to_9_{mode}.before.json").read_text())["writer_options"]
    table = mainstem.open_table(
        path, {"hoodie.bucket.index.num.buckets": told["hoodie.bucket.index.num.buckets"]}
    )
    before = without_seqno(table)
    done = table.upgrade(9)
    assert (done.before, done.after, len(done.compactions)) == (8, 9, 1)
    java = golden(f"upgraded_8_to_9_{mode}", tmp_path / "java")
    for folder in ("", f"{paths.METADATA}/"):
        ours, theirs = (
            load_config(storage_at(base) if not folder else FolderStorage(storage_at(base), paths.METADATA))
            for base in (path, java)
        )
        assert dict(ours.raw) == dict(theirs.raw)
    assert without_seqno(mainstem.open_table(path)).equals(before)
    report = table.validate_metadata()
    assert report is not None and report.ok
    assert table.upgrade(9).describe() == "the table has version 9 already"


@pytest.mark.parametrize(
    ("payload", "mode", "more"),
    [
        ("PartialUpdateAvroPayload", "EVENT_TIME", {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}),
        ("OverwriteNonDefaultsWithLatestAvroPayload", "COMMIT_TIME",
         {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}),
        ("AWSDmsAvroPayload", "COMMIT_TIME", {
            f"{OF_PROPERTY}hoodie.payload.delete.field": "Op",
            f"{OF_PROPERTY}hoodie.payload.delete.marker": "D"}),
        ("debezium.PostgresDebeziumAvroPayload", "EVENT_TIME", {
            "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
            f"{OF_PROPERTY}hoodie.write.partial.update.unavailable.value": "__debezium_unavailable_value",
            f"{OF_PROPERTY}hoodie.payload.delete.field": "_change_operation_type",
            f"{OF_PROPERTY}hoodie.payload.delete.marker": "d"}),
    ],
    ids=["partial", "non-defaults", "dms", "postgres"],
)  # fmt: skip
def test_payload_classes_become_merge_modes(payload: str, mode: str, more: dict[str, str]) -> None:
    order = "_event_lsn" if "Postgres" in payload else "ts"
    before = {
        "hoodie.table.version": "8", "hoodie.table.name": "t", "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.record.merge.mode": "CUSTOM", "hoodie.record.merge.strategy.id": BY_PAYLOAD,
        "hoodie.compaction.payload.class": MODEL + payload, "hoodie.table.precombine.field": order,
    }  # fmt: skip
    after = with_changes(before, changes_to(TableConfig(before), 9))
    strategy = {"EVENT_TIME": "eeb8d96f", "COMMIT_TIME": "ce9acb64"}[mode]
    assert after.pop("hoodie.record.merge.strategy.id").startswith(strategy)
    assert after == {
        "hoodie.table.version": "9", "hoodie.table.name": "t", "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.record.merge.mode": f"{mode}_ORDERING", "hoodie.table.ordering.fields": order,
        "hoodie.table.legacy.payload.class": MODEL + payload, **more,
    }  # fmt: skip


def test_a_table_of_version_8_is_upgraded_between_transactions_and_stays_made_here(tmp_path: Path) -> None:
    table = older(tmp_path / "t")
    writing = table.begin("upsert")
    writing.write(rows([20], 3))
    with pytest.raises(Unavailable, match=f"deltacommit {writing.instant} is in flight"):
        mainstem.open_table(table.path).upgrade(9)
    assert version(table.path) == (8, None)
    writing.commit()
    before = without_seqno(table)
    assert mainstem.open_table(table.path).upgrade(9).after == 9
    now = mainstem.open_table(table.path)
    assert "hoodie.write.table.version" not in now.properties  # else Java's writers would refuse it
    assert without_seqno(now).equals(before)
    with pytest.raises(Invalid, match="open the table again"):
        table.upsert(rows([21], 3))
    assert now.resize(4).after == 4  # which a table of another engine refuses
    now.upsert(rows([21], 3))
    assert "k21" in content(now)["id"].to_pylist()


@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "with a metadata table"])
def test_from_9_to_10_the_version_changes_and_nothing_else(tmp_path: Path, metadata: bool) -> None:
    table = make(tmp_path / "t", **{"hoodie.metadata.enable": str(metadata).lower()})
    table.upsert(rows(range(6), 1))
    before, shown = dict(table.properties), content(table)
    assert table.upgrade(10).describe() == "the table has version 10, and had 9"
    assert version(table.path) == (10, 10 if metadata else None)
    assert dict(load_config(storage_at(table.path)).raw) == {**before, "hoodie.table.version": "10"}
    assert content(table).equals(shown)


def test_writers_go_on_beside_an_upgrade_to_10_and_write_natively_from_their_next_transaction_on(
    tmp_path: Path,
) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(range(6), 1))
    flying, later = table.begin("upsert"), mainstem.open_table(table.path)
    flying.write(rows([0, 6], 2, "w"))
    later.upsert(rows([1], 2, "w"))
    mainstem.open_table(table.path).upgrade(10)
    flying.write(rows([2], 2, "w"))
    flying.commit()
    for one in (table, later):
        one.upsert(rows([3], 3, "x"))
        one.delete(rows([4], 4).select(["id", "city"]))
    shown = {row["id"]: row["value"] for row in content(mainstem.open_table(table.path)).to_pylist()}
    assert shown == {"k00": "w0", "k01": "w1", "k02": "w2", "k03": "x3", "k05": "v5", "k06": "w6"}
    instants = {
        native: {name.instant for name in logs(table) if name.is_native is native} for native in (False, True)
    }
    # In a store, where a look costs a request, a process plans by what it saw last, once.
    assert flying.instant in instants[False] and len(instants[True]) >= 3
    assert not instants[False] & instants[True]

def test_an_upgrade_by_somebody_who_has_the_table_open_since_before_a_resize_goes_by_its_files(
    tmp_path: Path,
) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(range(40), 1))
    mainstem.open_table(table.path, QUICK).resize(8)
    before = without_seqno(mainstem.open_table(table.path))
    assert table.upgrade(10).before == 9
    assert without_seqno(mainstem.open_table(table.path)).equals(before)


def logs(table: mainstem.Table) -> list[paths.LogName]:
    """Its log files."""
    names = [name for one in table.file_slices() for name in one.log_files]
    return [found for name in names if (found := paths.parse_log_name(name)) is not None]


def dying(table: mainstem.Table, at: int, after: bool, to: int = 10) -> bool:
    """Change the version in a process that dies at that call; whether it did."""
    ctx = table.writer_context()
    seams = replace(ctx.seams, storage=Mortal(ctx.seams.storage, at, after=after))
    publisher = Publisher(seams, InstantTimes(), fence_of(seams, None), skew=ClockSkew(0), exclusive=True)
    ctx = replace(ctx, seams=seams, publisher=publisher, heartbeats=replace_storage(ctx, seams.storage))
    try:
        change_version(ctx, to)
    except Dead:
        return True
    return False


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after it"])
def test_an_upgrade_that_dies_anywhere_is_ended_by_the_next(tmp_path: Path, after: bool) -> None:
    table = make(tmp_path / "t", **{"hoodie.metadata.enable": "true"})
    table.upsert(rows(range(6), 1))
    shown, at, died, seen = content(table), 0, True, set()
    while died:
        at += 1
        copy = mainstem.open_table(shutil.copytree(table.path, tmp_path / f"copy{at}"))
        died = dying(copy, at, after)
        entered(copy)
        seen.add(version(copy.path))
        again = mainstem.open_table(copy.path)
        assert content(again).equals(shown)
        if version(copy.path)[0] == 9:
            again.upsert(rows([30], 2))  # beside a metadata table of the newer version, perhaps
            shown_now = content(again)
            again.upgrade(10)
            assert content(again).equals(shown_now)
        assert version(copy.path) == (10, 10)
        report = again.validate_metadata()
        assert report is not None and report.ok
    assert seen == {(9, 9), (9, 10), (10, 10)}


def newer(path: Path, layout: str = "default", **properties: str) -> mainstem.Table:
    """A table of version 10 with native log files of rows and deletes over base files, and alone."""
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, table_version=10,
        properties={**QUICK, "hoodie.table.storage.layout": layout, **properties},
    )  # fmt: skip
    table.upsert(rows(range(4), 1))
    table.compact()
    table.upsert(rows(range(2, 9), 2, "w"))
    table.delete(rows([3], 4).select(["id", "city"]))
    return table


@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "with a metadata table"])
@pytest.mark.parametrize("layout", ["default", "lsm_tree"])
def test_a_table_that_is_brought_back_to_9_has_no_native_log_that_counts(
    tmp_path: Path, layout: str, metadata: bool
) -> None:
    table = newer(tmp_path / "t", layout, **{"hoodie.metadata.enable": str(metadata).lower()})
    before, moment = without_seqno(table), table.timeline()[-1].completion
    done = table.downgrade(9)
    assert (done.before, done.after, len(done.compactions)) == (10, 9, 1)
    assert version(table.path) == (9, 9 if metadata else None)
    now = mainstem.open_table(table.path)
    assert "hoodie.table.storage.layout" not in now.properties
    assert now.properties["hoodie.table.initial.version"] == "10"
    assert without_seqno(now).equals(before)
    assert content(now, as_of_completion=moment).num_rows == before.num_rows  # older slices stay
    newest = [name for one in now.file_slices() if one.latest for name in one.log_files]
    assert not [name for name in newest if paths.is_native_log(name)]
    if metadata:
        state = mainstem.open_table(table.path).validate_metadata()
        assert state is not None and state.ok
        folder = tmp_path / "t" / ".hoodie" / "metadata" / "files"
        groups = {name.name.split("_")[0] for name in folder.iterdir() if not name.name.startswith(".")}
        based = {n.name.split("_")[0] for n in folder.glob("*.hfile") if not paths.is_native_log(n.name)}
        assert groups == based  # a base file on top of every native log
    now.upsert(rows([20], 3))
    table.upsert(rows([21], 3))  # has had it open since it was of version 10
    assert not any(name.is_native for name in logs(now) if name.instant > done.compactions[-1])
    now.upgrade(10)
    now.upsert(rows([22], 3))
    shown = content(mainstem.open_table(table.path))["id"].to_pylist()
    assert {"k20", "k21", "k22"} <= set(shown) and "k03" not in shown


def test_services_that_had_the_table_open_write_no_native_log_once_it_is_of_version_9(tmp_path: Path) -> None:
    path = newer(tmp_path / "t", **{"hoodie.metadata.enable": "true"}).path
    alone = {"hoodie.mainstem.services": "off", "hoodie.clean.commits.retained": "1"}
    open_since, table = (mainstem.open_table(path, alone) for _ in range(2))
    open_since.upsert(rows([9], 2))
    back = table.downgrade(9).compactions[-1]
    for ts in (5, 6, 7):
        table.upsert(rows(range(4), ts))
    assert open_since.run_log_compaction(table.schedule_log_compaction())[0].given_up
    planned = table.schedule_compaction()
    assert planned is not None and open_since.run_compaction(planned)[0].completion
    assert table.schedule_clean() is not None and open_since.clean()
    open_since.create_index("column_stats", ["ts"])
    native = (file.name for file in (tmp_path / "t").rglob("*") if paths.is_native_log(file.name))
    assert not [log for log in map(paths.parse_log_name, native) if log is not None and log.instant > back]
    report = mainstem.open_table(path).validate_metadata()
    assert report is not None and report.ok


def test_nothing_is_in_flight_when_a_table_is_brought_back_to_9(tmp_path: Path) -> None:
    table = newer(tmp_path / "t")
    flying = table.begin("upsert")
    flying.write(rows([9], 5))
    with pytest.raises(Unavailable, match=f"deltacommit {flying.instant} is in flight"):
        mainstem.open_table(table.path).downgrade(9)
    assert version(table.path)[0] == 10
    flying.commit()
    mainstem.open_table(table.path).downgrade(9)
    assert "k09" in content(mainstem.open_table(table.path))["id"].to_pylist()


def test_a_native_log_file_gets_into_no_table_of_version_9(tmp_path: Path) -> None:
    table = newer(tmp_path / "t")
    late = table.begin("upsert")  # as if it had been planned before the downgrade, and begun after it
    late.write(rows([9], 5))
    edit_properties(tmp_path / "t", hoodie__table__version="9", hoodie__table__storage__layout=None)
    with pytest.raises(Invalid, match=r"which are native\. Nothing was published; write the data again"):
        late.commit()
    table.upsert(rows([9], 5))
    assert content(mainstem.open_table(table.path))["id"].to_pylist().count("k09") == 1


def test_a_file_of_a_write_that_never_completed_is_named_before_it_may_count_one_day(tmp_path: Path) -> None:
    table = newer(tmp_path / "t")
    name = next(name.name for name in logs(table) if name.is_native)
    lost = name.replace(paths.parse_log_name(name).instant, "20990101000000001")
    folder = next(path.parent for path in (tmp_path / "t").rglob(name))
    shutil.copy(folder / name, folder / lost)
    with pytest.raises(CorruptTable, match=r"never completed.*may take it for a base file"):
        table.downgrade(9)
    assert version(table.path)[0] == 10
    (folder / lost).unlink()
    assert table.downgrade(9).after == 9


def test_what_would_bring_native_logs_back_is_refused_at_version_9(tmp_path: Path) -> None:
    table = newer(tmp_path / "t")
    point, shown = table.savepoint(), content(table)
    done = table.downgrade(9)
    with pytest.raises(Invalid, match="merged log files of version 10"):
        table.rollback(done.compactions[-1])
    with pytest.raises(Invalid, match="of that time are log files of version 10"):
        table.restore(point.instant)
    table.upgrade(10)
    table.restore(point.instant)
    assert content(mainstem.open_table(table.path)).equals(shown)


def test_a_downgrade_that_dies_anywhere_is_ended_by_the_next(tmp_path: Path) -> None:
    table = newer(tmp_path / "t", **{"hoodie.metadata.enable": "true"})
    before, at, died, seen = without_seqno(table), 0, True, set()
    while died:
        at += 7
        copy = mainstem.open_table(shutil.copytree(table.path, tmp_path / f"copy{at}"))
        died = dying(copy, at, False, to=9)
        entered(copy)
        aged(copy)
        seen.add(version(copy.path))
        again = mainstem.open_table(copy.path)
        assert without_seqno(again).equals(before)
        if version(copy.path)[0] == 10:
            again.downgrade(9)
        assert version(copy.path) == (9, 9)
        assert without_seqno(mainstem.open_table(copy.path)).equals(before)
        shutil.rmtree(copy.path)
    assert {(10, 10), (9, 9)} <= seen


def test_an_upgrade_is_asked_for_by_the_options_of_a_job_as_in_hudi(tmp_path: Path) -> None:
    table, asks = older(tmp_path / "t"), {"hoodie.write.table.version": "9"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mainstem.open_table(table.path, asks).upsert(rows([30], 3))  # the table says: no upgrades
    assert any("auto.upgrade=false" in str(one.message) for one in caught)
    assert version(table.path)[0] == 8
    mainstem.open_table(table.path, {**asks, "hoodie.write.auto.upgrade": "true"}).scan()
    assert version(table.path)[0] == 8  # a reader upgrades nothing
    mainstem.open_table(table.path, {**asks, "hoodie.write.auto.upgrade": "true"}).upsert(rows([31], 3))
    assert version(table.path)[0] == 9
    assert {"k30", "k31"} <= set(content(mainstem.open_table(table.path))["id"].to_pylist())


def test_versions_that_no_table_is_given_are_refused_by_name(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    for asked, error, words in (
        (11, Unsupported, "gives 9 and 10 to tables; use a newer mainstem"),
        (8, Invalid, r"the table has version 9: downgrade\(8\)"),
        ("10", Invalid, "expected a table version"),
    ):
        with pytest.raises(error, match=words):
            table.upgrade(asked)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="bring it back with Hudi"):
        table.downgrade(8)
    assert version(table.path) == (9, None)


def test_keys_of_one_field_that_are_not_written_as_in_version_9_stay_at_version_8(tmp_path: Path) -> None:
    schema = SCHEMA.append(SCHEMA.field("value").with_name("hour"))
    table = mainstem.create_table(
        tmp_path / "t", schema, record_key="id", partition_by=["city", "hour"], buckets=1, table_version=8,
        properties={"hoodie.table.complex.keygen.encoding": "VALUE_ONLY"},
    )  # fmt: skip
    with pytest.raises(Unsupported, match=r"VALUE_ONLY.*would double its keys"):
        table.upgrade(9)


def test_the_command_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = older(tmp_path / "t")
    assert main(["upgrade", table.path, "--to", "9"]) == 0
    assert "the table has version 9, and had 8, after the compaction" in capsys.readouterr().out
    assert main(["upgrade", table.path, "--to", "9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["after"] == 9
    assert main(["upgrade", table.path, "--to", "12"]) == 1
    assert "use a newer mainstem" in capsys.readouterr().err


def test_a_job_that_names_the_version_before_an_upgrade_goes_on_and_starts_again(tmp_path: Path) -> None:
    path, asks = tmp_path / "t", {"hoodie.write.table.version": "9"}
    table = make(path)
    job = mainstem.open_table(path, asks)
    job.upsert(rows([1], 1))
    table.upgrade(10)
    job.upsert(rows([2], 2))
    mainstem.open_table(path, asks).upsert(rows([3], 3))
    assert version(path)[0] == 10
    assert {"k01", "k02", "k03"} <= set(content(mainstem.open_table(path))["id"].to_pylist())
    wanted = WriteOptions.parse({**asks, "hoodie.table.name": table.config.name}, path=str(path))
    assert contradiction(wanted, mainstem.open_table(path).config) is None
    make(tmp_path / "new", hoodie__write__table__version="10")
    with pytest.raises(Invalid, match="contradicts the table"):  # which never had that version
        mainstem.open_table(tmp_path / "new", asks).upsert(rows([1], 1))
