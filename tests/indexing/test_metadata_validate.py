"""Goal: ``validate`` finds every way in which a metadata table can differ from the data, and nothing else.

Method: Java's own tables are compared first: what differs is exactly the checked-in list of Java's defects.
Then one of them is damaged in one place at a time, and the damage must be named; and files are taken away
while the comparison runs, as a clean does.
"""

from __future__ import annotations

import json
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.cli.main import main
from mainstem.errors import CorruptTable, Unavailable
from mainstem.indexing.check_keys import check_blooms
from mainstem.indexing.differences import PartitionReport
from mainstem.indexing.expected_contents import Contents
from mainstem.indexing.spill import spilled
from mainstem.indexing.validate import validate_metadata
from mainstem.layout.properties import load_config
from mainstem.metadata.metadata_table import open_metadata
from mainstem.readers.planning.table_state import TableState
from mainstem.services import cleaning
from mainstem.timeline.clean_records import load_clean_plan
from tests.golden_tables.tables import GOLDEN, NAMES, expectations, unpack
from tests.services.city_table import QUICK, layered, make, rows
from tests.storage.steps import Proxy, storage_at

DEFECTS = json.loads((GOLDEN / "metadata_defects.json").read_text("utf-8"))
WITH_METADATA = [
    name for name in NAMES if expectations(name)["table_config"].get("hoodie.table.metadata.partitions")
]
READY = "hoodie.table.metadata.partitions"
ALL = "mdt_all"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    return tmp_path_factory.mktemp("validated")


@pytest.fixture
def path(unpacked, tmp_path) -> Path:
    """A copy of the table with every kind of partition, to be damaged."""
    return Path(shutil.copytree(unpack(ALL, unpacked), tmp_path / ALL))


def validated(path: Path, **options):
    found = validate_metadata(storage_at(path), damaged="skip", **options)
    assert found is not None
    return found


def kinds(report) -> set[tuple[str, str]]:
    return {(p.partition, kind) for p in report.partitions for kind, n in p.counts.items() if n}


def change_property(path: Path, key: str, value: str) -> None:
    file = path / ".hoodie/hoodie.properties"
    lines = [line for line in file.read_text("utf-8").splitlines() if not line.startswith(f"{key}=")]
    file.write_text("\n".join([*lines, f"{key}={value}"]) + "\n", "utf-8")


def newest_log(path: Path, partition: str) -> Path:
    logs = (path / ".hoodie/metadata" / partition).glob(".*.log.*")
    return max(logs, key=lambda file: file.name.split("_")[1])


# ------------------------------------------------------------------------------------ Java's tables


@pytest.mark.versions
@pytest.mark.parametrize("name", WITH_METADATA)
@pytest.mark.supports("Indexes", "metadata table: every partition compared with the data")
def test_javas_metadata_differs_from_the_data_where_the_list_says_so(name, unpacked):
    report = validated(unpack(name, unpacked), kept=1000)
    found = {(d.partition, d.kind, d.key) for d in report.differences}
    expected = {(d["partition"], d["kind"], k) for d in DEFECTS if d["table"] == name for k in d["keys"]}
    assert found == expected
    assert report.ok == (not expected)
    assert not [p.partition for p in report.partitions if p.refused]


def test_the_list_of_defects_names_tables_that_exist_and_a_rule():
    assert {d["table"] for d in DEFECTS} <= set(WITH_METADATA)
    assert all(len(d["rule"]) > 40 and d["keys"] for d in DEFECTS)


def test_a_table_without_metadata_has_no_report(unpacked):
    assert mainstem.open_table(unpack("basic_mor", unpacked)).validate_metadata() is None


# ----------------------------------------------------------------------------------------- damages


def test_a_log_of_the_record_index_that_is_gone_leaves_keys_missing(path):
    newest_log(path, "record_index").unlink()
    assert ("record_index", "missing") in kinds(validated(path))


def test_two_file_groups_that_were_exchanged_are_misplaced(path):
    for partition in ("record_index", "secondary_index_idx_sec"):
        folder = path / ".hoodie/metadata" / partition
        first, second = ([f for f in folder.iterdir() if f"-{n:04d}-0_" in f.name] for n in (0, 1))
        for files, old, new in ((first, "-0000-0_", "-0009-0_"), (second, "-0001-0_", "-0000-0_")):
            for file in files:
                file.rename(folder / file.name.replace(old, new))
        for file in list(folder.iterdir()):
            file.rename(folder / file.name.replace("-0009-0_", "-0001-0_"))
    found = kinds(validated(path))
    assert {("record_index", "misplaced"), ("record_index", "missing")} <= found
    assert ("secondary_index_idx_sec", "misplaced") in found


def test_a_data_file_that_is_gone_is_a_surplus_of_every_partition_that_names_it(path):
    next((path / "rome").glob("7cb8e0d5*.parquet")).unlink()
    found = kinds(validated(path))
    for partition in ("files", "column_stats", "bloom_filters", "expr_index_idx_exp"):
        assert (partition, "surplus") in found
    assert ("record_index", "extra") in found
    assert ("secondary_index_idx_sec", "extra") in found


def test_statistics_of_columns_that_the_index_is_not_on_are_left_over_whatever_is_cleaned(tmp_path):
    """As Java's writers leave them: their own options say of which columns they keep statistics."""
    table = layered(make(tmp_path / "t", hoodie__clean__commits__retained="1"))
    table.create_index("partition_stats")
    index = tmp_path / "t/.hoodie/.index_defs/index.json"
    known = json.loads(index.read_text("utf-8"))
    known["indexDefinitions"]["column_stats"]["sourceFields"].remove("value")
    index.write_text(json.dumps(known), "utf-8")
    table = mainstem.open_table(table.path, QUICK | {"hoodie.clean.commits.retained": "1"})
    for ts in (50, 60):
        table.upsert(rows(range(8), ts))
        table.compact()
    assert table.clean()
    report = table.validate_metadata()
    assert report.ok, report.differences
    assert {"column_stats", "partition_stats"} == {p for p, kind in kinds(report) if kind == "left over"}
    table.drop_index("partition_stats")
    table.reindex("column_stats")
    assert "left over" not in {kind for _, kind in kinds(table.validate_metadata())}


def test_a_data_file_of_another_size_is_different(path):
    file = sorted((path / "paris").glob(".*.log.*"))[0]
    file.write_bytes(file.read_bytes() + bytes(10))
    report = validated(path)
    (found,) = report.differences
    assert (found.partition, found.kind, found.key) == ("files", "different", f"paris/{file.name}")
    assert f"{file.stat().st_size - 10} bytes, but it has {file.stat().st_size}" in found.detail


def test_a_damaged_data_file_is_an_error_with_its_path(path):
    file = sorted((path / "paris").glob("*.parquet"))[0]
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(CorruptTable, match=file.name):
        validated(path)


def test_a_file_of_a_pending_instant_is_not_expected(path):
    completed = next((path / ".hoodie/timeline").glob("20261120094537280_*.deltacommit"))
    completed.unlink()
    assert validated(path).ok


@pytest.mark.parametrize("partition", ["column_stats", "expr_index_idx_exp", "files"])
def test_a_log_of_statistics_or_files_that_is_gone_leaves_rows_missing(path, partition):
    newest_log(path, partition).unlink()
    assert (partition, "missing") in kinds(validated(path))


def test_partitions_without_folders_and_folders_without_partitions_are_told(path):
    listed = expectations(ALL)["table_config"][READY].split(",")
    change_property(path, READY, ",".join({*listed, "secondary_index_gone"} - {"bloom_filters"}))
    change_property(path, f"{READY}.inflight", "expr_index_dead")
    report = validated(path)
    found = {(d.kind, d.key) for d in report.differences if not d.partition}
    assert found == {
        ("no folder", "secondary_index_gone"),
        ("unlisted", "bloom_filters"),
        ("stale", "expr_index_dead"),
    }
    assert ("secondary_index_gone", "undefined") in kinds(report)


def test_a_filter_that_lost_keys_is_different_and_a_larger_one_is_not(path):
    metadata, contents = opened(path)
    stored = metadata.read("bloom_filters")
    report = PartitionReport("bloom_filters")
    check_blooms(report, contents, stored, frozenset())
    assert not report.counts
    turned = stored["bloom"].take(pa.array([*range(1, stored.num_rows), 0]))
    check_blooms(report, contents, stored.set_column(3, "bloom", turned), frozenset())
    assert report.counts["different"] >= 1


def test_an_expression_that_cannot_be_computed_is_refused_by_name(path):
    file = path / ".hoodie/.index_defs/index.json"
    file.write_text(file.read_text("utf-8").replace("from_unixtime", "regexp_replace"), "utf-8")
    report = validated(path)
    (refused,) = [p for p in report.partitions if p.refused]
    assert refused.partition == "expr_index_idx_exp"
    assert "regexp_replace" in refused.refused
    assert not report.ok


def opened(path: Path):
    storage = storage_at(path)
    config = load_config(storage)
    state = TableState.load(storage, config)
    return open_metadata(storage, config, state.timeline), Contents(state)


# --------------------------------------------------------------------------------- beside a clean


class Cleaned(Proxy):
    """Takes a file of the view away when it is read, ``times`` times, as a clean would."""

    times = 0

    def view(self, path: str) -> memoryview:
        if self.times and not path.startswith(".hoodie"):
            self.times -= 1
            number = 20300101000000000 + self.times
            (Path(self.base) / f".hoodie/timeline/{number}.clean.requested").write_bytes(b"")
            raise FileNotFoundError(path)
        return self.inner.view(path)


def test_a_file_that_a_clean_removes_makes_the_comparison_begin_again(path):
    storage = Cleaned(storage_at(path))
    storage.times = 2
    report = validate_metadata(storage)
    assert report is not None and report.ok


def test_a_clean_at_every_attempt_is_an_error_that_says_so(path):
    storage = Cleaned(storage_at(path))
    storage.times = 1000
    with pytest.raises(Unavailable, match="try again when no clean is running"):
        validate_metadata(storage)


class CleanedEachTime(Proxy):
    """A clean ends whenever the view's data files are looked at."""

    number = 20300101000000000

    def entries(self, folder: str, **options):
        if not folder.startswith(".hoodie"):
            self.number += 2
            (Path(self.base) / f".hoodie/timeline/{self.number - 1}_{self.number}.clean").write_bytes(b"")
        return self.inner.entries(folder, **options)


def test_what_cleans_that_ended_may_have_removed_is_never_told_as_a_difference(path):
    newest_log(path, "record_index").unlink()
    report = validate_metadata(storage_at(path))
    assert report is not None and not report.ok
    with pytest.raises(Unavailable, match="try again when no clean is running"):
        validate_metadata(CleanedEachTime(storage_at(path)))


def test_nothing_differs_beside_writers_compactions_and_cleans(tmp_path):
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
    options = {"hoodie.metadata.enable": "true", "hoodie.mainstem.exclusive": "true"}
    own = {"hoodie.mainstem.fsync": "false", "hoodie.clean.commits.retained": "1"}
    path = tmp_path / "t"
    mainstem.create_table(path, schema, record_key="id", partition_by="city", buckets=2, properties=options)
    ended, failed = threading.Event(), []

    def write() -> None:
        table = mainstem.open_table(path, properties=own)
        n = 0
        try:
            while not ended.is_set():
                n += 1
                keys = [f"k{i}" for i in range(10)]
                rows = {"id": keys, "city": ["a", "b"] * 5, "n": [n] * 10}
                table.upsert(pa.table(rows, schema))
                if n % 3 == 0:
                    table.compact()
                    table.clean()
        except Exception as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = []
        while len({r.instant for r in reports}) < 12 and not failed:
            with suppress(Unavailable):  # cleans may be quicker than a comparison on a busy machine
                reports.append(mainstem.open_table(path).validate_metadata())
    finally:
        ended.set()
        writer.join()
    assert failed == []
    assert [r.differences for r in reports if not r.ok] == []


# ------------------------------------------------------------------------------------- the command


def test_the_command_ends_with_one_where_something_differs(path, capsys):
    assert main(["metadata", "validate", str(path)]) == 0
    assert "no differences" in capsys.readouterr().out
    newest_log(path, "record_index").unlink()
    assert main(["metadata", "validate", str(path), "--format", "json", "--limit", "1"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counts = {line["partition"]: line["counts"] for line in lines if "counts" in line}
    assert counts["record_index"]["missing"] >= 1
    assert counts["files"] == {}
    assert [line["partition"] for line in lines if "difference" in line] == ["record_index"]


def test_keys_that_are_put_on_disk_give_the_same_answer(path):
    newest_log(path, "record_index").unlink()
    with spilled(str(path.parent)) as keep:
        report = validated(path, keep=keep)
    assert kinds(report) == kinds(validated(path))
    assert [p for p in path.parent.iterdir() if p.name.startswith("mainstem-keys")] == []


def test_a_clean_that_stopped_half_way_is_said_to_have_also_beside_an_index_build_that_died(tmp_path):
    table = layered(make(tmp_path / "t", hoodie__clean__commits__retained="1"))
    table.create_index("column_stats")
    table = mainstem.open_table(table.path, QUICK | {"hoodie.clean.commits.retained": "1"})
    for ts in (50, 60):
        table.upsert(rows(range(8), ts))
        table.compact()
    ctx = table.writer_context()
    time = cleaning.schedule(ctx)
    for partition, names in load_clean_plan(ctx.seams.storage, time).files.items():
        for name in names:
            (tmp_path / "t" / partition / name).unlink()
    change_property(tmp_path / "t", "hoodie.table.metadata.partitions.inflight", "bloom_filters")
    with pytest.raises(Unavailable, match=f"the clean {time} is not finished"):
        table.validate_metadata()
    assert table.clean()
    assert kinds(table.validate_metadata()) == {("", "stale")}
