"""Goal: whatever is done to a table with whatever values, it answers what a model of plain dictionaries says.

Method: a fixed sample of the histories that `make fuzz` goes on with; and faults planted in readers and
writers, each of which such histories find.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from mainstem.errors import Unsupported
from mainstem.merge import ordering_values
from mainstem.readers.planning import history
from mainstem.writers.encode_rows import BucketEncoder
from tests.fuzz.histories import run
from tests.fuzz.histories.actions import delete, remember, transaction, upsert

#: histories that `.ci/run` plays; others are looked for by `make fuzz`
SAMPLE = range(8)


@pytest.mark.slow
@pytest.mark.parametrize("number", SAMPLE)
def test_a_table_answers_what_the_model_says(number: int) -> None:
    played = run.histories(1, frozenset())(number)
    assert not played.finding, "\n".join([*played.told, played.finding])
    assert sum(played.actions.values()) == run.STEPS


def _loses_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    split = BucketEncoder.split

    def shorter(self: BucketEncoder, batch: pa.Table, *more: object) -> object:
        return split(self, batch.slice(0, 4), *more)

    monkeypatch.setattr(BucketEncoder, "split", shorter)


def _refuses_decimals(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `delete` once did."""

    def strict(values: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
        if values.type.equals(kind):
            return values
        raise Unsupported(f"{values.type} in {where}")

    monkeypatch.setattr("mainstem.merge.fold.align", strict)
    assert strict is not ordering_values.align


def _shows_the_present_as_the_past(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mainstem.readers.queries.snapshot.past_state", lambda state, moment: history.past_state(state, "9")
    )


PLANTED: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], tuple]] = {
    "a row of a batch is lost": (_loses_a_row, (upsert, transaction)),
    "deletes make tables unreadable": (_refuses_decimals, (upsert, delete)),
    "the present for the past": (_shows_the_present_as_the_past, (upsert, remember)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, actions = PLANTED[name]
    monkeypatch.setattr(run, "ACTIONS", tuple((action, 1) for action in actions))
    plant(monkeypatch)
    play = run.histories(1, frozenset())
    found = next(filter(lambda played: played.finding, map(play, range(20))))
    small = run.shrunk(found, frozenset(), seconds=2)
    assert small.finding and len(small.steps) <= len(found.steps)
    again = run.once(small.seed, small.steps, frozenset())
    assert run.sort_of(again.finding) == run.sort_of(small.finding)
