"""Goal: Hudi's SQL about indexes is read as Hudi reads it, and says where it is wrong.

Method: statements are read and what they wish for is compared, without a session; ``test_services_on_spark``
carries some out.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from mainstem.errors import Invalid
from mainstem.spark.index_sql import wished
from mainstem.spark.index_syntax import CREATE, DROP, REBUILD, REFRESH, SHOW, parse

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "text",
    ["select 1", "", "create table index (x int)", "drop table t", "show tables", "refresh table index",
     "refresh index", "-- create index\nselect 2", "create view v as select 'drop index a on t'"],
)  # fmt: skip
def test_other_statements_are_not_ours(text):
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "verb", "name", "table", "lenient"),
    [
        ("CREATE INDEX i ON t (x)", CREATE, "i", ("t",), False),
        ("create index if not exists `a b` on table db.t using column_stats (x);", CREATE, "a b", ("db", "t"),
         True),
        ("/* a */ DROP INDEX IF EXISTS i ON TABLE hudi.`/a/b``c`", DROP, "i", ("hudi", "/a/b`c"), True),
        ("drop index if on t", DROP, "if", ("t",), False),
        ("SHOW INDEXES FROM t", SHOW, "", ("t",), False),
        ("show indexes in table t -- all", SHOW, "", ("t",), False),
        ("SHOW INDEXES ON table", SHOW, "", ("table",), False),
        ("REINDEX ON t", REBUILD, "", ("t",), False),
        ("REINDEX INDEX i ON t;;", REBUILD, "i", ("t",), False),
        ("REFRESH INDEX i ON t", REFRESH, "i", ("t",), False),
    ],
)  # fmt: skip
def test_statements_are_read_as_spark_and_hudi_write_them(text, verb, name, table, lenient):
    found = parse(text)
    assert found is not None and found.problem is None
    assert (found.verb, found.name, found.table, found.lenient) == (verb, name, table, lenient)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("CREATE INDEX\n  i ON t USING", r"\(line 2, column 15, at its end\): expected a kind of index"),
        ("CREATE INDEX i ON t", "expected USING or "),
        ("CREATE INDEX i ON t (x", r"\(line 1, column 23, at its end\): expected \)"),
        ("CREATE INDEX i ON t (x) OPTIONS (a=1, a=2)", "line 1, column 39, .*'a' is given twice"),
        ("CREATE INDEX i ON t (x) OPTIONS (a=)", r"line 1, column 36, .* the value of 'a'"),
        ("DROP INDEX i ON t CASCADE", r"line 1, column 19, at .CASCADE.\): expected the end"),
    ],
)  # fmt: skip
def test_what_is_wrong_behind_the_table_is_told_with_its_place(text, where):
    found = parse(text)
    assert found is not None
    with pytest.raises(Invalid, match=where):
        raise found.problem or AssertionError("nothing was wrong")


def test_a_statement_whose_table_cannot_be_read_is_refused():
    with pytest.raises(Invalid, match=r"line 1, column 15, at 't'.: expected ON"):
        parse("DROP INDEX ON t")


@pytest.mark.parametrize(
    ("what", "kind", "partition", "columns", "options"),
    [
        ("i ON t (rider)", "secondary_index", "secondary_index_i", ("rider",), {}),
        ("record_index ON t (id)", "record_index", "record_index", (), {}),
        ("column_stats ON t USING column_stats", "column_stats", "column_stats", (), {}),
        ("column_stats ON t USING COLUMN_STATS (a, b.c)", "column_stats", "column_stats", ("a", "b.c"), {}),
        ("bloom_filters ON t USING bloom_filters (id)", "bloom_filters", "bloom_filters", (), {}),
        ("i ON t USING bloom_filters (rider)", "expr_index", "expr_index_i", ("rider",),
         {"expr": "identity", "type": "bloom_filters"}),
        ("i ON t USING bloom_filters(id) OPTIONS(expr='identity')", "expr_index", "expr_index_i", ("id",),
         {"expr": "identity", "type": "bloom_filters"}),
        ("i ON t USING column_stats(ts) OPTIONS(expr='from_unixtime', format = 'yyyy-MM-dd')", "expr_index",
         "expr_index_i", ("ts",), {"expr": "from_unixtime", "format": "yyyy-MM-dd", "type": "column_stats"}),
        ("i ON t USING column_stats (lower(city))", "expr_index", "expr_index_i", ("city",),
         {"expr": "lower", "type": "column_stats"}),
        ("i ON t USING lower (city)", "expr_index", "expr_index_i", ("city",),
         {"expr": "lower", "type": "column_stats"}),
        ("i ON t USING secondary_index (a) OPTIONS ('hoodie.x' = 3)", "secondary_index", "secondary_index_i",
         ("a",), {"hoodie.x": "3"}),
    ],
)  # fmt: skip
def test_what_is_wished_follows_hudis_rules(what, kind, partition, columns, options):
    statement = parse(f"CREATE INDEX {what}")
    assert statement is not None and statement.problem is None
    found = wished(statement, ("id",))
    assert (found.kind, found.partition, found.columns) == (kind, partition, columns)
    assert found.options == options
    assert found.name == (partition.partition("_index_")[2] or None)


def test_a_vector_index_has_one_column_a_name_and_the_options_of_its_engine():
    statement = parse("CREATE INDEX v ON t USING vector(embedding) OPTIONS (engine='hnsw', clusters=4)")
    assert statement is not None and statement.problem is None
    found = wished(statement, ("id",))
    assert (found.kind, found.name, found.columns) == ("vector", "v", ("embedding",))
    assert found.options == {"engine": "hnsw", "clusters": "4"}


def test_an_index_of_which_a_table_has_one_keeps_its_name_and_that_is_told():
    statement = parse("CREATE INDEX fares ON t USING column_stats (fare)")
    assert statement is not None
    with pytest.warns(UserWarning, match="is called column_stats, not 'fares'"):
        assert wished(statement, ("id",)).name is None


def test_a_part_of_the_record_key_is_refused():
    statement = parse("CREATE INDEX i ON t (a)")
    assert statement is not None
    with pytest.raises(Invalid, match=r"on the whole record key \(a, b\)"):
        wished(statement, ("a", "b"))
