"""Goal: Java builds indexes beside our writers and drops them, and answers of ours are whole meanwhile.

Method: INDEX actions of Java's indexer, with a commit of ours between plan and execution, one that was
begun before the plan and completes when Java has listed the index and waits for it, and one after; CREATE
INDEX and DROP INDEX of Java's SQL, with a transaction of ours open across them. ``validate_metadata`` finds
nothing afterwards.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from indexed_tables import (
    agree,
    created,
    opened,
    options,
    our_answers_are_whole,
    ready,
    rows_of,
)
from java_hudi import JavaHudi
from test_interop_concurrent import wait_for

from mainstem.metadata.commits.known_groups import KnownGroups
from mainstem.options import STATS_GROUPS
from mainstem.storage.local import LocalStorage

pytestmark = pytest.mark.supports("Indexes", "builds: listed, built, rebuilt and dropped while writers run")
#: kind of Java's indexer -> its option
BUILDS = {
    "COLUMN_STATS": "hoodie.metadata.index.column.stats.enable",
    "RECORD_INDEX": "hoodie.metadata.record.index.enable",
    "BLOOM_FILTERS": "hoodie.metadata.index.bloom.filter.enable",
}


@pytest.mark.parametrize("kind", BUILDS)
def test_java_builds_an_index_beside_our_writers(kind: str, java: JavaHudi, path: str) -> None:
    created(path)
    given, name = options(**{BUILDS[kind]: "true"}), kind.lower()
    early = opened(path).begin()
    early.write(rows_of(range(25, 45), 120))
    instant = java.call("schedule_index", path=path, options=given, kinds=[kind])["instant"]
    opened(path).upsert(rows_of(range(40, 50), 130))
    java.send("run_index", path=path, options=given, instant=instant)
    wait_for(lambda: name in opened(path).config.raw["hoodie.table.metadata.partitions"].split(","))
    early.commit()
    opened(path).upsert(rows_of(range(48, 55), 140))
    our_answers_are_whole(path)
    java.receive()
    assert ready(path) == {"files", name}
    opened(path).upsert(rows_of(range(3), 150))
    agree(java, path)
    opened(path).reindex(name)
    agree(java, path)


def test_java_makes_an_index_of_more_file_groups_where_ours_was(java: JavaHudi, path: str) -> None:
    """What ours said of its file groups goes with it."""
    created(path)
    table, folder = opened(path), Path(path, ".hoodie", "metadata", "column_stats")
    table.create_index("column_stats", columns=["id", "ts"], options={STATS_GROUPS: "1"})
    agree(java, path)
    assert len(groups(folder)) == 1
    opened(path).drop_index("column_stats")
    given = options(**{BUILDS["COLUMN_STATS"]: "true", STATS_GROUPS: "3"})
    instant = java.call("schedule_index", path=path, options=given, kinds=["COLUMN_STATS"])["instant"]
    java.call("run_index", path=path, options=given, instant=instant)
    opened(path).upsert(rows_of(range(40, 50), 130))
    assert len(groups(folder)) == 3
    agree(java, path)
    our_answers_are_whole(path)


def groups(folder: Path) -> set[str]:
    """File ids of the index in this folder, as we count them."""
    storage = LocalStorage(str(folder.parents[2]))
    return set(KnownGroups().ids(storage, folder.name, locked=False))


def test_java_builds_indexes_by_sql_and_drops_them_while_a_transaction_of_ours_is_open(
    java: JavaHudi, path: str
) -> None:
    created(path).compact()
    java.call("sql", text=f"create table built_by_sql using hudi location '{path}'")
    given = options()

    def beside(text: str, ts: int) -> None:
        early = opened(path).begin()
        early.write(rows_of(range(ts % 10, ts % 10 + 12), ts))
        java.call("sql", text=text, conf=given)
        early.commit()

    try:
        java.call("sql", text="create index record_index on built_by_sql (id)", conf=given)
        agree(java, path)
        java.call("sql", text="create index by_name on built_by_sql (name)", conf=given)
        making = "create index by_upper on built_by_sql using column_stats(name) options(expr='upper')"
        java.call("sql", text=making, conf=given)
        assert ready(path) == {"files", "record_index", "by_name", "by_upper"}
        opened(path).upsert(rows_of(range(25, 35), 200))
        agree(java, path)
        beside("drop index by_upper on built_by_sql", 211)
        agree(java, path)
        beside("drop index by_name on built_by_sql", 222)
        assert ready(path) == {"files", "record_index"}
        agree(java, path)
    finally:
        java.call("sql", text="drop table built_by_sql")
