"""Goal: the indexes of a table are seen as they are, and dropped in one step from which nobody finds them,
whoever dies or stops on the way.

Method: tables that Java wrote, in every state of Java's own index builds, are looked at and their indexes
dropped: by a process that dies at every call that changes the file system and is followed by another, and
by one that stands still before it removes files. Rows are compared with those before.
"""

from __future__ import annotations

import json
import threading
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.cli.main import main
from mainstem.errors import CorruptTable, Invalid, LeaseLost, Unavailable
from mainstem.indexing import dropping as dropping
from mainstem.indexing.dead_builds import end_dead_builds
from mainstem.indexing.dropping import instant_of
from mainstem.layout.properties import load_config
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.publish.publisher import Publisher
from mainstem.services.claim import claim
from mainstem.services.metadata import metadata_compaction
from mainstem.storage import paths
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.index_records import IndexBuild, encode_index_plan
from tests.golden_tables import tables
from tests.indexing.dying import deaths
from tests.storage.steps import storage_at

pytestmark = pytest.mark.supports("Indexes", "builds: listed, built, rebuilt and dropped while writers run")

GIVEN = {
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.index.type": "BUCKET",
    "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.mainstem.fsync": "false",
}
DEFINITIONS = ".hoodie/.index_defs/index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of Java's with column and partition statistics."""
    return tables.unpack("nbcc_two_writers_mdt", tmp_path)


def opened(path: Path) -> mainstem.Table:
    return mainstem.open_table(path, GIVEN)


def listed(path: Path) -> list[str]:
    return list(load_config(storage_at(path)).metadata_partitions)


def files_of(path: Path, partition: str) -> list[str]:
    """Data files of an index."""
    found = (path / ".hoodie/metadata" / partition).glob("*")
    return sorted(f.name for f in found if instant_of(partition, f.name))


def rows(path: Path, **query: object) -> list[dict]:
    found = opened(path).scan(**query).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["_hoodie_record_key"])


def states(path: Path) -> dict[str, str]:
    return {index.name: index.state for index in opened(path).indexes()}


# ------------------------------------------------------------------------------------------ seeing


def test_every_kind_of_index_is_listed_with_what_it_is_on(tmp_path):
    found = {i.name: i for i in opened(tables.unpack("mdt_all", tmp_path)).indexes()}
    assert {name: i.kind for name, i in found.items()} == {
        "files": "files", "bloom_filters": "bloom_filters", "column_stats": "column_stats", "partition_stats":
        "partition_stats", "record_index": "record_index", "idx_sec": "secondary_index", "idx_exp":
        "expr_index", "idx_bf": "expr_index",
    }  # fmt: skip
    assert found["idx_sec"].columns == ("name",) and found["idx_sec"].partition == "secondary_index_idx_sec"
    assert found["idx_exp"].columns == ("ts",) and found["idx_exp"].function == "from_unixtime"
    assert found["idx_exp"].options["format"] == "yyyy-MM-dd"
    assert found["column_stats"].columns[-2:] == ("price", "ts")
    # Java failed to build this one and left its plan.
    assert found["idx_bf"].state == "planned" and found["idx_bf"].action == "20261120094450359"
    assert {i.state for name, i in found.items() if name != "idx_bf"} == {"ready"}


@pytest.mark.parametrize(
    ("copy", "column_stats", "partition_stats"),
    [
        ("async_index.requested", "planned", "planned"),
        ("async_index.inflight", "building", "building"),
        ("async_index.inflight2", "building", "building"),
        ("async_index", "ready", "ready"),
    ],
)
def test_an_index_that_java_builds_is_ready_only_when_its_action_is_completed(
    tmp_path, copy, column_stats, partition_stats
):
    base = tables.unpack(copy, tmp_path)
    expected = {"files": "ready", "column_stats": column_stats, "partition_stats": partition_stats}
    assert states(base) == expected


def test_a_table_without_metadata_has_no_indexes(tmp_path):
    assert opened(tables.unpack("basic_mor", tmp_path)).indexes() == []


def test_a_list_that_names_a_build_nobody_does_and_a_definition_without_index_are_left_over(folder):
    text = (folder / paths.PROPERTIES).read_text()
    inflight = "hoodie.table.metadata.partitions.inflight="
    (folder / paths.PROPERTIES).write_text(text.replace(inflight, inflight + "record_index"))
    found = json.loads((folder / DEFINITIONS).read_text())
    found["indexDefinitions"]["secondary_index_x"] = {"indexName": "secondary_index_x"}
    (folder / DEFINITIONS).write_text(json.dumps(found))
    assert states(folder)["record_index"] == states(folder)["x"] == "left over"
    for name in ("record_index", "x"):
        assert opened(folder).drop_index(name).files == 0
    assert set(states(folder)) == {"files", "column_stats", "partition_stats"}


@pytest.mark.parametrize("text", ["{", "[]", '{"indexDefinitions": []}', '{"indexDefinitions": {"a": 1}}',
                                  '{"indexDefinitions": {"a": {"sourceFields": [1]}}}',
                                  '{"indexDefinitions": {"a": {"indexOptions": 7}}}'])  # fmt: skip
def test_damaged_definitions_are_refused_and_nothing_is_dropped(folder, text):
    (folder / DEFINITIONS).write_text(text)
    before = listed(folder)
    with pytest.raises(CorruptTable, match=r"index\.json"):
        opened(folder).drop_index("partition_stats")
    assert listed(folder) == before


# ---------------------------------------------------------------------------------------- dropping


def test_a_dropped_index_is_in_no_list_has_no_definition_and_no_file(folder):
    before = rows(folder)
    assert files_of(folder, "partition_stats") and files_of(folder, "column_stats")
    counted = len(files_of(folder, "partition_stats"))
    assert opened(folder).drop_index("partition_stats").files == counted
    assert listed(folder) == ["column_stats", "files"] and not files_of(folder, "partition_stats")
    assert files_of(folder, "column_stats")
    opened(folder).drop_index("column_stats")
    assert listed(folder) == ["files"] and not files_of(folder, "column_stats")
    assert "column_stats" not in (folder / DEFINITIONS).read_text()
    assert states(folder) == {"files": "ready"} and rows(folder) == before
    assert "#Updated at" in (folder / paths.PROPERTIES).read_text()


def test_definitions_of_others_stay_byte_for_byte(folder):
    text = (folder / DEFINITIONS).read_text()
    found = json.loads(text)
    found["indexDefinitions"]["secondary_index_x"] = {"indexName": "secondary_index_x", "new": [1, {}, []]}
    (folder / DEFINITIONS).write_text(json.dumps(found))
    opened(folder).drop_index("x")
    left = (folder / DEFINITIONS).read_text()
    # A store appends white space, by which each state of the file is told from others.
    assert (left.rstrip() if has_swaps(storage_at(folder)) else left) == text


def test_what_another_index_needs_stays(folder):
    before = listed(folder)
    with pytest.raises(Invalid, match="cannot be without column_stats: drop partition_stats first"):
        opened(folder).drop_index("column_stats")
    assert listed(folder) == before


@pytest.mark.parametrize("name", ["files", "nothing", "", " ", "../files"])
def test_what_is_no_index_is_not_dropped(folder, name):
    with pytest.raises(Invalid, match="index"):
        opened(folder).drop_index(name)
    if name.strip() and name != "files":
        assert opened(folder).drop_index(name, if_exists=True) is None
    assert listed(folder) == ["column_stats", "files", "partition_stats"]


# ------------------------------------------------------------------------ the metadata table itself

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
ON = {"hoodie.metadata.enable": "true", "hoodie.mainstem.exclusive": "true", "hoodie.mainstem.fsync": "false"}


def with_metadata(path: Path) -> mainstem.Table:
    table = mainstem.create_table(path, SCHEMA, record_key="id", buckets=2, properties=ON)
    table.upsert(made_of(1, 2, 3))
    return table


def made_of(*ids: int) -> pa.Table:
    return pa.table([pa.array(ids, pa.int64())] * 2, schema=SCHEMA)


@pytest.mark.supports("Indexes", "metadata table: switched off and on again while writers run")
def test_the_metadata_table_is_switched_off_and_on_again_while_a_writer_is_at_work(tmp_path):
    table = with_metadata(tmp_path / "t")
    at_work, later = table.begin("upsert"), table.begin("upsert")
    at_work.write(made_of(3, 4))
    later.write(made_of(5))
    assert table.drop_index("files").files == 3
    at_work.commit()
    assert listed(tmp_path / "t") == [] and states(tmp_path / "t") == {}
    assert mainstem.open_table(tmp_path / "t").properties["hoodie.metadata.enable"] == "false"
    assert ids_of(tmp_path / "t") == [1, 2, 3, 4]
    table.create_index("files")
    later.commit()
    table.upsert(made_of(6))
    report = table.validate_metadata()
    assert report is not None and report.ok
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is listed from folders
        assert ids_of(tmp_path / "t") == [1, 2, 3, 4, 5, 6]


def ids_of(path: Path) -> list[int]:
    return sorted(mainstem.open_table(path).scan(columns=["id"]).to_arrow()["id"].to_pylist())


def test_the_metadata_table_stays_while_an_index_rests_on_it(tmp_path):
    table = with_metadata(tmp_path / "t")
    table.create_index("column_stats")
    with pytest.raises(Invalid, match="column_stats cannot be without files: drop column_stats first"):
        table.drop_index("files")
    assert listed(tmp_path / "t") == ["column_stats", "files"]


def test_a_query_that_lists_files_while_they_are_dropped_misses_none(tmp_path, monkeypatch):
    table = with_metadata(tmp_path / "t")
    table.upsert(made_of(4))
    real = MetadataTable.files

    def late(self, keeps=None):
        monkeypatch.setattr(MetadataTable, "files", real)
        mainstem.open_table(tmp_path / "t").drop_index("files")
        return {"": {}}  # what a listing saw whose log files went first

    monkeypatch.setattr(MetadataTable, "files", late)
    assert ids_of(tmp_path / "t") == [1, 2, 3, 4]


def test_whoever_dies_while_it_switches_the_metadata_table_off_leaves_it_on_or_off(tmp_path):
    with_metadata(tmp_path / "t")
    seen = set()
    for copy in deaths(tmp_path / "t", tmp_path, lambda ctx: dropping.drop(ctx, "files"), GIVEN):
        seen.add(tuple(listed(copy)))
        assert ids_of(copy) == [1, 2, 3]
        table = opened(copy)
        if not listed(copy):
            table.create_index("files")
        table.upsert(made_of(4))
        report = table.validate_metadata()
        assert report is not None and report.ok
    assert seen == {("files",), ()}


def test_a_short_name_that_two_indexes_share_must_be_said_in_full(folder):
    found = json.loads((folder / DEFINITIONS).read_text())
    for partition in ("secondary_index_x", "expr_index_x"):
        found["indexDefinitions"][partition] = {"indexName": partition}
    (folder / DEFINITIONS).write_text(json.dumps(found))
    with pytest.raises(Invalid, match="say which"):
        opened(folder).drop_index("x")
    opened(folder).drop_index("expr_index_x")
    assert "secondary_index_x" in (folder / DEFINITIONS).read_text()
    opened(folder).drop_index("x")
    assert "secondary_index_x" not in (folder / DEFINITIONS).read_text()


@pytest.mark.parametrize("copy", ["requested", "inflight", "inflight2"])
def test_a_build_of_javas_is_left_to_java_by_rounds_of_services(tmp_path, copy):
    base = tables.unpack(f"async_index.{copy}", tmp_path)
    before = states(base)
    assert "building" in before.values() or "planned" in before.values()
    assert list(end_dead_builds(opened(base).index_context())) == []
    assert states(base) == before


@pytest.mark.parametrize("copy", ["requested", "inflight", "inflight2"])
def test_a_build_of_javas_that_that_died_is_cleared_away(tmp_path, copy):
    base = tables.unpack(f"async_index.{copy}", tmp_path)
    before = rows(base)
    action = "20261120093446897"
    dropped = opened(base).drop_index("partition_stats")
    assert dropped.actions == (action,) and "ended" in dropped.describe()
    # The plan named both, and nobody would bring the other one up to date any more.
    assert dropped.others == ("column_stats",) and "with it column_stats" in dropped.describe()
    assert listed(base) == ["files"] and states(base) == {"files": "ready"}
    for partition in ("column_stats", "partition_stats"):
        assert not files_of(base, partition)
    left = [f.name for f in base.rglob(f"*{action}*")]
    assert left == [] and rows(base) == before


def test_beside_a_pending_compaction_of_the_metadata_table_nothing_is_dropped(folder, monkeypatch):
    monkeypatch.setattr(dropping, "WAIT_MS", 300)
    plan = folder / paths.METADATA_TIMELINE / "20991120093446897.compaction.requested"
    plan.write_bytes(b"")
    before = listed(folder)
    with pytest.raises(Unavailable, match="let it complete"):
        opened(folder).drop_index("partition_stats")
    assert listed(folder) == before and files_of(folder, "partition_stats")


def test_a_drop_waits_while_somebody_else_compacts_the_metadata_table(folder):
    other = opened(folder).writer_context()
    time = metadata_compaction.schedule(other, if_due=False)
    assert time is not None and claim(other, time)
    ends = threading.Timer(0.3, other.heartbeats.stop, [time])
    ends.start()
    assert opened(folder).drop_index("partition_stats").files
    ends.join()
    assert "partition_stats" not in listed(folder) and not files_of(folder, "partition_stats")
    assert opened(folder).validate_metadata().ok


def test_files_that_are_no_data_files_of_the_index_stay(folder):
    strange = folder / ".hoodie/metadata/partition_stats/notes.txt"
    strange.write_text("mine")
    other = folder / ".hoodie/metadata/partition_stats/files-0000-0_0-0-0_20260101000000000.hfile"
    other.write_text("mine")
    opened(folder).drop_index("partition_stats")
    assert strange.exists() and other.exists()


STAY = {"files": "ready", "column_stats": "ready"}


def test_a_process_that_dies_at_any_call_leaves_the_index_whole_or_gone_and_the_next_ends_it(folder,
tmp_path):
    before = rows(folder)
    whole = files_of(folder, "partition_stats")
    seen = set()
    for copy in deaths(folder, tmp_path, lambda ctx: dropping.drop(ctx, "partition_stats"), GIVEN):
        there = "partition_stats" in listed(copy)
        assert not there or files_of(copy, "partition_stats") == whole
        assert rows(copy) == rows(copy, filter=pc.field("ts") >= 0) == before
        seen.add(there)
        opened(copy).drop_index("partition_stats", if_exists=True)
        assert "partition_stats" not in listed(copy) and states(copy) == STAY
        assert not files_of(copy, "partition_stats")
    assert seen == {True, False}


def test_a_dropper_that_stood_still_removes_no_file_that_was_made_since(folder, monkeypatch):
    remove = dropping._remove

    def late(ctx, names, actions):
        # The index is there again, and a writer that was in flight all the time has written to it.
        again = folder / ".hoodie/metadata/partition_stats"
        (again / "partition-stats-0000-0_0-0-0_20991120093446897.hfile").write_bytes(b"new")
        (again / f".partition-stats-0000-0_{pending}.log.1_0-0-0").write_bytes(b"new")
        return remove(ctx, names, actions)

    pending = "20981120093446897"
    for state in ("requested", "inflight"):
        (folder / paths.timeline_file(f"{pending}.deltacommit.{state}")).write_bytes(b"")
    half_made = folder / f".hoodie/metadata/partition_stats/.partition-stats-0000-0_{pending}.log.1_0-0-0"
    half_made.write_bytes(b"old")
    monkeypatch.setattr(dropping, "_remove", late)
    opened(folder).drop_index("partition_stats")
    assert len(files_of(folder, "partition_stats")) == 2 and half_made.read_bytes() == b"new"


def test_a_plan_that_names_no_partition_of_hudi_can_be_dropped(folder):
    plan = folder / paths.timeline_file("20991120093446897.indexing.requested")
    plan.write_bytes(encode_index_plan([IndexBuild("vector_index_x", "")]))
    (index,) = [i for i in opened(folder).indexes() if i.partition == "vector_index_x"]
    assert index.kind == "unknown" and index.state == "planned"
    opened(folder).drop_index("vector_index_x")
    assert not plan.exists()


# ---------------------------------------------------------------------------------------- commands


def test_the_commands_list_and_drop(folder, capsys):
    options = [word for item in GIVEN.items() for word in ("-o", "=".join(item))]
    assert main(["index", "list", str(folder)]) == 0
    assert "partition_stats: partition_stats, ready" in capsys.readouterr().out
    assert main(["index", "list", str(folder), "--json"]) == 0
    (shown, *_) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert shown["name"] == "column_stats" and shown["columns"][0] == "_hoodie_commit_time"
    assert main(["index", "drop", str(folder), "partition_stats", *options]) == 0
    assert "index partition_stats dropped" in capsys.readouterr().out
    assert main(["index", "drop", str(folder), "partition_stats", *options]) == 1
    assert "no index is called 'partition_stats'; there are: column_stats, files" in capsys.readouterr().err
    assert main(["index", "drop", str(folder), "partition_stats", "--if-exists", *options]) == 0
    assert main(["index"]) == 2


@pytest.mark.parametrize("dies", ["before the metadata table's file", "before its own"])
def test_what_an_earlier_attempt_wrote_for_a_dropped_index_goes_once_the_action_is_completed(
    tmp_path, monkeypatch, dies
):
    table = with_metadata(tmp_path / "t")
    table.create_index("column_stats")
    table.upsert(made_of(1, 2, 3))

    class Died(BaseException):
        pass

    def die(*given):
        raise Died

    def die_at_the_end(self, link, linked, target, folders):
        if target.endswith(".commit"):
            raise Died
        return whole(self, link, linked, target, folders)

    whole = Publisher._link
    with monkeypatch.context() as patched, pytest.raises(Died):
        if dies == "before its own":
            patched.setattr(Publisher, "_link", die_at_the_end)
        else:
            patched.setattr(Publisher, "_go_ahead", die)
        table.compact()
    (pending,) = {i.requested for i in table.timeline() if not i.completion}
    table.drop_index("column_stats")
    (left,) = {instant_of("column_stats", name) for name in files_of(tmp_path / "t", "column_stats")}
    assert left == pending
    table.compact()
    assert not files_of(tmp_path / "t", "column_stats")
    report = table.validate_metadata()
    assert report is not None and report.ok, report.differences


def test_a_writer_that_was_overtaken_by_a_dropper_leaves_nothing_in_the_dropped_index(tmp_path, monkeypatch):
    table = with_metadata(tmp_path / "t")
    table.create_index("column_stats")
    other, ahead, overtaken = mainstem.open_table(tmp_path / "t"), Publisher._go_ahead, []

    def once(self, *given):
        if overtaken:
            return ahead(self, *given)
        overtaken.append("now")
        raise LeaseLost("overtaken")

    def dropped_first(self):
        if overtaken == ["now"]:
            overtaken.append("dropped")
            other.drop_index("column_stats")
        return acquire(self)

    acquire = type(table.opened.seams.lock).acquire
    monkeypatch.setattr(Publisher, "_go_ahead", once)
    monkeypatch.setattr(type(table.opened.seams.lock), "acquire", dropped_first)
    assert table.upsert(made_of(7)).status == "committed"
    assert overtaken == ["now", "dropped"] and not files_of(tmp_path / "t", "column_stats")
    report = table.validate_metadata()
    assert report is not None and report.ok, report.differences
