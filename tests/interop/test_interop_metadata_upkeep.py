"""Goal: Java reads through metadata tables that mainstem cleaned and archived, goes on with them, cleans and
archives them itself; mainstem goes on after Java.

Method: with small bounds mainstem commits until old files and instants of the metadata table are gone; Java
reads through it and writes as often itself, then mainstem again. After each turn Java's answers with and
without the metadata table are compared with ours, and the metadata table with the data.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.storage import paths
from mainstem.timeline.instant import parse_instant

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
THROUGH = {"hoodie.metadata.enable": "true"}
BOUNDS = {
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.clean.fileversions.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED",
    "hoodie.metadata.compact.max.delta.commits": "3",
    "hoodie.archive.automatic": "true",
}
JAVA = nbcc_options(
    "kept", record_key=["id"], ordering=["ts"], buckets=2,
    extra={
        **BOUNDS, "hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.partition.stats.enable": "false",
    },
)  # fmt: skip
OURS = {**BOUNDS, "hoodie.archive.async": "false", "hoodie.bucket.index.num.buckets": "2"}


def rows_of(ids: range, ts: int) -> pa.Table:
    return pa.table({"id": list(ids), "city": ["rome"] * len(ids), "ts": [ts] * len(ids)}, SCHEMA)


def agree(java: JavaHudi, path: str) -> None:
    table = mainstem.open_table(path)
    ours = table.scan().to_arrow()
    through, without = java.read_many(path, [THROUGH, {}])
    assert_same(through, ours, ["id"])
    assert_same(without, ours, ["id"])
    report = table.validate_metadata()
    assert report is not None and report.ok, report


def oldest(path: str) -> tuple[str, str, int]:
    """Of the metadata table: the oldest instant on its timeline, the oldest base file of ``files``, and how
    many files its archive has."""
    own = Path(path, paths.METADATA_TIMELINE)
    instants = (parse_instant(name) for name in os.listdir(own))
    bases = (paths.parse_hfile_name(name) for name in os.listdir(Path(path, paths.METADATA, "files")))
    return (
        min(i.requested for i in instants if i is not None and i.action in ("deltacommit", "commit")),
        min(base.instant for base in bases if base is not None),
        len(list((own / "history").glob("*.parquet"))),
    )


@pytest.mark.supports("Services", "metadata table: cleaning and archiving, beside Java's")
def test_java_and_we_clean_and_archive_the_metadata_table_in_turn(java: JavaHudi, path: str) -> None:
    java.write(path, rows_of(range(10), 1), JAVA, mode="overwrite")
    table = mainstem.open_table(path, OURS)
    for number in range(14):
        table.upsert(rows_of(range(number, number + 3), 10 + number))
    first = oldest(path)
    assert first[0] > "2" and first[1] > "2" and first[2] > 0
    agree(java, path)
    for number in range(7):
        java.write(path, rows_of(range(number, number + 2), 40 + number), JAVA)
    second = oldest(path)
    assert second[0] > first[0] and second[1] > first[1]
    agree(java, path)
    table = mainstem.open_table(path, OURS)
    for number in range(10):
        table.upsert(rows_of(range(number, number + 3), 60 + number))
    third = oldest(path)
    assert third[0] > second[0] and third[1] > second[1]
    agree(java, path)
