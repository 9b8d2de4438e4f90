"""Goal: what needs table version 10 is refused by name before it, and what version 10 does not have in it; a
refusal touches nothing.

Method: a table of version 9 with change data that Java wrote, which is read and not written, and one that is
upgraded while a writer has it open; each public method and command that writes is called, and the table's
files are compared byte by byte. The methods are counted, so that a new one is not forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mainstem
from bad_input.common import edit_properties, golden, is_clear, rows
from mainstem.cli.main import main
from mainstem.errors import Invalid, Unsupported

WORDS = ("hoodie.table.cdc.enabled=true", "in a table of version 9", "or upgrade it")
ROWS = pa.table(
    {
        "id": pa.array([1], pa.int32()), "city": ["rome"], "name": ["x"], "price": [1.0],
        "ts": pa.array([9999], pa.int64()),
    }
)  # fmt: skip
INSTANT = "20261123115824705"
Write = Callable[[mainstem.Table], Any]
WRITES: dict[str, Write] = {
    "begin": lambda t: t.begin("upsert"),
    "upsert": lambda t: t.upsert(ROWS),
    "insert": lambda t: t.insert(ROWS),
    "bulk_insert": lambda t: t.bulk_insert(ROWS),
    "insert_overwrite": lambda t: t.insert_overwrite(ROWS),
    "insert_overwrite_table": lambda t: t.insert_overwrite_table(ROWS),
    "delete_partition": lambda t: t.delete_partition("rome"),
    "truncate": lambda t: t.truncate(),
    "evolve": lambda t: t.evolve(pa.schema([("tip", pa.float64())])),
    "delete": lambda t: t.delete({"id": pa.array([1], pa.int32()), "city": ["rome"]}),
    "update_columns": lambda t: t.update_columns({"id": [1], "city": ["rome"], "ts": [9], "name": ["y"]}),
    "staging_spec": lambda t: t.staging_spec(ROWS.schema),
    "writer_context": lambda t: t.writer_context(),
    "run_services": lambda t: t.services.run(if_due=False),
    "services_in_background": lambda t: t.services.in_background(),
    "doctor fix": lambda t: t.doctor(fix=True),
    "rollback_failed_writes": lambda t: t.rollback_failed_writes(),
    "rollback": lambda t: t.rollback(INSTANT),
    "index_context": lambda t: t.index_context(),
    "schedule_log_compaction": lambda t: t.schedule_log_compaction(),
    "run_log_compaction": lambda t: t.run_log_compaction(),
    "log_compact": lambda t: t.log_compact(),
    "schedule_compaction": lambda t: t.schedule_compaction(),
    "run_compaction": lambda t: t.run_compaction(),
    "compact": lambda t: t.compact(),
    "schedule_clustering": lambda t: t.schedule_clustering("ts"),
    "run_clustering": lambda t: t.run_clustering(),
    "cluster": lambda t: t.cluster("ts"),
    "resize": lambda t: t.resize(8),
    "downgrade": lambda t: t.downgrade(9),
    "schedule_clean": lambda t: t.schedule_clean(),
    "clean": lambda t: t.clean(),
    "archive": lambda t: t.archive(),
    "savepoint": lambda t: t.savepoint(),
    "delete_savepoint": lambda t: t.delete_savepoint(INSTANT),
    "restore": lambda t: t.restore(),
    "create_index": lambda t: t.create_index("column_stats", ["ts"]),
    "create_index of vectors": lambda t: t.create_index("vector", ["price"]),
    "reindex_all": lambda t: t.reindex_all(),
}
OF_INDEXES: dict[str, Write] = {
    "drop_index": lambda t: t.drop_index("column_stats"),
    "reindex": lambda t: t.reindex("column_stats"),
}
#: methods and properties that write nothing, go on with what one above began, or need an index of vectors
READS = {
    "resume",
    "refresh_index", "index", "check_new_name", "search", "explain_search", "vectors", "indexes",
    "path", "properties", "config", "schema", "cautions", "timeline", "file_slices", "scan", "dataset",
    "to_pandas", "changes", "explain_row", "history", "files", "doctor", "activity",
    "savepoints", "validate_metadata", "services", "upgrade",
    "opened",
}  # fmt: skip
COMMANDS = ("log-compact", "compact", "cluster", "clean", "archive", "savepoint", "restore")


TABLES = ("cdc_mor_data_before",)


@pytest.fixture(params=TABLES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return golden(request.param, tmp_path)


def content(path: Path) -> dict[str, bytes]:
    """Every file of the table."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_every_method_that_writes_is_refused_and_touches_nothing(path: Path) -> None:
    before = content(path)
    indexed = bool(mainstem.open_table(path).indexes())
    for what, write in {**WRITES, **(OF_INDEXES if indexed else {})}.items():
        with pytest.raises(Unsupported) as caught:
            write(mainstem.open_table(path, {"hoodie.mainstem.timeline.zone": "UTC"}))
        is_clear(str(caught.value), WORDS)
        assert content(path) == before, what


def test_no_method_is_forgotten() -> None:
    known = {name.partition(" ")[0] for name in {**WRITES, **OF_INDEXES}} | READS
    there = {name for name in dir(mainstem.Table) if not name.startswith("_")}
    assert there - known == set()


def test_every_command_that_writes_is_refused_and_touches_nothing(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(path)
    index = "index create PATH column_stats --columns ts"
    for command in (*COMMANDS, "resize --buckets 8", index):
        words = command.split()
        arguments = [str(path) if word == "PATH" else word for word in words]
        if "PATH" not in words:
            arguments.insert(1, str(path))
        assert main(arguments), command
        assert WORDS[1] in capsys.readouterr().err, command
        assert content(path) == before, command


def test_commands_that_read_show_the_table(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = mainstem.open_table(path).scan(columns=["name"]).to_arrow()["name"].to_pylist()
    for command in ("timeline", "slices", "properties", "changes", "scan"):
        assert main([command, str(path)]) in (0, None), command
        shown = capsys.readouterr().out
        assert shown, command
        assert command != "scan" or all(name in shown for name in rows)


def test_a_file_of_blocks_gets_into_no_table_of_sorted_files(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    table = mainstem.create_table(
        tmp_path / "t", schema, record_key="id", ordering="ts", buckets=1,
        properties={"hoodie.mainstem.exclusive": True},
    )  # fmt: skip
    table.upsert({"id": ["a"], "ts": [1]})
    open_one = table.begin("upsert")
    open_one.write({"id": ["b"], "ts": [1]})
    edit_properties(tmp_path / "t", hoodie__table__version="10", hoodie__table__storage__layout="lsm_tree")
    with pytest.raises(Invalid, match=r"which are files of blocks. Nothing was published"):
        open_one.commit()
    assert mainstem.open_table(tmp_path / "t").scan().to_arrow()["id"].to_pylist() == ["a"]


def test_an_lsm_tree_needs_version_10(tmp_path: Path) -> None:
    schema, layout = pa.schema([("id", pa.string())]), {"hoodie.table.storage.layout": "lsm_tree"}
    with pytest.raises(Unsupported, match="lsm_tree needs table version 10"):
        mainstem.create_table(tmp_path / "t", schema, record_key="id", buckets=1, properties=layout)
    assert not (tmp_path / "t").exists()
    mainstem.create_table(tmp_path / "t", schema, record_key="id", buckets=1, table_version=10)
    with pytest.raises(Invalid, match="lsm_tree contradicts the table"):
        mainstem.open_table(tmp_path / "t", layout).upsert({"id": ["a"]})


def test_a_metadata_table_of_version_10_is_compared_with_the_data(tmp_path: Path) -> None:
    report = mainstem.open_table(golden("v10_basic_mdt.logs", tmp_path)).validate_metadata()
    assert report is not None and report.ok


def test_names_near_those_of_native_log_files_are_neither_read_nor_removed(make: Callable[..., Any]) -> None:
    """Not by queries, rollbacks of dead writers, compactions or cleans."""
    table = make(table_version=10, properties={"hoodie.clean.commits.retained": "1"})
    table.upsert(rows("a", "b"))
    dead = table.begin("upsert")
    dead.write(rows("a", ts=9))
    folder = Path(table.path) / "paris"
    name = f"00000000-0000-0000-0000-000000000000-0_0-1-2_{dead.instant}_1"
    near = [f"{name}.{end}" for end in ("log", "logs.parquet", "LOG.parquet", "log.parquet.tmp", "x.parquet")]
    near += [f"{name[:-2]}_.log.parquet", f"{name}0000000000.log.parquet", f"{name}_1.deletes.parquet"]
    near.append(name.replace("_0-1-2", "_0-1") + ".log.parquet")
    for one in near:
        (folder / one).write_bytes(b"PAR1")
    dead.abort()
    for step in range(3):
        table.upsert(rows("a", ts=10 + step))
        table.compact()
        table.clean()
    table.rollback_failed_writes()
    assert table.scan(columns=["id"]).to_arrow()["id"].to_pylist() == ["a", "b"]
    assert [one for one in near if not (folder / one).exists()] == []
