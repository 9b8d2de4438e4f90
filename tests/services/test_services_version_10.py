"""Goal: every service does to a table of version 10 what it does to one of version 9, and leaves native
files.

Method: one history of writes and services on tables of version 9 and of both layouts of version 10, with and
without a metadata table, compared after each step; tables that Java 1.3 wrote, of native and of mixed logs,
are compacted and cleaned; the files that services leave are looked at. tests/interop asks Java.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.errors import CorruptTable, Unsupported
from mainstem.formats.hfile import open_hfile
from mainstem.formats.native_log import HEADER_KEY, KEPT_KEY
from mainstem.indexing.initial_rows import InitialRows
from mainstem.storage import paths
from mainstem.timeline.plans import load_compaction_plan
from tests.golden_tables.tables import encoded, expectations, unpack
from tests.storage.steps import storage_at

SCHEMA = pa.schema([
    ("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("name", pa.string()),
    ("_hoodie_is_deleted", pa.bool_()),
])  # fmt: skip
QUICK = {
    "hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false",
    "hoodie.mainstem.exclusive": "true", "hoodie.mainstem.services": "OFF",
}  # fmt: skip
KEYS = [f"k{number:02}" for number in range(30)] + ["\ufffd", "\U0001f600", "é"]
LAYOUTS = ("default", "lsm_tree")
KEY = "_hoodie_record_key"


def created(path: Path, version: int, layout: str = "default", **more: Any) -> mainstem.Table:
    properties = {**QUICK, **more.pop("properties", {})}
    if version == 10:
        properties["hoodie.table.storage.layout"] = layout
    kind = {"record_key": "id", "ordering": "ts", "partition_by": "city", "buckets": 2, **more}
    return mainstem.create_table(path, SCHEMA, properties=properties, table_version=version, **kind)


def rows(chance: random.Random, keys: list[str], step: int) -> pa.Table:
    return pa.table(
        {
            "id": keys, "city": ["rome" if key < "k15" else "oslo" for key in keys],
            "ts": [chance.randrange(step + 3) for _ in keys], "name": [f"n{step}"] * len(keys),
            "_hoodie_is_deleted": [not chance.randrange(5) for _ in keys],
        },
        SCHEMA,
    )  # fmt: skip


def content(table: mainstem.Table) -> list[dict[str, Any]]:
    found = mainstem.open_table(table.path).scan(columns=SCHEMA.names).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def data_files(path: Path) -> list[Path]:
    every = (file for file in path.rglob("*") if file.is_file())
    return [file for file in every if ".hoodie" not in str(file.relative_to(path))]


def history(table: mainstem.Table, logs: bool) -> Iterator[object]:
    """Writes and services; yields after each. ``logs``: logs are compacted, too."""
    chance = random.Random(3)
    for step in (1, 2, 3):
        yield table.upsert(rows(chance, sorted(chance.sample(KEYS, 18)), step))
    yield table.delete(rows(chance, KEYS[:3], 4).select(["id", "city"]))
    yield table.log_compact() if logs else None
    first, second = table.begin("upsert"), table.begin("upsert")
    second.write(rows(chance, KEYS[2:14], 5))
    first.write(rows(chance, KEYS[8:20], 6))
    second.commit()
    yield first.commit()
    yield table.log_compact() if logs else None
    yield table.compact()
    saved = table.savepoint()
    yield table.upsert(rows(chance, KEYS[::2], 3))
    yield table.compact()
    yield table.restore(saved.instant)
    yield table.resize(4)
    yield table.upsert(rows(chance, KEYS[::3], 7))
    yield table.compact()
    table.delete_savepoint(saved.instant)
    yield table.run_services(if_due=False)
    yield mainstem.open_table(table.path, {**QUICK, "hoodie.clean.commits.retained": "1"}).clean()


def check_files(path: Path, layout: str) -> None:
    """All logs are native, and files of an LSM tree are sorted."""
    for file in data_files(path):
        log = paths.parse_log_name(file.name)
        assert log is None or log.is_native, file
        if layout == "lsm_tree" and file.suffix == ".parquet":
            keys = pq.read_table(file)[KEY].cast(pa.binary())
            assert pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py() is not False, file


@pytest.mark.supports("Tables and layouts", "tables of version 10: all services")
@pytest.mark.parametrize("indexed", [False, True], ids=["", "with a metadata table"])
def test_services_do_the_same_as_on_a_table_of_version_9(tmp_path: Path, indexed: bool) -> None:
    tables = {
        name: created(
            tmp_path / name, version, layout,
            properties={"hoodie.metadata.enable": "true"} if indexed else {},
        )
        for name, version, layout in (
            ("nine", 9, ""), ("default", 10, "default"), ("lsm_tree", 10, "lsm_tree"),
        )
    }  # fmt: skip
    for table in tables.values() if indexed else ():
        table.create_index("column_stats", ["ts", "name"])
        table.create_index("record_index")
    runs = {name: history(table, logs=name != "lsm_tree") for name, table in tables.items()}
    for step, _ in enumerate(zip(*runs.values(), strict=True)):
        expected, *others = (content(table) for table in tables.values())
        assert others == [expected, expected], f"step {step}"
    for name in LAYOUTS:
        check_files(Path(tables[name].path), name)
        if indexed:
            report = mainstem.open_table(tables[name].path).validate_metadata()
            assert report is not None and report.ok, report
            check_metadata_files(Path(tables[name].path) / ".hoodie/metadata")


def check_metadata_files(path: Path) -> None:
    logs = [(file, log) for file in path.rglob("*.log.*") if (log := paths.parse_log_name(file.name))]
    assert logs and not list(path.rglob(".*.log.*"))
    for file, log in logs:
        found = open_hfile(memoryview(file.read_bytes()), path=file.name)
        header = json.loads(found.info[HEADER_KEY])
        assert header == {"VERSION": "2", "INSTANT_TIME": log.instant, "SCHEMA": found.schema_text}
        assert next(iter(header)) == "VERSION"
        first, last = (found.rows()[0][at].as_py() for at in (0, -1)) if found.entry_count else (b"", b"")
        assert (found.info["minRecordKey"], found.info["maxRecordKey"]) == (first, last)
    assert any(not open_hfile(memoryview(f.read_bytes()), path="f").entry_count for f, _ in logs)


# -- tables of Java ------------------------------------------------------------------------------------

JAVA = (
    "v10_basic_mdt.logs", "v10_lsm_tree_event.logs", "v10_upgraded_9_to_10_event.mixed",
    "v10_merge_into_partial.logs",
)  # fmt: skip


@pytest.mark.supports("Tables and layouts", "tables of version 10: compaction of native and mixed logs")
@pytest.mark.parametrize("name", JAVA)
def test_slices_that_java_wrote_are_compacted_and_cleaned(name: str, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    told = expectations(name)["writer_options"].items()
    own = {key: value for key, value in told if "bucket" in key or "index.type" in key}
    given = {**own, "hoodie.mainstem.timeline.zone": "UTC", "hoodie.mainstem.services": "OFF"}

    def answer() -> object:
        found = mainstem.open_table(path).scan().to_arrow()
        return encoded(found.drop_columns(["_hoodie_file_name"]))

    before = answer()
    table = mainstem.open_table(path, given)
    planned = table.schedule_compaction()
    assert planned is not None
    plan = load_compaction_plan(storage_at(path), planned)
    native = [paths.is_native_log(log) for operation in plan for log in operation.log_files]
    assert any(native) and all(native) == (".mixed" not in name)
    (done,) = table.run_compaction()
    assert done.completion is not None and answer() == before
    check_files(path, "lsm_tree" if "lsm" in name else "") if ".mixed" not in name else None
    report = mainstem.open_table(path).validate_metadata()
    assert report is None or report.ok
    one_version = {
        "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "1",
    }  # fmt: skip
    (cleaned,) = mainstem.open_table(path, {**given, **one_version}).clean()
    assert cleaned.deleted and answer() == before
    left = {paths.file_id_of(file.name): file for file in data_files(path) if paths.is_native_log(file.name)}
    assert not left


# -- log compaction ------------------------------------------------------------------------------------


def test_a_log_compaction_writes_rows_and_deletes_and_names_what_they_replace(tmp_path: Path) -> None:
    table = created(tmp_path / "t", 10, buckets=1, partition_by=())
    chance = random.Random(1)
    instants = [table.upsert(rows(chance, KEYS[:20], step)).instant for step in (1, 2, 3)]
    before = mainstem.open_table(table.path).scan().to_arrow().sort_by(KEY)
    (done,) = table.log_compact()
    for_rows, for_deletes = (Path(table.path) / name for name in done.files)
    assert (for_rows.name, for_deletes.name) == tuple(
        paths.native_log_name("00000000-0000-0000-0000-000000000000-0", done.requested, 1, "0-0-0", kind)
        for kind in ("log", "deletes")
    )
    for file in (for_rows, for_deletes):
        header = json.loads(pq.read_metadata(file).metadata[HEADER_KEY.encode()])
        assert header["COMPACTED_BLOCK_TIMES"] == ",".join(instants)
        assert header["INSTANT_TIME"] == done.requested
    # The rows keep the time and number of their commits.
    assert mainstem.open_table(table.path).scan().to_arrow().sort_by(KEY).equals(before)
    table.upsert(rows(chance, KEYS[:2], 9))
    expected = content(table)
    (again,) = table.log_compact()
    assert again.completion is not None and content(table) == expected


def test_logs_of_an_lsm_tree_are_not_compacted(tmp_path: Path) -> None:
    table = created(tmp_path / "t", 10, "lsm_tree")
    table.upsert(rows(random.Random(1), KEYS, 1))
    with pytest.raises(Unsupported, match=r"LSM_TREE: Java's readers .* compact the table instead"):
        table.log_compact()


# -- sorted files --------------------------------------------------------------------------------------


def test_a_compaction_of_an_lsm_tree_says_which_file_was_not_sorted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = created(tmp_path / "t", 10, "lsm_tree", buckets=1, partition_by=())
    for step in (1, 2):
        table.upsert(rows(random.Random(step), KEYS, step))
    table.compact()
    (base,) = (f for f in data_files(tmp_path / "t") if paths.parse_base_name(f.name))
    found = pq.read_table(base)
    pq.write_table(found.take(pa.array(range(found.num_rows)[::-1])), base, compression="none")
    table.upsert(rows(random.Random(3), KEYS[:5], 3))
    before = content(table)
    with caplog.at_level(logging.WARNING):
        (done,) = table.compact()
    assert f"{base.name} is not sorted by record key" in caplog.text
    assert done.completion is not None and content(table) == before
    made = pq.read_table(Path(table.path) / done.files[0])[KEY].to_pylist()
    assert made == sorted(made, key=str.encode)


@pytest.mark.disk("a file of blocks is put in")
def test_a_compaction_of_an_lsm_tree_says_which_log_is_one_of_blocks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As an older writer leaves one that does not look at the layout."""
    table = created(tmp_path / "t", 9, buckets=1, partition_by=())
    for step in (1, 2):
        table.upsert(rows(random.Random(step), KEYS, step))
    properties = tmp_path / "t" / ".hoodie/hoodie.properties"
    text = properties.read_text().replace("hoodie.table.version=9", "hoodie.table.version=10")
    properties.write_text(text + "hoodie.table.storage.layout=lsm_tree\n")
    table = mainstem.open_table(tmp_path / "t")
    before = content(table)
    with caplog.at_level(logging.WARNING):
        (done,) = table.compact()
    assert "is a log file of blocks, which Hudi's readers of such a table" in caplog.text
    assert content(table) == before
    made = pq.read_table(Path(table.path) / done.files[0])[KEY].to_pylist()
    assert made == sorted(made, key=str.encode)


def test_an_lsm_tree_has_no_other_order(tmp_path: Path) -> None:
    table = created(tmp_path / "t", 10, "lsm_tree")
    table.upsert(rows(random.Random(1), KEYS, 1))
    with pytest.raises(Unsupported, match="have the order of their record keys"):
        table.cluster("ts")
    table = created(tmp_path / "u", 10, "lsm_tree", buckets=None)
    table.upsert(rows(random.Random(1), KEYS, 1))
    with pytest.raises(Unsupported, match="have the order of their record keys"):
        table.cluster("ts")


def test_clustering_leaves_the_files_of_an_lsm_tree_sorted(tmp_path: Path) -> None:
    table = created(tmp_path / "t", 10, "lsm_tree", buckets=None, properties={"hoodie.index.type": "SIMPLE"})
    for step in (1, 2):
        table.insert(rows(random.Random(step), KEYS[step::2], step))
    table.compact()
    before = content(table)
    table.cluster()
    assert content(table) == before
    check_files(tmp_path / "t", "lsm_tree")


# -- indexes and kept deletes ---------------------------------------------------------------------------


def test_an_index_is_built_while_a_writer_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(tmp_path / "t", 10, properties={"hoodie.metadata.enable": "true"})
    table.upsert(rows(random.Random(1), KEYS, 1))
    listing = InitialRows.of_listing

    def meanwhile(self: InitialRows) -> None:
        table.upsert(rows(random.Random(2), KEYS[5:], 2))
        table.compact()
        listing(self)

    monkeypatch.setattr(InitialRows, "of_listing", meanwhile)
    table.create_index("column_stats", ["ts"])
    report = mainstem.open_table(table.path).validate_metadata()
    assert report is not None and report.ok


@pytest.mark.disk("a file is damaged in place")
def test_a_damaged_note_of_kept_deletes_is_named(tmp_path: Path) -> None:
    table = created(tmp_path / "t", 10, buckets=1, partition_by=())
    for step in (1, 2):
        table.upsert(rows(random.Random(step), KEYS, step))
    table.compact()
    deletes = (file for file in data_files(tmp_path / "t") if file.name.endswith(".deletes.parquet"))
    (kept,) = (file for file in deletes if "_0-0-0_" in file.name)
    assert KEPT_KEY.encode() in pq.read_metadata(kept).metadata
    found, notes = pq.read_table(kept), pq.read_metadata(kept).metadata
    for damage in (b"{}", b"no json", notes[KEPT_KEY.encode()].replace(b'"rows":"', b'"rows":"AAAA')):
        changed = found.replace_schema_metadata({**notes, KEPT_KEY.encode(): damage})
        pq.write_table(changed, kept, compression="none")
        table.upsert(rows(random.Random(5), KEYS[:4], 3))
        with pytest.raises(CorruptTable, match=KEPT_KEY):
            table.compact()
