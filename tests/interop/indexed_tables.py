"""Tables with a bucket index on which indexes are made and written by Java and by mainstem in turn."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
from compare import assert_same
from java_hudi import JavaHudi, nbcc_options

import mainstem

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("name", pa.string()), ("ts", pa.int64())])
THROUGH = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
RECORD_INDEX = {"hoodie.metadata.record.index.enable": "true"}
#: Rows of indexes of keys are then made of the commit's statistics, after its data files.
BATCH = {"hoodie.metadata.streaming.write.enabled": "false"}


def rows_of(ids: Iterable[int], ts: int) -> pa.Table:
    """Rows of two cities; the names say when they were written."""
    ids = list(ids)
    return pa.table(
        {
            "id": ids, "city": [("paris", "rome")[i % 2] for i in ids],
            "name": [f"n{i}-{ts}" for i in ids], "ts": [ts] * len(ids),
        },
        schema=SCHEMA,
    )  # fmt: skip


def created(path: str) -> mainstem.Table:
    """A table of ours with a metadata table, some base files and log files on top of them."""
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=2, name="indexed",
        properties={"hoodie.metadata.enable": True},
    )  # fmt: skip
    table.upsert(rows_of(range(20), 100))
    table.compact()
    table.upsert(rows_of(range(10, 30), 110))
    return opened(path)


def options(partition_by: tuple[str, ...] = (), **more: str) -> dict[str, str]:
    """Of a Java writer that builds and drops nothing that it is not told to."""
    return nbcc_options(
        "indexed", record_key=["id"], ordering=["ts"], partition_by=partition_by, buckets=2,
        extra={
            "hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "false",
            "hoodie.metadata.auto.delete.partitions": "false", **more,
        },
    )  # fmt: skip


def opened(path: str) -> mainstem.Table:
    """As another process would open it."""
    return mainstem.open_table(path, {"hoodie.bucket.index.num.buckets": 2})


def found_missing(path: str) -> dict[str, set[str]]:
    """What ``validate_metadata`` finds, as keys by "partition kind"."""
    report = opened(path).validate_metadata()
    assert report is not None
    found: dict[str, set[str]] = {}
    for one in report.differences:
        found.setdefault(f"{one.partition} {one.kind}".strip(), set()).add(one.key)
    return found


def ready(path: str) -> set[str]:
    """Names of the indexes that are ready."""
    return {index.name for index in opened(path).indexes() if index.state == "ready"}


def our_answers_are_whole(path: str) -> pa.Table:
    """Every row of the full read is found by its key and by its name, whatever the indexes lack."""
    table = opened(path)
    whole = table.scan().to_arrow()
    for column in ("id", "name"):
        for value in whole[column].to_pylist()[::5]:
            assert len(table.scan(filter=pc.field(column) == value).to_arrow()) == 1, (column, value)
    return whole


def agree(java: JavaHudi, path: str) -> None:
    """Nothing differs between metadata and data, and Java reads our rows with indexes and without."""
    assert found_missing(path) == {}
    whole = our_answers_are_whole(path)
    for read in java.read_many(path, [THROUGH, {}]):
        assert_same(read, whole, ["id"])
    some = whole.slice(0, 1).to_pylist()[0]
    for where in (f"id = {some['id']}", f"name = '{some['name']}'"):
        assert java.files_read(path, THROUGH, where)[0] == 1, where
