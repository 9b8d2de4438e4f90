"""Goal: hudi-rs reads a table with deletes that a compaction kept, and late rows on them, as we do.

Method: hudi-rs reads after each step of such a table's life.
"""

from __future__ import annotations

import pytest

from tests.hudi_rs.reading import read
from tests.services.test_kept_deletes import kept, make, put


@pytest.mark.supports("Services", "compaction: late rows do not bring deleted rows back")
def test_hudi_rs_keeps_late_rows_deleted(tmp_path):
    table = make(tmp_path / "t")

    def same() -> list[dict]:
        names = ["id", "ts", "value"]
        ours = table.scan(columns=names).to_arrow().sort_by("id").to_pylist()
        theirs, error = read(table.path)
        assert theirs is not None, error
        assert theirs.select(names).sort_by("id").to_pylist() == ours
        return ours

    put(table, "k", 5, None)
    put(table, "b", 1, "b")
    table.compact()
    assert kept(table) == {"k": 5} and len(same()) == 1
    put(table, "k", 4, "late")
    assert len(same()) == 1
    put(table, "k", 5, "as new")
    assert len(same()) == 2
    put(table, "b", 6, None)
    table.compact()
    put(table, "b", 5, "late")
    assert len(same()) == 1
