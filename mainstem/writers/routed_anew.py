"""Routes rows that are written already by another bucket count, or by older rings: what their log files or
staged files hold is read back and encoded again, for the buckets in which their keys live now
(``services.resizing``, ``rings_meanwhile``).

Rows keep their order, block by block, and deletes their ordering values. One block is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from mainstem.errors import CorruptTable
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.formats.log_file import BlockKind, LogBlock
from mainstem.formats.schema_resolution import project_to
from mainstem.formats.vectors import taken
from mainstem.layout.buckets import bucket_ids
from mainstem.layout.hash_rings import ring_hashes
from mainstem.layout.written_logs import written_blocks
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.commit_metadata import WriteStat
from mainstem.writers.encode_rows import Blocks, BucketEncoder, Place, Slab
from mainstem.writers.row_order import stable_order

_KEY = META_FIELDS[2]


def blocks_of(storage: Storage, stats: Iterable[WriteStat]) -> Iterator[tuple[str, LogBlock]]:
    """The blocks of log files of one instant, with their partition, each file group's in the order in which
    they are merged."""
    for stat in sorted(stats, key=_order):
        for block in written_blocks(storage, stat.path):
            yield stat.partition, block


def _order(stat: WriteStat) -> tuple[str, str, object]:
    name = paths.parse_log_name(stat.file_name)
    assert name is not None, "only log files are routed anew"
    return stat.partition, stat.file_id, name.order


def routed(
    encoder: BucketEncoder, file_id: Callable[[str, int], str], blocks: Iterable[tuple[str, LogBlock]]
) -> Iterator[tuple[Place, Blocks]]:
    """The same rows and deletes for the instant and the bucket count of the encoder's spec.

    Raises ``CorruptTable`` for a block that no writer of a bucket makes.
    """
    for partition, block in blocks:
        if block.kind == BlockKind.DELETE:
            yield from _deletes(encoder, partition, block)
        elif block.kind in (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA):
            yield from _rows(encoder, file_id, partition, block)
        else:
            raise CorruptTable(f"a block of kind {block.kind.name} among rows just written", path=block.path)


def _rows(
    encoder: BucketEncoder, file_id: Callable[[str, int], str], partition: str, block: LogBlock
) -> Iterator[tuple[Place, Blocks]]:
    table = block.table()
    keys = _text(table.column(_KEY))
    table = table.select([name for name in table.column_names if name not in META_FIELDS])
    wanted = encoder.schema
    if block.partial:
        held = set(table.column_names)
        wanted = pa.schema([field for field in wanted if field.name in held])
    rows = project_to(table, wanted).combine_chunks()
    places, bounds, order = _placed(encoder, partition, keys)
    slab = Slab(places, bounds, taken(rows, order), keys.take(order))
    yield from zip(places, encoder.blocks(slab, file_id), strict=True)


def _deletes(encoder: BucketEncoder, partition: str, block: LogBlock) -> Iterator[tuple[Place, Blocks]]:
    found = block.deletes()
    keys = _text(found.column("record_key"))
    places, bounds, order = _placed(encoder, partition, keys)
    plain = found.column("ordering_is_default").combine_chunks()
    for place, low, high in zip(places, bounds[:-1], bounds[1:], strict=True):
        here = order.slice(low, high - low)
        for default in (False, True):  # a writer gives all of them a value, or none
            some = here.filter(plain.take(here) if default else _not(plain.take(here)))
            if not len(some):
                continue
            ordering = None if default else _ordering(found.column("ordering").combine_chunks().take(some))
            yield place, encoder.deletes(partition, keys.take(some), ordering)


def _ordering(values: pa.Array) -> Sequence[pa.Array]:
    return values.flatten() if pa.types.is_struct(values.type) else [values]


def _not(mask: pa.Array) -> pa.Array:
    return pa.array(~mask.to_numpy(zero_copy_only=False))


def _placed(
    encoder: BucketEncoder, partition: str, keys: pa.Array
) -> tuple[list[Place], list[int], pa.Array]:
    """Places, bounds and order of rows with these keys, sorted by bucket."""
    spec = encoder.spec
    if encoder.rings is not None:
        hashes = ring_hashes(keys, hash_fields=spec.hash_fields, parts=None)
        buckets, _ = encoder.rings.find(hashes, np.zeros(len(keys), np.int64), [partition])
    else:
        buckets = bucket_ids(keys, buckets=spec.buckets, hash_fields=spec.hash_fields, parts=None)
    order = stable_order(buckets.astype(np.int64))
    numbers, starts = np.unique(buckets[order], return_index=True)
    places: list[Place] = [(partition, number) for number in numbers.tolist()]
    return places, [*starts.tolist(), len(order)], pa.array(order)


def _text(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.string()), *column.cast(pa.string()).chunks])
