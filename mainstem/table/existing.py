"""Checks of a table that another engine filled: bucket count, file ids, sampled keys.

The bucket count is not reliably stored by Hudi (Flink's default is 4, Spark's 256), and two writers
with different counts double rows without an error. So a count is believed only if every file id and a
sample of the keys fit it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.formats.log_file import BlockKind, read_blocks
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.table.bucket import bucket_ids, file_id_bucket
from mainstem.table.partitions import list_partitions
from mainstem.table.properties import (
    BUCKET_ENGINE,
    BUCKETS,
    BUCKETS_MAX,
    INDEX_TYPE,
    WITHOUT_BUCKETS,
    TableConfig,
)
from mainstem.timeline.active import load_timeline
from mainstem.timeline.instant import REPLACECOMMIT

_SAMPLED_FILES = 16
_SAMPLED_KEYS = 200
_KEY = META_FIELDS[2]


def check_buckets(storage: Storage, config: TableConfig) -> int:
    """The bucket count to write with; ``config`` is completed by what the caller gave.

    Raises ``Invalid`` when it is nowhere to be had or does not fit what the table holds, and
    ``Unsupported`` for tables with replaced file groups or with another index than the simple bucket index.
    """
    count = config.buckets
    if count is None:
        _check_index(storage, config)
        raise Invalid(
            f"the table does not say its bucket count: give {BUCKETS} as all its writers do (Spark's"
            " default is 256, Flink's is 4). A wrong count would double rows",
            table=storage.base,
        )
    if _made_here(storage):
        return count
    for instant in load_timeline(storage).instants:
        if instant.comparable_action == REPLACECOMMIT:
            raise Unsupported(
                f"the timeline holds the {instant.action} {instant.requested}: file groups were"
                " replaced, and non-blocking writers append to the replaced ones (apache/hudi#19793)",
                table=storage.base,
            )
    _check_files(storage, config, count)
    return count


def _check_index(storage: Storage, config: TableConfig) -> None:
    """``Unsupported`` if a file id of the table is none of a bucket index; its first one tells."""
    for path, file_id in _file_ids(storage, config):
        if not _is_bucket(file_id):
            raise _other_index(storage, config, file_id, path)


def _file_ids(storage: Storage, config: TableConfig) -> Iterator[tuple[str, str]]:
    """(path, file id) of every data file."""
    for listing in list_partitions(storage, partitioned=bool(config.partition_fields)):
        for name in listing.names:
            parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
            if parsed is not None:
                yield paths.in_partition(listing.partition, name), parsed.file_id


def _is_bucket(file_id: str) -> bool:
    bucket = file_id_bucket(file_id)
    return bucket is not None and bucket < BUCKETS_MAX


def _other_index(storage: Storage, config: TableConfig, file_id: str, path: str) -> Unsupported:
    return Unsupported(
        f"the table has no simple bucket index, but {_index_of(storage, config)}: file id {file_id!r} does not"
        f" begin with the eight digits of a bucket (file {path}). {WITHOUT_BUCKETS}",
        table=storage.base,
    )


def _index_of(storage: Storage, config: TableConfig) -> str:
    """What can be known of the index of a table whose file ids are none of buckets."""
    if storage.stat(paths.CONSISTENT_HASHING) is not None:
        return f"{INDEX_TYPE}=BUCKET with {BUCKET_ENGINE}=CONSISTENT_HASHING"
    if "record_index" in config.metadata_partitions:
        return "another index (RECORD_INDEX or RECORD_LEVEL_INDEX, as its metadata table has a record index)"
    return "another index (SIMPLE or BLOOM if Spark wrote it, FLINK_STATE if Flink did; Hudi does not store it)"


def _made_here(storage: Storage) -> bool:
    """Tables that mainstem created carry the fence folder from the start and the count for sure."""
    return storage.stat(f"{paths.FENCE}/{paths.MADE_HERE}") is not None


def _check_files(storage: Storage, config: TableConfig, count: int) -> None:
    sampled = 0
    for listing in list_partitions(storage, partitioned=bool(config.partition_fields)):
        owners: dict[int, str] = {}
        for name in listing.names:
            parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
            if parsed is None:
                continue
            path = paths.in_partition(listing.partition, name)
            bucket = file_id_bucket(parsed.file_id)
            if bucket is None or not _is_bucket(parsed.file_id):
                raise _other_index(storage, config, parsed.file_id, path)
            if bucket >= count:
                raise Invalid(
                    f"file id {parsed.file_id!r} does not fit {BUCKETS}={count}: expected eight digits"
                    f" below {count} in front; the table has another bucket count (file {path})",
                    table=storage.base,
                )
            other = owners.setdefault(bucket, parsed.file_id)
            if other != parsed.file_id:
                raise CorruptTable(
                    f"bucket {bucket} has two file groups, {other!r} and {parsed.file_id!r}",
                    path=path,
                    table=storage.base,
                )
            if sampled < _SAMPLED_FILES:
                sampled += _check_keys(storage, config, path, bucket, count)


def _check_keys(
    storage: Storage, config: TableConfig, path: str, bucket: int, count: int
) -> int:
    checked = 0
    for keys in _keys_of(storage, path):
        if len(keys) == 0:
            continue
        checked = 1
        keys = keys.slice(0, _SAMPLED_KEYS)
        found = bucket_ids(keys, buckets=count, hash_fields=config.hash_fields, parts=None)
        wrong = [i for i, b in enumerate(found.tolist()) if b != bucket]
        if wrong:
            key = keys[wrong[0]].as_py()
            raise Invalid(
                f"record key {key!r} hashes to bucket {found[wrong[0]]} of {count} over"
                f" {list(config.hash_fields)}, but lies in bucket {bucket} (file {path}): the bucket"
                " count, the hash fields or the index of the table are others. Nothing was written;"
                f" give the {BUCKETS} and hoodie.bucket.index.hash.field of its other writers",
                table=storage.base,
            )
    return checked


def _keys_of(storage: Storage, path: str) -> Iterator[pa.Array]:
    if path.endswith(".parquet"):
        import pyarrow.parquet as pq

        with storage.open_input(path) as source:
            file = pq.ParquetFile(source)
            if file.num_row_groups and _KEY in file.schema_arrow.names:
                yield file.read_row_group(0, columns=[_KEY]).column(0).combine_chunks()
        return
    try:
        blocks = read_blocks(storage.view(path), path=path, damaged="skip")
    except FileNotFoundError:
        return
    for block in blocks[:2]:
        if block.kind in (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA):
            column = block.table([_KEY]).column(0)
            yield column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
