"""Goal: the empty plan of an index action that somebody ended, and died before it was away, does not stay.

Method: a dropper dies between the two steps; another index is created.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem.indexing import drop as dropping
from mainstem.indexing.plan import emptied_plans, schedule
from mainstem.storage.local import LocalStorage
from mainstem.timeline.active import load_timeline
from tests.services.city_table import aged, make, rows


@pytest.mark.supports("Indexes", "listed, built, rebuilt and dropped while writers run")
def test_the_next_index_that_is_created_clears_it_away(tmp_path: Path, monkeypatch) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(range(5), 1))
    table.create_index("files")
    schedule(table.index_context(), "column_stats", {})
    aged(table)

    def died(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dropping, "take_back", died)
    with pytest.raises(KeyboardInterrupt):
        table.drop_index("column_stats")
    monkeypatch.undo()
    storage = LocalStorage(table.path)
    assert emptied_plans(storage, load_timeline(storage))
    table.create_index("column_stats")
    assert not emptied_plans(storage, load_timeline(storage))
