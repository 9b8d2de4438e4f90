"""What each golden table shows, as lines of docs/support.md."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

LAYOUT, QUERY, MERGE = "Tables and layouts", "Queries", "Merging"
TYPES, KEYS = "Column types", "Keys and partitions"

FEATURES = (
    ("*", QUERY, "every query type, on tables that Java wrote"),
    ("*_v8*", LAYOUT, "table version 8 (read)"),
    ("basic_mor", LAYOUT, "table version 9 (read)"),
    ("*_by_1_0_2*", LAYOUT, "tables that Hudi 1.0.2 wrote (read)"),
    ("*_by_1_1_1*", LAYOUT, "tables that Hudi 1.1.1 wrote (read)"),
    ("v10_*", LAYOUT, "table version 10 (read)"),
    ("v10_*", LAYOUT, "native log files: rows, deletes, change data (read)"),
    ("v10_lsm_tree*", LAYOUT, "storage layout lsm_tree (read)"),
    ("v10_upgraded*", LAYOUT, "slices with files of blocks and native log files (read)"),
    ("v10_downgraded*", LAYOUT, "tables that Java downgraded from version 10 to 9 (read)"),
    ("v10_*", LAYOUT, "tables that Hudi 1.3.0-SNAPSHOT wrote (read)"),
    ("basic_mor", LAYOUT, "tables that Hudi 1.2.0 wrote (read)"),
    ("flink_*", LAYOUT, "tables that Flink wrote (read)"),
    ("all_types*", TYPES, "every type of Spark, nested too (read)"),
    ("null_in_array", TYPES, "nulls in lists, two-level and three-level lists of Parquet (read)"),
    ("archive_lsm*", LAYOUT, "archived timeline (LSM, read)"),
    ("*mdt*", LAYOUT, "tables with a metadata table (read)"),
    ("async_index*", LAYOUT, "indexes under construction (read)"),
    ("bucket_consistent*", LAYOUT, "consistent hashing buckets (read)"),
    ("bucket_partition_level", LAYOUT, "partition-level buckets (read)"),
    ("bucket_hash_*", KEYS, "record keys of every key type, simple and composite"),
    ("cdc_*", LAYOUT, "tables with change data logs (CDC, read)"),
    ("clean_*", LAYOUT, "cleaned tables (a range with removed files is refused)"),
    ("clustering_*", LAYOUT, "clustered and replaced file groups (read)"),
    ("corrupt_*", LAYOUT, "damaged log blocks: an error with file and offset, or skipped as in Java"),
    ("cow_*", LAYOUT, "copy on write (read)"),
    ("killed_*", LAYOUT, "files of killed and rolled back writers are not shown"),
    ("orphan_resurrected", LAYOUT, "files of killed and rolled back writers are not shown"),
    ("keys_simple_*", KEYS, "SIMPLE key generator; hive-style and URL-encoded paths"),
    ("keys_complex_*", KEYS, "COMPLEX key generator; several partition levels"),
    ("keys_nonpart", KEYS, "NON_PARTITION key generator"),
    ("keys_custom", KEYS, "CUSTOM key generator (read)"),
    ("keys_timestamp", KEYS, "TIMESTAMP key generator (read; its column as text)"),
    ("keys_slash_date", KEYS, "slash-separated date partitions (read)"),
    ("keys_virtual_keys", KEYS, "virtual keys (read)"),
    ("log_compaction*", LAYOUT, "log compaction (read)"),
    ("log_parquet*", LAYOUT, "Parquet log blocks (read)"),
    ("log_*positions*", LAYOUT, "record positions (read)"),
    ("log_small_blocks*", LAYOUT, "many small log blocks and versions of a log file"),
    ("merge_event*", MERGE, "event time ordering"),
    ("merge_commit*", MERGE, "commit time ordering"),
    ("merge_delete_marker*", MERGE, "deletes by a marker column (delete key and delete marker)"),
    ("merge_multi_ordering*", MERGE, "several ordering fields"),
    ("merge_into_partial*", MERGE, "partial updates: IS_PARTIAL blocks"),
    ("partial_ignore_defaults*", MERGE, "partial updates: IGNORE_DEFAULTS"),
    ("partial_fill_unavailable*", MERGE, "partial updates: FILL_UNAVAILABLE"),
    ("nbcc_*", LAYOUT, "non-blocking writers: crossed, in flight, beside pending compactions (read)"),
    ("savepoint_restore*", LAYOUT, "savepoints and restores (read)"),
    ("schema_evolution*", QUERY, "schema evolution by name: added and widened columns, nested too"),
    ("schema_on_read*", QUERY, "schema on read: renamed, dropped and re-added columns"),
    ("upgraded_8_to_9*", LAYOUT, "tables that Java upgraded from version 8 to 9 (read)"),
    ("vectors*", TYPES, "VECTOR of FLOAT, DOUBLE and INT8, as Hudi 1.2 stores it"),
)


def features(name: str) -> list[tuple[str, str]]:
    """Group and feature of every line that a table proves."""
    names = (name, name.removeprefix("v10_"))
    return [
        (group, feature)
        for pattern, group, feature in FEATURES
        if any(fnmatchcase(one, pattern) for one in names) and (name == names[1] or pattern != "basic_mor")
    ]


def marked(names: list[str]) -> list[object]:
    """Test parameters with the marks of their tables."""
    return [
        pytest.param(name, marks=[pytest.mark.supports(*line) for line in features(name)]) for name in names
    ]
