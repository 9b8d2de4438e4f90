"""Goal: Java reads through the metadata table of a table that mainstem restored or took a commit back from,
and goes on as its writer.

Method: both write in turn with statistics on; mainstem restores what Java compacted the metadata table after,
and rolls back a commit of Java's; after each step Java's answers and the metadata table are checked.
"""

from __future__ import annotations

import pytest
from java_hudi import JavaHudi
from test_interop_metadata_compaction import OURS, agree, options, rows_of

import mainstem


def ready(path: str) -> set[str]:
    return {i.partition for i in mainstem.open_table(path).indexes() if i.state == "ready"}


@pytest.mark.supports("Services", "restore and rollback with a metadata table: Java reads on and writes on")
def test_java_goes_on_with_tables_that_were_restored_and_rolled_back(java: JavaHudi, path: str) -> None:
    java.write(path, rows_of(range(10), 1), options(True, 100), mode="overwrite")
    table = mainstem.open_table(path, OURS)
    table.savepoint(table.upsert(rows_of(range(5), 2)).instant)
    java.write(path, rows_of(range(5, 15), 3), options(True, 1))
    table.upsert(rows_of(range(3), 4))
    indexes = ready(path)
    assert indexes >= {"files", "column_stats"}
    table = mainstem.open_table(path, OURS)
    assert len(table.restore(table.savepoints()[0].instant).instants) == 2
    assert ready(path) == indexes
    agree(java, path)
    java.write(path, rows_of(range(4), 5), options(True, 100))
    agree(java, path)
    newest = max(i.requested for i in mainstem.open_table(path).timeline() if i.action == "deltacommit")
    mainstem.open_table(path, OURS).rollback(newest)
    assert ready(path) == indexes
    agree(java, path)
    java.write(path, rows_of(range(6), 6), options(True, 1))
    agree(java, path)
