"""Goal: the empty plan of an index action that somebody ended, and died before it was away, does not stay.

Method: a dropper dies between the two steps; another index is created, or a round of services comes, after
which a completed commit may be taken back.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import mainstem
from mainstem.errors import Invalid
from mainstem.indexing import dropping as dropping
from mainstem.indexing.index_plan import emptied_plans, schedule
from mainstem.timeline.active import load_timeline
from tests.services.city_table import aged, make, rows
from tests.storage.steps import storage_at

pytestmark = pytest.mark.supports("Indexes", "builds: listed, built, rebuilt and dropped while writers run")


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    """The dropper of an index under construction died when it had made the plan empty."""
    table = make(tmp_path / "t")
    table.upsert(rows(range(5), 1))
    table.create_index("files")
    schedule(table.index_context(), "column_stats", {})
    aged(table)

    def died(*given: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dropping, "take_back", died)
        with pytest.raises(KeyboardInterrupt):
            table.drop_index("column_stats")
    assert ended(table)
    return table


def ended(table: mainstem.Table) -> list[str]:
    storage = storage_at(table.path)
    return emptied_plans(storage, load_timeline(storage))


def test_the_next_index_that_is_created_clears_it_away(table) -> None:
    table.create_index("column_stats")
    assert not ended(table)


def test_a_round_of_services_clears_it_away_and_a_commit_is_taken_back(table) -> None:
    newest = table.upsert(rows(range(3), 2)).instant
    with pytest.raises(Invalid, match=r"the index action .* is not finished"):
        table.rollback(newest)
    (run,) = table.run_services("metadata")
    assert run.error is None and not ended(table)
    assert table.rollback(newest).instant == newest
    assert set(table.scan().to_arrow()["ts"].to_pylist()) == {1}
    assert table.validate_metadata().ok
