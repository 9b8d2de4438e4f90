"""Goal: what a view of the past once answered it answers for ever, or refuses; archiving changes no answer.

Method: a ledger. After each commit of a table whose columns grow, the view at its completion time and as of
its requested time is written down with its columns. Instants are archived, compacted and cleaned in between,
and every answer in the ledger is asked again. Java's archives are asked with golden tables.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.errors import Invalid
from mainstem.layout.properties import load_config
from mainstem.readers.planning.history import past_state
from mainstem.readers.planning.query_schema import table_schema
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from tests.golden_tables.tables import unpack
from tests.services.city_table import content, make
from tests.storage.steps import storage_at

SMALL = {
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED",
}


def rows(number: int, columns: int, *, wide: bool = False) -> pa.Table:
    """Four rows with ``columns`` columns that the table was not created with; ``wide``: of longs."""
    keys = [f"k{(number + k) % 9:02d}" for k in range(4)]
    made: dict[str, Any] = {
        "id": keys,
        "city": ["ab"[int(key[1:]) % 2] for key in keys],
        "ts": pa.array([number] * 4, pa.int64()),
        "value": [f"v{number}"] * 4,
    }
    for at in range(columns):
        kind = pa.int64() if at or wide else pa.int32()
        made[f"new{at}"] = pa.array([number] * 4, kind)
    return pa.table(made)


@dataclass
class Ledger:
    """Every answer that was given."""

    table: mainstem.Table
    given: dict[tuple[str, str], pa.Table] = field(default_factory=dict)

    def note(self, outcome: mainstem.Outcome) -> None:
        for kind, time in (("as_of_completion", outcome.completion_time), ("as_of", outcome.instant)):
            self.given[kind, time] = self.ask(kind, time)

    def ask(self, kind: str, time: str) -> pa.Table:
        return content(mainstem.open_table(self.table.path), **{kind: time})

    def ask_again(self) -> int:
        """How many were answered; the others were refused."""
        answered = 0
        for (kind, time), before in self.given.items():
            try:
                now = self.ask(kind, time)
            except Invalid:
                continue
            assert now.schema.equals(before.schema), f"{kind}={time}: {now.schema.names}"
            assert now.equals(before), f"{kind}={time}"
            answered += 1
        return answered


def test_columns_that_came_before_archived_commits_are_shown_as_they_were(tmp_path: Path) -> None:
    ledger = Ledger(make(tmp_path / "t", **SMALL))
    for number in range(8):
        ledger.note(ledger.table.upsert(rows(number, min(number, 3))))
    assert ledger.table.archive().instants == 6
    assert ledger.ask_again() == 16


def test_numbers_that_grew_wider_are_read_before_the_newest_active_schema(tmp_path: Path) -> None:
    ledger = Ledger(make(tmp_path / "t", **SMALL))
    for number in range(8):
        ledger.note(ledger.table.upsert(rows(number, 1, wide=number >= 3)))
    ledger.table.archive()
    assert ledger.ask_again() == 16
    assert ledger.ask("as_of_completion", list(ledger.given)[2][1]).schema.field("new0").type == pa.int32()


@pytest.mark.parametrize("seed", range(6))
def test_every_answer_is_given_again_or_refused_whatever_the_services_do(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    ledger = Ledger(make(tmp_path / "t", **SMALL))
    columns, wide = 0, False
    for number in range(24):
        columns = min(4, columns + (dice.random() < 0.25))
        wide = wide or (columns > 0 and dice.random() < 0.1)
        ledger.note(ledger.table.upsert(rows(number, columns, wide=wide)))
        action = dice.choice(["archive", "compact", "clean", "", "", ""])
        if action == "archive":
            ledger.table.archive()
        elif action:
            getattr(ledger.table, action)()
    ledger.table.archive()
    assert len(ledger.table.timeline()) < 12
    assert ledger.ask_again() >= 4


def test_only_the_bytes_that_say_the_schema_are_read_of_a_large_archive(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **SMALL)
    first = table.upsert(rows(0, 1))
    for number in range(1, 12):
        table.upsert(rows(number, 2))
        table.archive()
    found = mainstem.open_table(table.path).scan(as_of_completion=first.completion_time)
    assert "new1" not in found.schema.names and "new0" in found.schema.names


def _without_metadata(path: Path) -> None:
    """As an archiver that keeps no metadata leaves them."""
    for file in (path / paths.HISTORY).glob("*.parquet"):
        stored = pq.read_table(file)
        at = stored.schema.get_field_index("metadata")
        empty = pa.nulls(stored.num_rows, stored.schema.field(at).type)
        pq.write_table(stored.set_column(at, stored.schema.field(at), empty), file)


def test_an_archived_instant_without_metadata_is_named_and_the_present_is_answered(tmp_path: Path) -> None:
    ledger = Ledger(make(tmp_path / "t", **SMALL))
    for number in range(8):
        ledger.note(ledger.table.upsert(rows(number, min(number, 2))))
    now = content(ledger.table)
    ledger.table.archive()
    _without_metadata(Path(ledger.table.path))
    times = [time for kind, time in ledger.given if kind == "as_of_completion"]
    with pytest.raises(Invalid, match="archived without its metadata; ask for a later time"):
        ledger.ask("as_of_completion", times[0])
    assert ledger.ask_again() >= 2
    assert content(mainstem.open_table(ledger.table.path)).equals(now)


def test_columns_before_what_java_archived_are_those_that_it_wrote(tmp_path: Path) -> None:
    """The views themselves are refused, as Java's cleaner removed their files."""
    storage = storage_at(unpack("archive_lsm", tmp_path))
    state = TableState.load(storage, load_config(storage))
    present = table_schema(state)
    archived = state.archive.completed("")
    times = sorted(archived.filter(pc.equal(archived["action"], "deltacommit"))["completionTime"].to_pylist())
    assert len(times) > 5
    assert all(table_schema(past_state(state, time)) == present for time in times)
