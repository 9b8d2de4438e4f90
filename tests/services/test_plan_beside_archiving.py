"""Goal: a plan that is made while instants complete and are archived names every file of theirs.

Method: the planner stands still between listing the folders and taking the lock, until what others committed
meanwhile has left the active timeline.
"""

from __future__ import annotations

from mainstem.services import compaction_plan
from tests.services.city_table import content, make, rows

SMALL = {
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.keep.min.commits": "1",
    "hoodie.keep.max.commits": "2",
    "hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED",
}


def test_what_was_archived_while_the_planner_stood_still_is_in_the_plan(tmp_path, monkeypatch):
    table = make(tmp_path / "t", **SMALL)
    table.upsert(rows(range(4), 1))
    real = compaction_plan.FileListing.__init__

    def slow(self, storage, config):
        monkeypatch.setattr(compaction_plan.FileListing, "__init__", real)
        real(self, storage, config)
        for number in range(2, 7):
            table.upsert(rows(range(4), number, f"v{number}-"))
        assert table.archive().instants

    monkeypatch.setattr(compaction_plan.FileListing, "__init__", slow)
    table.schedule_compaction()
    before = content(table)
    (done,) = table.run_compaction()
    assert done.log_files == 2 * 6
    assert content(table).equals(before) and "v6-1" in before["value"].to_pylist()
