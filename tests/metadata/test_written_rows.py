"""Goal: the metadata of a commit whose writer still has its rows is, byte for byte, that of the stored rows.

Method: what every commit gives the metadata table is made twice, with the writer's rows and by decoding its
files, and compared: columns of every type, partial updates, deletes, several batches, schemas that grow.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.formats import avro_decode, log_file
from mainstem.metadata.commits import action as commit_action
from mainstem.metadata.commits.action import Action, FileChanges
from mainstem.metadata.commits.delta_commit import MetadataCommit
from mainstem.metadata.commits.partition_rows import encoded_rows
from mainstem.metadata.records.record_schema import schema_of_version
from mainstem.writers import append

pytestmark = pytest.mark.supports("Indexes", "column statistics: maintained by every action, used by reads")

INNER = pa.struct([("n", pa.int32()), ("t", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("small", pa.int32()),
        ("yes", pa.bool_()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("money", pa.decimal128(12, 3)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("raw", pa.binary()),
        ("text", pa.string()),
        ("inner", INNER),
        ("list", pa.list_(pa.int64())),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
COLUMNS = [name for name in SCHEMA.names if name not in ("inner", "list", "_hoodie_is_deleted")]
FLOATS = [-0.0, 0.0, math.nan, -math.inf, 1.5, None]


def rows(first: int, count: int, schema: pa.Schema = SCHEMA) -> pa.Table:
    def row(n: int) -> dict[str, object]:
        odd = n % 3 == 1
        when = datetime.datetime(1969, 12, 30, 1, 2, 3, 456789) + datetime.timedelta(days=n)
        return {
            "id": f"k{n:03d}", "city": "ab"[n % 2], "ts": n, "small": None if odd else -n, "yes": n % 2 == 0,
            "single": FLOATS[n % 6], "double": FLOATS[(n + 1) % 6],
            "money": None if odd else decimal.Decimal(n - 5).scaleb(-3), "day": when.date(),
            "at": when.replace(tzinfo=datetime.UTC), "local": None if odd else when,
            "raw": bytes([n % 256, 255]), "text": "é" * (n % 4) + "\U0001f600" * 40 if n % 5 else None,
            "inner": None if odd else {"n": n, "t": None if n % 4 else f"t{n}"}, "list": [n],
            "_hoodie_is_deleted": False,
        }  # fmt: skip

    return pa.Table.from_pylist([row(n) for n in range(first, first + count)], schema)


def make(path: Path, columns: Sequence[str] = COLUMNS, **properties: str) -> mainstem.Table:
    given = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False, **properties}
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, properties=given
    )
    table.upsert(rows(0, 4))
    table.create_index("record_index")
    table.create_index("secondary_index", ["text"])
    table.create_index("column_stats", list(columns))
    table.create_index("partition_stats")
    return table


@pytest.fixture
def compared(monkeypatch) -> list[FileChanges]:
    """Changes of all commits, each of which was compared."""
    real, seen = MetadataCommit.prepare.__func__, []

    def made(storage, instant, config, maintained, changes) -> list[object]:
        action = Action(storage, instant, config, changes)
        found = encoded_rows(action, maintained, schema_of_version(config.version))
        return [(r.partition, r.groups, r.keys.to_pylist(), r.values.to_pylist(), r.bounds) for r in found]

    def prepare(cls, storage, random, instant, config, maintained, changes, settle) -> MetadataCommit:
        seen.append(replace(changes, written=dict(changes.written)))  # freed when the commit ends
        given = storage, instant, config, maintained
        assert made(*given, changes) == made(*given, replace(changes, written={}))
        return real(cls, storage, random, instant, config, maintained, changes, settle)

    monkeypatch.setattr(MetadataCommit, "prepare", classmethod(prepare))
    return seen


def nothing_decoded(monkeypatch) -> None:
    def refuse(*given: object, **more: object) -> pa.Table:
        raise AssertionError("rows were decoded")

    monkeypatch.setattr(commit_action, "decode_many", refuse)
    monkeypatch.setattr(commit_action, "read_blocks", refuse)


def upsert(table: mainstem.Table) -> None:
    table.upsert(rows(2, 300))


def batches(table: mainstem.Table) -> None:
    with table.begin() as txn:
        txn.write(rows(0, 7))
        txn.write(rows(3, 90))
        txn.write(rows(500, 1))
        txn.commit()


def deletes(table: mainstem.Table) -> None:
    table.delete(rows(0, 3).select(["id", "city"]))


def flagged(table: mainstem.Table) -> None:
    flags = pa.array([n % 2 == 0 for n in range(40)])
    some = rows(0, 40)
    table.upsert(some.set_column(some.num_columns - 1, "_hoodie_is_deleted", flags))


def grown(table: mainstem.Table) -> None:
    with table.begin() as txn:
        txn.write(rows(0, 5))
        wider = rows(2, 30).set_column(3, "small", rows(2, 30)["small"].cast(pa.int64()))
        txn.write(wider.append_column("more", pa.array(["m"] * 30)))
        txn.commit()


def other_types(table: mainstem.Table) -> None:
    """Values of types that are stored as others."""
    some = rows(0, 30)
    for name, kind in [("text", pa.large_string()), ("id", pa.dictionary(pa.int32(), pa.string()))]:
        at = some.schema.get_field_index(name)
        some = some.set_column(at, name, some[name].cast(kind))
    table.upsert(some)


@pytest.mark.parametrize("together", [2**22, 0], ids=["few rows", "more than are decoded together"])
def test_metadata_of_commits_is_that_of_the_rows_that_they_stored(
    tmp_path, compared, monkeypatch, together
) -> None:
    table = make(tmp_path / "t")
    monkeypatch.setattr(commit_action, "_TOGETHER_BYTES", together)
    for write in (upsert, batches, deletes, flagged, other_types, grown):
        write(table)
        added = compared[-1].added
        assert set(compared[-1].written) == {f"{p}/{name}" for p, names in added.items() for name in names}
    report = table.validate_metadata()
    assert report.ok, report.differences


def test_columns_within_others_are_decoded(tmp_path, compared) -> None:
    table = make(tmp_path / "t", columns=["ts", "inner.n", "inner.t"])
    upsert(table)
    assert table.validate_metadata().ok


@pytest.mark.filterwarnings("ignore:hoodie.mainstem.write.partial.blocks")
def test_partial_updates_add_what_their_blocks_hold(tmp_path, compared) -> None:
    table = make(tmp_path / "t", **{"hoodie.mainstem.write.partial.blocks": "true"})
    table.update_columns(rows(0, 4).select(["id", "city", "ts", "money", "text"]))
    table.update_columns(rows(1, 3).select(["id", "city", "ts", "double"]))
    assert compared[-1].written and table.validate_metadata().ok


def test_blocks_in_parquet_are_read_again(tmp_path, compared) -> None:
    table = make(tmp_path / "t", **{"hoodie.logfile.data.block.format": "parquet"})
    upsert(table)
    assert not compared[-1].written and table.validate_metadata().ok


def test_rows_of_a_large_transaction_are_not_kept_until_it_commits(tmp_path, compared, monkeypatch) -> None:
    table = make(tmp_path / "t")
    monkeypatch.setattr(append, "_WRITTEN_BYTES_MAX", 20_000)
    with table.begin() as txn:
        for first in range(0, 600, 100):
            txn.write(rows(first, 100))
        txn.commit()
    assert not compared[-1].written and table.validate_metadata().ok


@pytest.mark.parametrize("together", [2**22, 0], ids=["few rows", "more than are decoded together"])
def test_a_commit_decodes_nothing_that_its_writer_still_holds(tmp_path, monkeypatch, together) -> None:
    assert avro_decode.decode_many is commit_action.decode_many
    assert log_file.read_blocks is commit_action.read_blocks
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2
    )
    table.upsert(rows(0, 4))
    table.create_index("column_stats", ["ts", "money", "double"])
    nothing_decoded(monkeypatch)
    monkeypatch.setattr(commit_action, "_TOGETHER_BYTES", together)
    table.upsert(rows(0, 30))
    monkeypatch.undo()
    assert table.validate_metadata().ok
