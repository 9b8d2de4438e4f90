"""Writes the rows of a transaction on a table without buckets again, into one that begins now: others
replaced its file groups, or placed its keys, in a way that its own instant cannot follow
(``placed_rows.KeyTaken``).

  the rows      as they were given, if they are kept (``placed_rows.Kept``); else read back from the
                transaction's own log files, file by file, with what is in memory: rows of new keys, and
                deletes of keys that lie nowhere
  -> begin a later transaction, of the same guard and metadata; its inflight file says ``PLACED_ANEW``
  -> its rows, in their order, each to where its key lives now
  -> the earlier one is undone by its owner -> the later one commits

So the later one can only complete after the earlier one is gone. If the process dies in between, both are
rolled back as any dead writer.

**The rounds end.** Clusterings and overwrites give way to a transaction in flight whose inflight file says
``PLACED_ANEW`` (``give_way``). So of these only one that completes before that file is seen can end its next
round. (Where an instant can follow clusterings, as on a disk, it does so twice, and becomes a later one then,
for the same reason.) On an object store, others may also place its new keys; but each round knows those that
were placed before it, which are no new keys then. Where keys move, a writer that began later must have
completed earlier, each time. After ``ROUNDS_MAX`` rounds the transaction ends as ``KeyTaken``.

Order: rows of one key are in one file group, and there in their order, unless files went while keys were
looked for (``KeyPlaces.looked_again``). Then a transaction whose rows are not kept ends as ``KeyTaken``, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from mainstem.formats.avro_schema import META_FIELDS
from mainstem.formats.log_file import BlockKind, LogBlock
from mainstem.formats.schema_resolution import project_to
from mainstem.layout.schema_fit import arrow_user_schema
from mainstem.storage.protocol import Storage
from mainstem.timeline.commit_metadata import WriteStat
from mainstem.writers.encode_rows import Keyed
from mainstem.writers.routed_anew import blocks_of
from mainstem.writers.row_order import key_turns
from mainstem.writers.unplaced_rows import TOGETHER_BYTES
from mainstem.writers.write_spec import WriteSpec

#: how often the rows of one transaction are placed anew
ROUNDS_MAX = 20

_KEY = META_FIELDS[2]


def rows_read_back(
    storage: Storage, spec: WriteSpec, stats: Iterable[WriteStat], *, one_per_table: bool
) -> Iterator[Keyed]:
    """What log files of one transaction hold, in an order that keeps that of each key.

    ``one_per_table``: a key may lie in another partition than its row names, where it does not move.
    """
    pieces = (_keyed(spec, partition, block, one_per_table) for partition, block in blocks_of(storage, stats))
    for joined in _joined(pieces):
        yield from in_turns(joined)


def _keyed(spec: WriteSpec, partition: str, block: LogBlock, one_per_table: bool) -> Keyed:
    schema = arrow_user_schema(spec.user_schema)
    if block.kind == BlockKind.DELETE:
        found = block.deletes()
        keys = _text(found.column("record_key"))
        given = _ordering(spec, found.column("ordering").combine_chunks())
        return Keyed(
            only_columns(given, schema, len(keys)), keys, np.zeros(len(keys), np.int64), [partition],
            np.ones(len(keys), bool),
        )  # fmt: skip
    table = block.table()
    rows = project_to(table.drop_columns(list(META_FIELDS)), schema)
    codes, partitions = np.zeros(rows.num_rows, np.int64), [partition]
    if one_per_table:
        codes, partitions = spec.keys.partitions(rows)
    return Keyed(rows, _text(table.column(_KEY)), codes, partitions)


def _ordering(spec: WriteSpec, values: pa.Array) -> dict[str, pa.Array]:
    """Values of the ordering fields by name. Where a delete has none, nobody asks for them."""
    several = pa.types.is_struct(values.type)
    parts = values.flatten() if several else [values]
    return dict(zip(spec.ordering, parts, strict=False))


def only_columns(given: dict[str, pa.Array], schema: pa.Schema, count: int) -> pa.Table:
    """Rows of which only these columns are known; the others are null, whatever the schema says of nulls."""
    fields = [field.with_nullable(True) for field in schema]
    made = [given[f.name].cast(f.type) if f.name in given else pa.nulls(count, f.type) for f in fields]
    return pa.table(made, schema=pa.schema(fields))


def _joined(pieces: Iterable[Keyed]) -> Iterator[Keyed]:
    """Joined up to ``TOGETHER_BYTES``: each look for keys may read all keys of the table."""
    waiting: list[Keyed] = []
    size = 0
    for piece in pieces:
        if waiting and size + piece.rows.nbytes > TOGETHER_BYTES:
            yield _together(waiting)
            waiting, size = [], 0
        waiting.append(piece)
        size += piece.rows.nbytes
    if waiting:
        yield _together(waiting)


def _together(waiting: list[Keyed]) -> Keyed:
    if len(waiting) == 1:
        return waiting[0]
    numbers: dict[str, int] = {}
    codes, flags = [], []
    for one in waiting:
        at = np.array([numbers.setdefault(partition, len(numbers)) for partition in one.partitions])
        codes.append(at[one.codes])
        flags.append(np.zeros(len(one.keys), bool) if one.deleted is None else one.deleted)
    schema = pa.schema([field.with_nullable(True) for field in waiting[0].rows.schema])
    deleted = np.concatenate(flags)
    return Keyed(
        pa.concat_tables([one.rows.cast(schema) for one in waiting]),
        pa.concat_arrays([one.keys for one in waiting]),
        np.concatenate(codes),
        list(numbers),
        deleted if deleted.any() else None,
    )


def in_turns(batch: Keyed) -> Iterator[Keyed]:
    """Splits rows where one follows its key's deletion: the deletes of a batch follow its rows."""
    if batch.deleted is None or batch.deleted.all():
        yield batch
        return
    turns = key_turns(batch.keys, batch.deleted)
    last = int(turns.max())
    for turn in range(last + 1):
        mask = turns == turn
        some = pa.array(mask)
        yield (
            batch
            if not last
            else Keyed(
                batch.rows.filter(some), batch.keys.filter(some), batch.codes[mask], batch.partitions,
                batch.deleted[mask],
            )
        )  # fmt: skip


def _text(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], pa.string()), *column.cast(pa.string()).chunks])
