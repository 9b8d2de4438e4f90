"""Goal: a table of version 10 that records change data is written so that every change is told, once.

Method: small histories in each logging mode. The change data file of a compaction is read as plain Parquet;
what commits name is read from their metadata; changes are replayed and must give the snapshot. Java 1.3
judges the same files in `interop/test_interop_change_data.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bad_input.common import golden

import mainstem
from mainstem.errors import Unsupported
from mainstem.formats.native_log import HEADER_KEY, read_header
from mainstem.limits import MIB
from mainstem.readers.changes.cdc_split import ChangeSplit, compared
from mainstem.services import change_files as change_files_module
from mainstem.services.change_files import change_schema
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.commit_metadata import CommitMetadata, decode_commit
from tests.services.city_table import QUICK, SCHEMA, rows

CDC, MODE = "hoodie.table.cdc.enabled", "hoodie.table.cdc.supplemental.logging.mode"
MODES = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")


def made(path: Path, mode: str = MODES[2], **properties: object) -> mainstem.Table:
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=1, table_version=10,
        properties={**QUICK, CDC: True, MODE: mode, **properties},
    )  # fmt: skip


def keys(*numbers: int) -> pa.Table:
    return rows(numbers, 9).select(["id", "city"])


def history(table: mainstem.Table) -> mainstem.Table:
    """A base file, logs with an update, an insert, a delete, a late row and a delete of no row; compacted."""
    table.bulk_insert(rows(range(8), 2))
    table.upsert(rows([0, 2, 9], 3, "u"))
    table.upsert(rows([4], 1, "late"))
    table.delete(keys(3, 77))
    table.compact()
    return table


def stats(table: mainstem.Table, action: str) -> Iterator[tuple[CommitMetadata, dict[str, Any]]]:
    """The write stats of the completed instants of this action, oldest first."""
    for instant in table.timeline():
        if instant.action == action and instant.completion is not None:
            path = paths.timeline_file(instant.file_name)
            metadata = decode_commit(table.opened.seams.storage.read(path, max_bytes=MIB), path=path)
            yield from ((metadata, stat) for _, found in sorted(metadata.stats.items()) for stat in found)


def change_files(table: mainstem.Table) -> list[str]:
    """Paths of the change data files in the table's folders."""
    storage = table.opened.seams.storage
    names = ((p, name) for p in ("a", "b") for name in sorted(storage.names(p)))
    return [paths.in_partition(p, name) for p, name in names if name.endswith(".cdc.parquet")]


def replayed(table: mainstem.Table) -> dict[str, dict[str, Any]]:
    """The rows that all changes lead to, by key; every image before must be what was there."""
    there: dict[str, dict[str, Any]] = {}
    for change in table.changes(mode="cdc", images="struct").to_arrow().to_pylist():
        before, after = change["before"], change["after"]
        assert {"i": (False, True), "u": (True, True), "d": (True, False)}[change["op"]] == (
            before is not None, after is not None)  # fmt: skip
        assert there.pop((before or after)["id"], None) == before
        if after is not None:
            there[after["id"]] = after
    return there


def snapshot(table: mainstem.Table) -> dict[str, dict[str, Any]]:
    found = table.scan(columns=SCHEMA.names).to_arrow().to_pylist()
    return {row["id"]: row for row in found}


@pytest.mark.supports("Tables and layouts", "tables with change data (CDC, version 10, write)")
@pytest.mark.parametrize("mode", MODES)
def test_a_compaction_tells_what_it_changed_in_the_form_of_the_tables_mode(tmp_path: Path, mode: str) -> None:
    table = history(made(tmp_path / "t", mode))
    (time,) = (i.requested for i in table.timeline() if i.action == "commit")

    def row(key: int, ts: int, value: str) -> dict[str, Any]:
        return rows([key], ts, value).to_pylist()[0]

    changes = [
        ("a", "u", row(0, 2, "v"), row(0, 3, "u")), ("a", "u", row(2, 2, "v"), row(2, 3, "u")),
        ("b", "d", row(3, 2, "v"), None), ("b", "i", None, row(9, 3, "u")),
    ]  # fmt: skip
    told = {
        "OP_KEY_ONLY": lambda op, old, new: {"op": op, "record_key": (old or new)["id"]},
        "DATA_BEFORE": lambda op, old, new: {"op": op, "record_key": (old or new)["id"], "before": old},
        "DATA_BEFORE_AFTER": lambda op, old, new: {"op": op, "ts_ms": time, "before": old, "after": new},
    }[mode]
    files = change_files(table)
    storage = table.opened.seams.storage
    for path, partition in zip(files, "ab", strict=True):
        with pq.ParquetFile(storage.open_input(path)) as source:
            found = source.read().to_pylist()
            header = read_header(source.metadata.metadata[HEADER_KEY.encode()], path=path)
        wanted = [told(*change) for place, *change in changes if place == partition]
        assert sorted(found, key=str) == sorted(wanted, key=str)
        assert time in header.values() and '"name":"op"' in "".join(header.values())
    named = [item for _, stat in stats(table, "commit") for item in (stat["cdcStats"] or {}).items()]
    assert sorted(named) == [(path, storage.stat(path).size) for path in files]
    assert replayed(table) == snapshot(table)


def test_a_compaction_that_changes_no_row_names_an_empty_file(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.bulk_insert(rows([0, 1], 5))
    table.upsert(rows([0], 1, "late"))
    table.compact()
    (path,) = change_files(table)
    assert pq.read_table(table.opened.seams.storage.open_input(path)).num_rows == 0
    assert replayed(table) == snapshot(table)


def test_changes_that_do_not_fit_into_memory_at_once_are_told_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[int] = []

    def counted(storage: Storage, change: ChangeSplit, some: pa.Array) -> Iterator[Any]:
        pieces.append(len(some))
        return compared(storage, change, some)

    monkeypatch.setattr(change_files_module, "compared", counted)
    table = made(tmp_path / "t", **{"hoodie.memory.compaction.max.size": MIB})
    table.bulk_insert(rows(range(0, 40, 2), 1, "v" * 5000))
    table.upsert(rows(range(0, 60, 2), 2, "u" * 5000))
    table.compact()
    (path,) = change_files(table)
    found = pq.read_table(table.opened.seams.storage.open_input(path)).to_pylist()
    assert sorted(change["op"] for change in found) == ["i"] * 10 + ["u"] * 20
    assert len({change["after"]["id"] for change in found}) == 30 == sum(pieces) and len(pieces) > 1


def test_a_commit_names_the_slice_that_its_log_files_follow_also_of_crossed_writers(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.bulk_insert(rows([0], 1))
    first, second = table.begin("upsert"), table.begin("upsert")
    for txn, value in ((second, "second"), (first, "first")):  # the later begun completes first
        txn.write(rows([0], 2, value))
        txn.commit()
    table.delete(keys(0))
    base, *logs = (stat for _, stat in stats(table, "deltacommit"))
    name = base["path"].rpartition("/")[2]
    assert [stat["baseFile"] for stat in logs] == [name] * 3
    assert [stat["prevCommit"] for stat in logs] == [paths.parse_base_name(name).instant] * 3
    by_instant = {stat["path"].rpartition("/")[2]: set(stat["logFiles"]) for stat in logs}
    one, other, last = (stat["path"].rpartition("/")[2] for stat in logs)  # in the order of requested times
    assert by_instant == {other: {other}, one: {other, one}, last: {one, other, last}}
    assert replayed(table) == snapshot(table) == {}
    told = table.history(keys="k00", actions=["deltacommit"]).select(["files", "keys"]).to_pylist()
    assert told[:3] == [{"files": 1, "keys": 1}] * 3  # not the files that its own follows


@pytest.mark.parametrize("layout", ["default", "lsm_tree"])
def test_a_metadata_table_lists_change_data_files_and_has_no_statistics_of_them(
    tmp_path: Path, layout: str
) -> None:
    more = {"hoodie.metadata.enable": True, "hoodie.table.storage.layout": layout}
    table = made(tmp_path / "t", **more)
    table.create_index("column_stats", ["ts", "value"])
    history(table)
    table.upsert(rows([1], 4))
    assert len(change_files(table)) == 2
    report = table.validate_metadata()
    assert report is not None and report.ok


def _rolled_back(table: mainstem.Table) -> None:
    table.rollback(next(i.requested for i in table.timeline() if i.action == "commit"))


def _restored(table: mainstem.Table) -> None:
    table.restore(next(i.requested for i in table.timeline() if i.action == "deltacommit"))


@pytest.mark.parametrize("undo", [_rolled_back, _restored], ids=["rollback", "restore"])
def test_change_data_goes_with_the_compaction_that_is_undone(
    tmp_path: Path, undo: Callable[[mainstem.Table], None]
) -> None:
    table = made(tmp_path / "t")
    table.bulk_insert(rows(range(4), 1))
    if undo is _restored:
        table.savepoint()
    table.upsert(rows([0, 1], 2, "u"))
    table.compact()
    assert len(change_files(table)) == 2
    undo(table)
    assert change_files(table) == []
    table.upsert(rows([0], 3, "again"))
    table.compact()
    assert len(change_files(table)) == (1 if undo is _restored else 2)
    assert replayed(table) == snapshot(table)


def test_change_data_is_cleaned_with_its_slice(tmp_path: Path) -> None:
    by = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}
    table = made(tmp_path / "t", **by)
    for number in range(3):
        table.upsert(rows([0], number, f"v{number}"))
        table.compact()
    newest = change_files(table)[-1]
    table.clean()
    assert change_files(table) == [newest]


def test_an_execution_that_died_after_its_change_data_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path / "t")
    table.bulk_insert(rows(range(4), 1))
    table.upsert(rows([0, 1], 2, "u"))
    table.schedule_compaction()
    with monkeypatch.context() as dying:

        def dies(*_: object) -> None:
            raise OSError("no more")

        dying.setattr("mainstem.services.executor.Execution.complete", dies)
        with pytest.raises(Exception, match="no more"):
            table.run_compaction()
    left = change_files(table)
    assert len(left) == 2
    table.run_compaction()
    named = [name for _, stat in stats(table, "commit") for name in stat["cdcStats"]]
    assert sorted(named) == left == change_files(table)


def test_what_would_hide_changes_is_refused(tmp_path: Path) -> None:
    table = history(made(tmp_path / "t"))
    before = snapshot(table)
    for refused in (
        lambda: table.insert_overwrite(rows([0], 5)), lambda: table.insert_overwrite_table(rows([0], 5)),
        lambda: table.delete_partition("a"), lambda: table.truncate(), lambda: table.resize(2),
        lambda: table.downgrade(9),
    ):  # fmt: skip
        with pytest.raises(Unsupported, match=r"hoodie\.table\.cdc\.enabled=true"):
            refused()
    assert table.config.version == 10 and snapshot(table) == before == replayed(table)


def test_version_9_is_refused_for_new_tables(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"of version 9: mainstem writes change data from version 10 on"):
        mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", buckets=1, properties={CDC: True})
    assert not (tmp_path / "t").exists()


def test_images_of_vectors_are_refused_where_a_table_is_made_and_keys_alone_are_told(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("e", pa.list_(pa.float32(), 2))])

    def with_vectors(mode: str) -> mainstem.Table:
        return mainstem.create_table(
            tmp_path / mode, schema, record_key="id", buckets=1, table_version=10, vectors={"e": "VECTOR(2)"},
            properties={**QUICK, CDC: True, MODE: mode},
        )  # fmt: skip

    with pytest.raises(Unsupported, match=r"rows that hold vectors .*OP_KEY_ONLY"):
        with_vectors("DATA_BEFORE")
    table = with_vectors("OP_KEY_ONLY")
    for value in (1.0, 2.0):
        table.upsert(pa.table({"id": ["a"], "e": [[value] * 2]}, schema=schema))
        table.compact()
    told = table.changes(mode="cdc", images="struct").to_arrow().to_pylist()
    assert [(c["op"], c["after"]["e"]) for c in told] == [("i", [1.0, 1.0]), ("u", [2.0, 2.0])]


@pytest.mark.disk("a table that was unpacked there")
@pytest.mark.parametrize("name", ["cdc_mor_op_key_only", "cdc_mor_data_before", "cdc_mor_data_before_after"])
def test_the_change_data_of_java_stays_when_its_table_is_upgraded_and_written(
    tmp_path: Path, name: str
) -> None:
    given = {"hoodie.mainstem.timeline.zone": "UTC", "hoodie.index.type": "BLOOM"}
    path = golden(name, tmp_path)
    table = mainstem.open_table(path, given)
    of_java = table.changes(mode="cdc", images="struct").to_arrow().to_pylist()
    table.upgrade(10)
    table = mainstem.open_table(path, given)
    newest = table.scan(columns=["id", "city", "name", "price", "ts"]).to_arrow().slice(0, 3)
    row = newest.to_pylist()[0]
    table.upsert(pa.Table.from_pylist([{**row, "name": "ours", "ts": row["ts"] + 1}], schema=newest.schema))
    table.compact()

    def bare(image: dict[str, Any] | None) -> dict[str, Any] | None:
        return image and {name: value for name, value in image.items() if not name.startswith("_hoodie_")}

    *earlier, last = table.changes(mode="cdc", images="struct").to_arrow().to_pylist()
    images = ("before", "after")
    assert earlier == [{**change, **{side: bare(change[side]) for side in images}} for change in of_java]
    assert (last["op"], last["before"]["name"], last["after"]["name"]) == ("u", row["name"], "ours")


def test_the_schema_of_change_data_is_that_of_java() -> None:
    """Seen in files of Java 1.3 (`v10_cdc_mor_data_before_after`)."""
    column = '{"name":"id","type":["null","int"],"default":null}'
    meta = '{"name":"_hoodie_record_key","type":["null","string"],"doc":"","default":null}'
    table = f'{{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[{meta},{column}]}}'
    found = change_schema(table, "DATA_BEFORE_AFTER")
    with_record = f'{{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[{column}]}}'
    assert f'"name":"before","type":["null",{with_record}]' in found
    assert '"name":"after","type":["null","t_record"]' in found and '"namespace":"hoodie.t"' in found
