"""Goal: what ``validate_metadata`` finds and what fails beside Java's writers and indexers is Java's doing.

Method: each line of tests/golden/java_index_defects.json happens on a table that Java alone made and wrote;
then what the line says heals it.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from indexed_tables import (
    BATCH,
    RECORD_INDEX,
    agree,
    found_missing,
    opened,
    options,
    our_answers_are_whole,
    ready,
    rows_of,
)
from java_hudi import JavaFailed, JavaHudi

from tests.golden_tables.tables import GOLDEN
from tests.multiprocess.table_files import age

DEFECTS = {one["name"]: one for one in json.loads((GOLDEN / "java_index_defects.json").read_text("utf-8"))}


def fails(name: str) -> AbstractContextManager:
    return pytest.raises(JavaFailed, match=DEFECTS[name]["raises"])


def finds(name: str, path: str) -> set[str]:
    return found_missing(path)[DEFECTS[name]["finds"]]


def test_java_alone_writes_beside_its_indexes_of_keys(java: JavaHudi, path: str) -> None:
    given = options(**RECORD_INDEX)
    java.write(path, rows_of(range(20), 100), given, mode="overwrite")
    java.compact(path, given)
    java.write(path, rows_of(range(15, 25), 110), given)
    assert finds("keys_of_inserts", path) == {str(key) for key in range(20, 25)}
    java.call("sql", text=f"create table written_by_java using hudi location '{path}'")
    try:
        java.call("sql", text="create index by_name on written_by_java (name)", conf=given)
        with fails("nothing_to_append"):
            java.write(path, rows_of([3], 120), given)
    finally:
        java.call("sql", text="drop table written_by_java")
    assert len(our_answers_are_whole(path)) == 25
    age(Path(path))  # a build would wait for a writer of which nobody knows yet that it died
    opened(path).rollback_failed_writes()
    opened(path).reindex_all()
    agree(java, path)


def test_java_alone_writes_in_batches_beside_a_record_index(java: JavaHudi, path: str) -> None:
    java.write(path, rows_of([0], 100), options(**RECORD_INDEX), mode="overwrite")
    with fails("batch_of_inserts"):
        java.write(path, rows_of(range(20), 110), options(**RECORD_INDEX, **BATCH))
    opened(path).upsert(rows_of(range(20), 120))
    agree(java, path)


def test_java_alone_builds_indexes_of_log_files(java: JavaHudi, path: str) -> None:
    given = options()
    java.write(path, rows_of(range(20), 100), given, mode="overwrite")
    java.call("sql", text=f"create table logs_of_java using hudi location '{path}'")
    try:
        java.call("sql", text="create index record_index on logs_of_java (id)", conf=given)
        with fails("secondary_index_without_base_file"):
            java.call("sql", text="create index by_name on logs_of_java (name)", conf=given)
        with fails("bloom_filters_of_log_files"):
            making = "create index by_end on logs_of_java using bloom_filters(name) options(expr='upper')"
            java.call("sql", text=making, conf=given)
    finally:
        java.call("sql", text="drop table logs_of_java")
    opened(path).upsert(rows_of(range(15, 25), 110))
    our_answers_are_whole(path)
    assert found_missing(path) == {}


def test_java_alone_builds_column_statistics_of_a_partitioned_table(java: JavaHudi, path: str) -> None:
    given = options(("city",))
    building = options(("city",), **{"hoodie.metadata.index.column.stats.enable": "true"})
    java.write(path, rows_of(range(20), 100), given, mode="overwrite")
    action = {"path": path, "options": building}
    instant = java.call("schedule_index", kinds=["COLUMN_STATS"], **action)["instant"]
    java.write(path, rows_of(range(10), 110), given)
    java.call("run_index", instant=instant, **action)
    assert finds("statistics_of_partitions_unlisted", path) == {"partition_stats"}
    our_answers_are_whole(path)
    opened(path).drop_index("partition_stats")
    assert ready(path) == {"files", "column_stats"}
    agree(java, path)
