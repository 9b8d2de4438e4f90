"""Goal: where Java's writers go on with a table that has indexes of keys, our answers stay whole, and
building the indexes anew heals what Java left out; where Java made table and indexes, we keep them up.

Method: updates, inserts and a compaction of Java on a table of ours, commits of ours between them; what
``validate_metadata`` finds must be on the list of Java's defects. Then a bucketed table of Java's with both
indexes by its own SQL: we write, compact, drop and build, and Java reads through the result.
"""

from __future__ import annotations

import pytest
from compare import assert_same
from indexed_tables import (
    RECORD_INDEX,
    THROUGH,
    agree,
    created,
    found_missing,
    opened,
    options,
    our_answers_are_whole,
    ready,
    rows_of,
)
from java_hudi import JavaHudi

pytestmark = [
    pytest.mark.supports("Indexes", "record index: maintained and built beside writers"),
    pytest.mark.supports("Indexes", "secondary index: maintained and built beside writers"),
]


@pytest.mark.parametrize(
    ("kind", "columns"), [("record_index", ()), ("secondary_index", ("name",))], ids=["record", "secondary"]
)
def test_java_goes_on_beside_an_index_of_keys_and_building_it_anew_heals(
    kind: str, columns: tuple[str, ...], java: JavaHudi, path: str
) -> None:
    created(path).create_index(kind, columns)
    opened(path).upsert(rows_of(range(25, 35), 120))
    agree(java, path)
    given = options(**RECORD_INDEX)
    java.write(path, rows_of(range(8), 200), given)
    assert found_missing(path) == {}, "updates of Java's are kept up"
    java.write(path, rows_of(range(30, 50), 210), given)
    opened(path).upsert(rows_of(range(45, 60), 220))
    assert found_missing(path) == {"record_index missing": {str(key) for key in range(35, 45)}}
    assert_same(java.read(path, THROUGH), our_answers_are_whole(path), ["id"])
    java.compact(path, given)
    assert set(found_missing(path)) == {"record_index missing"}
    our_answers_are_whole(path)
    opened(path).reindex_all()
    agree(java, path)
    opened(path).upsert(rows_of(range(55, 65), 230))
    agree(java, path)


@pytest.mark.parametrize("partition_by", [(), ("city",)], ids=["plain", "partitioned"])
def test_we_go_on_with_indexes_of_keys_that_java_made_on_its_bucketed_table(
    partition_by: tuple[str, ...], java: JavaHudi, path: str
) -> None:
    given = options(partition_by)
    name = f"made_by_java_{len(partition_by)}"
    java.write(path, rows_of(range(20), 100), given, mode="overwrite")
    java.compact(path, given)
    java.call("sql", text=f"create table {name} using hudi location '{path}'")
    try:
        for making in ("record_index on {} (id)", "by_name on {} (name)"):
            java.call("sql", text="create index " + making.format(name), conf=given)
        assert ready(path) == {"files", "record_index", "by_name"}
        agree(java, path)
        opened(path).upsert(rows_of(range(15, 40), 110))
        agree(java, path)
        assert opened(path).compact()
        opened(path).upsert(rows_of(range(35, 45), 120))
        agree(java, path)
        opened(path).drop_index("by_name")
        opened(path).reindex("record_index")
        opened(path).create_index("column_stats", ["ts"])
        opened(path).create_index("secondary_index", ["name"], name="by_name")
        opened(path).upsert(rows_of(range(40, 50), 130))
        assert ready(path) == {"files", "record_index", "column_stats", "by_name"}
        agree(java, path)
    finally:
        java.call("sql", text=f"drop table {name}")
