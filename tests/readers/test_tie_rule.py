"""Goal: who wins among rows with equal ordering values is said in one place, and everybody follows.

Method: that one constant is turned round. Tables with ties of every kind (log against log, log against base
file, row against delete, partial rows, within one batch) are then read, compacted and log-compacted in every
way there is, and each answer must be the other row; with Hudi's rule, the later one.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.merge import comparison
from mainstem.readers.rows.bounded_merge import read_bounded
from tests.storage.steps import storage_at

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("value", pa.string()), ("_hoodie_is_deleted", pa.bool_())]
)
QUICK = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}
IGNORE_DEFAULTS = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
EARLIER, LATER = "earlier", "later"
BASE, LOGS = ("in base", "base, then deleted"), ("in logs", "logs, then deleted")


@pytest.fixture(params=[True, False], ids=["the later wins", "the earlier wins"])
def winner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The value that each tie must leave."""
    monkeypatch.setattr(comparison, "LATER_WINS_TIES", request.param)
    return LATER if request.param else EARLIER


def rows(keys: tuple[str, ...], value: str | None, *, gone: bool = False) -> pa.Table:
    count = len(keys)
    columns = [list(keys), [5] * count, [value] * count, [gone] * count]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def with_ties(path: Path, **properties: object) -> mainstem.Table:
    """Every key has two entries at the same ordering value: two rows, or a row and a delete."""
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=1, properties={**QUICK, **properties}
    )
    table.upsert(rows(BASE, EARLIER))
    assert table.compact()
    table.upsert(rows(LOGS, EARLIER))
    table.upsert(rows((BASE[0], LOGS[0]), LATER))
    table.upsert(rows((BASE[1], LOGS[1]), None, gone=True))
    return table


def expected(winner: str) -> dict[str, str]:
    told = {BASE[0]: winner, LOGS[0]: winner}
    return told if winner == LATER else told | {BASE[1]: EARLIER, LOGS[1]: EARLIER}


def found(tables: object) -> dict[str, str]:
    listed = tables if isinstance(tables, pa.Table) else pa.concat_tables(tables)  # type: ignore[arg-type]
    pairs = list(zip(listed.column("id").to_pylist(), listed.column("value").to_pylist(), strict=True))
    assert len(dict(pairs)) == len(pairs), "a key came out twice"
    return dict(pairs)


@pytest.fixture
def table(tmp_path: Path, winner: str) -> mainstem.Table:
    return with_ties(tmp_path / "t")


def test_a_snapshot_follows(table: mainstem.Table, winner: str) -> None:
    assert found(table.scan().to_arrow()) == expected(winner)


def test_time_travel_follows(table: mainstem.Table, winner: str) -> None:
    newest = max(i.completion for i in table.timeline() if i.completion)
    assert found(table.scan(as_of_completion=newest).to_arrow()) == expected(winner)


@pytest.mark.parametrize("value", [EARLIER, LATER])
def test_a_filter_follows_and_skips_no_row_group_that_may_win(
    table: mainstem.Table, winner: str, value: str
) -> None:
    """The base file's statistics rule out ``later``: the group is still needed where its rows win."""
    answer = table.scan(filter=pc.field("value") == value).to_arrow()
    assert found(answer) == {k: v for k, v in expected(winner).items() if v == value}


@pytest.mark.parametrize("bound", [1_000, 10_000_000], ids=["decided by keys", "in memory"])
def test_a_bounded_merge_follows(table: mainstem.Table, winner: str, bound: int) -> None:
    (split,) = table.scan().splits()
    assert found(read_bounded(storage_at(table.path), split, bound)) == expected(winner)


def test_a_compaction_follows(table: mainstem.Table, winner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert table.compact()
    monkeypatch.undo()  # what is stored says it, not whoever reads
    assert found(table.scan().to_arrow()) == expected(winner)


def test_a_log_compaction_follows(tmp_path: Path, winner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1, properties=QUICK
    )
    table.upsert(rows(LOGS, EARLIER))
    table.upsert(rows(LOGS[:1], LATER))
    table.upsert(rows(LOGS[1:], None, gone=True))
    assert table.log_compact()
    monkeypatch.undo()
    assert found(table.scan().to_arrow()) == {k: v for k, v in expected(winner).items() if k in LOGS}


def test_an_incremental_query_follows(table: mainstem.Table, winner: str) -> None:
    assert found(table.changes(after="000", columns=["id", "value"]).to_arrow()) == expected(winner)


def test_a_change_set_with_deletes_follows(table: mainstem.Table, winner: str) -> None:
    asked = table.changes(after="000", deletes=True, columns=["id", "_change_type"]).to_arrow()
    deleted = {row["id"] for row in asked.to_pylist() if row["_change_type"] == "delete"}
    assert (LOGS[1] in deleted) == (winner == LATER)


def test_partial_rows_follow(tmp_path: Path, winner: str) -> None:
    table = with_ties(tmp_path / "t", **IGNORE_DEFAULTS)
    assert found(table.scan().to_arrow()) == expected(winner)


def test_rows_of_one_key_in_one_bulk_insert_follow(tmp_path: Path, winner: str) -> None:
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1, properties=QUICK
    )
    table.bulk_insert(pa.concat_tables([rows(("a",), EARLIER), rows(("a",), LATER)]))
    assert found(table.scan().to_arrow()) == {"a": winner}
