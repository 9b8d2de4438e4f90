"""Goal: the rows that we compute from a table's data are those that Java wrote into its metadata table.

Method: for every golden table with metadata, rows of each partition are made from its files and compared with
``mdt_records``, in every field. Where Java's own rules leave something else, the rule is named here; where
Java is wrong, the row stands in tests/golden/metadata_defects.json.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from mainstem.formats.bloom_filter import BloomSize
from mainstem.metadata.derive.expression_functions import Expression
from mainstem.metadata.metadata_partitions import Content
from tests.golden_tables.tables import GOLDEN, NAMES, expectations, unpack
from tests.metadata.java_records import (
    as_java,
    blooms,
    contents_of,
    definitions,
    expression_blooms,
    expression_statistics,
    listing,
    partition_statistics,
    record_index,
    secondary_index,
    statistics,
    texts,
)

pytestmark = pytest.mark.versions
WITH_RECORDS = [name for name in NAMES if expectations(name).get("mdt_records")]
DEFECTS = json.loads((GOLDEN / "metadata_defects.json").read_text("utf-8"))
# Built when these files were no longer in a newest slice, of which alone Java builds an index.
NOT_NEWEST = {("mdt_all_cow", "8dd92226-09d8-4f93-ba54-b068692a3da1-0_1-1338-2715_20261120100655738.parquet")}
# Rows of partitions that Java made before or without the other writer's files (crossed writers).
CROSSED = ("nbcc_two_writers_mdt", "nbcc_two_writers_mdt.crossed", "nbcc_two_writers_mdt.pending")
LOST = ("async_index", "async_index.inflight2")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    return tmp_path_factory.mktemp("built")


def differing(ours, theirs) -> list[dict]:
    """Rows that only one side has."""
    one, other = texts(ours), texts(theirs)
    return [json.loads(text) for text in ((one - other) + (other - one))]


def listed(name: str, partition: str) -> set[str]:
    return {key for d in DEFECTS if (d["table"], d["partition"]) == (name, partition) for key in d["keys"]}


def ready(name: str) -> list[str]:
    return expectations(name)["table_config"]["hoodie.table.metadata.partitions"].split(",")


def expression_definitions(name: str, path, kind: str) -> list[dict]:
    found = definitions(path).items()
    return [d for p, d in found if p.startswith("expr_") and p in ready(name) and d["indexType"] == kind]


@pytest.mark.parametrize("name", WITH_RECORDS)
@pytest.mark.supports("Indexes", "files: of Java's tables (read)")
def test_the_listing_equals_javas(name, unpacked):
    java = expectations(name)["mdt_records"]
    theirs = [*java["files"], *java["all_partitions"]]
    assert differing(as_java(Content.FILES, listing(contents_of(unpack(name, unpacked)))), theirs) == []


@pytest.mark.parametrize("name", [n for n in WITH_RECORDS if "column_stats" in ready(n)])
@pytest.mark.supports("Indexes", "column and partition statistics: of Java's tables (read)")
def test_statistics_equal_javas(name, unpacked):
    path = unpack(name, unpacked)
    contents, java = contents_of(path), expectations(name)["mdt_records"]
    stats = definitions(path)["column_stats"]
    columns, version = stats["sourceFields"], stats["version"]
    rows = list(as_java(Content.STATS, statistics(contents, columns, version)))
    for definition in expression_definitions(name, path, "column_stats"):
        rows += as_java(Content.STATS, of_expression(contents, definition))
    if "partition_stats" in ready(name):
        rows += as_java(Content.STATS, partition_statistics(contents, columns, version))
    theirs = [*java.get("column_stats", []), *java.get("partition_stats", [])]
    assert all(is_empty(row) for row in theirs if of_deletes(row))
    if is_native(name):
        rows, theirs = without_sizes(rows), without_sizes(theirs)
    for row in differing(rows, theirs):
        found = row["ColumnStatsMetadata"]
        file, column = found["fileName"], found["columnName"]
        if row["type"] == 6:
            assert name in CROSSED + LOST, row
        elif (name, file) not in NOT_NEWEST:
            keys = listed(name, "column_stats")
            assert any(k.startswith(f"{column} of ") and k.endswith(file) for k in keys), row


def is_native(name: str) -> bool:
    """Whether the table has native log files."""
    return expectations(name)["table_config"]["hoodie.table.version"] == "10"


def of_deletes(row: dict) -> bool:
    """Whether these are the statistics of a native file of deletes."""
    return ".deletes." in row["ColumnStatsMetadata"]["fileName"]


def is_empty(row: dict) -> bool:
    stats = row["ColumnStatsMetadata"]
    return not stats["valueCount"] and not stats["nullCount"] and stats.get("minValue") is None


def without_sizes(rows) -> list[dict]:
    """Java takes the statistics of native log files from their footers, which tell the sizes of columns; they
    are a hint, and no row of ours has them yet."""
    sizes = ("totalSize", "totalUncompressedSize")
    stats = [{k: v for k, v in row["ColumnStatsMetadata"].items() if k not in sizes} for row in rows]
    return [{**row, "ColumnStatsMetadata": found} for row, found in zip(rows, stats, strict=True)]


def of_expression(contents, definition):
    expression = Expression(definition["indexFunction"], definition["indexOptions"])
    return expression_statistics(contents, definition["sourceFields"][0], expression)


@pytest.mark.parametrize("name", [n for n in WITH_RECORDS if "bloom_filters" in ready(n)])
@pytest.mark.supports("Indexes", "bloom filters: of Java's tables (read)")
def test_bloom_filters_equal_javas(name, unpacked):
    path = unpack(name, unpacked)
    contents = contents_of(path)
    ours = texts(as_java(Content.BLOOM, blooms(contents)))
    theirs = texts(expectations(name)["mdt_records"]["bloom_filters"])
    assert not ours - theirs
    # Filters of an expression have the size that its build (the default) or its writer was told, and the time
    # of the build or the file.
    found = texts(
        without_timestamps(row)
        for definition in expression_definitions(name, path, "bloom_filters")
        for size in (BloomSize(), BloomSize(entries=1000))
        for row in as_java(Content.BLOOM, expression_blooms(contents, definition, size))
    )
    rest = texts(without_timestamps(json.loads(text)) for text in (theirs - ours).elements())
    assert not rest - found
    assert bool(rest) == bool(found)


def without_timestamps(row: dict) -> dict:
    return {**row, "BloomFilterMetadata": {**row["BloomFilterMetadata"], "timestamp": ""}}


def without_times(records) -> list[dict]:
    """The instant is a hint: when a key came there, by the clock of the writer's zone."""
    found = []
    for record in records:
        place = {k: v for k, v in record["recordIndexMetadata"].items() if k != "instantTime"}
        found.append({**record, "recordIndexMetadata": place})
    return found


@pytest.mark.parametrize("name", [n for n in WITH_RECORDS if "record_index" in ready(n)])
@pytest.mark.supports("Indexes", "record and secondary indexes: of Java's tables (read)")
def test_record_and_secondary_indexes_equal_javas(name, unpacked):
    path = unpack(name, unpacked)
    contents, java = contents_of(path), expectations(name)["mdt_records"]
    ours = without_times(as_java(Content.RECORDS, record_index(contents)))
    lost = {row["key"] for row in differing(ours, without_times(java["record_index"]))}
    assert lost == listed(name, "record_index")
    rows: Counter[str] = Counter()
    for partition, definition in definitions(path).items():
        if partition.startswith("secondary_") and partition in ready(name):
            (column,) = definition["sourceFields"]
            rows += texts(as_java(Content.SECONDARY, secondary_index(contents, column)))
    assert rows == texts(java.get("secondary_index", []))


def test_the_exceptions_named_here_are_needed(unpacked):
    assert {n for n, _ in NOT_NEWEST} | {*CROSSED, *LOST} <= {*WITH_RECORDS}
    for name in (*CROSSED, *LOST):
        path = unpack(name, unpacked)
        stats = definitions(path)["column_stats"]
        rows = partition_statistics(contents_of(path), stats["sourceFields"], stats["version"])
        assert differing(as_java(Content.STATS, rows), expectations(name)["mdt_records"]["partition_stats"])
