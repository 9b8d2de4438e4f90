"""The record keys and buckets that rows passing a filter can have.

They are known if the filter lists values of ``_hoodie_record_key``, or of every record key field. A set may
be too large, never too small: if Hudi releases disagree about a key's text, it contains each of the texts.
Only text and integer fields are used: how a time or a decimal becomes a key depends on a writer option that
the table does not store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.filters.predicates import Predicate, Term, listed
from mainstem.layout.bucket_rules import BucketRules
from mainstem.layout.buckets import file_id_bucket, key_hashes
from mainstem.layout.foreign_tables import made_here
from mainstem.layout.key_generator import COMPLEX, KeyGenerator
from mainstem.layout.keys import as_array, value_texts
from mainstem.layout.properties import TableConfig, load_config
from mainstem.layout.stored_bucket_rules import counts_as_made
from mainstem.limits import WANTED_KEYS_MAX
from mainstem.merge.rules import KEY_COLUMN
from mainstem.options.placing import BUCKET_ENGINE, INDEX_TYPE
from mainstem.storage.protocol import Storage


def wanted_keys(conjuncts: Sequence[Predicate], config: TableConfig, schema: pa.Schema) -> pa.Array | None:
    """Texts of the record keys that a row passing all conjuncts may have; None: any."""
    values: dict[str, pa.Array] = {}
    for conjunct in conjuncts:
        found = listed(conjunct)
        if found is not None and found[0] == Term(found[0].column):
            values.setdefault(found[0].column, found[1])
    given = texts_of(values.get(KEY_COLUMN), pa.string())
    if given is not None:
        return given if len(given) <= WANTED_KEYS_MAX else None
    return _made_of(values, config, schema)


def _made_of(values: dict[str, pa.Array], config: TableConfig, schema: pa.Schema) -> pa.Array | None:
    fields = config.record_key
    if not fields or config.consistent_timestamps or set(fields) & set(config.partition_fields):
        return None  # a partition column may be shown differently from the value its keys were made of
    columns = []
    for name in fields:
        at = schema.get_field_index(name)
        texts = None if at < 0 else texts_of(values.get(name), schema.field(at).type)
        if texts is None:
            return None
        columns.append(pc.unique(texts))
    if int(np.prod([float(len(c)) for c in columns])) > WANTED_KEYS_MAX:
        return None
    rows = _combinations(columns, fields)
    try:
        return key_texts(rows, config)
    except Invalid:  # a null or empty part
        return None


def key_texts(rows: pa.Table, config: TableConfig) -> pa.Array:
    """Record keys of rows that have the key columns alone: a text each, in their order, and after them
    another one each where releases of Hudi disagree. Raises ``Invalid`` for a row without a key."""
    keys = KeyGenerator.of(config).record_keys(rows).texts
    if config.key_generator == COMPLEX and rows.num_columns == 1:  # HUDI-7001: with or without its name
        keys = pa.concat_arrays([keys, as_array(value_texts(rows.column(0), "key"))])
    return keys


def _combinations(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Table:
    shape = [len(column) for column in columns]
    places = np.unravel_index(np.arange(int(np.prod(shape))), shape)
    return pa.table(
        {n: c.take(pa.array(at)) for n, c, at in zip(names, columns, places, strict=True)}
    )


def texts_of(values: pa.Array | None, kind: pa.DataType) -> pa.Array | None:
    """Values of a filter as the key generator writes them for a column of type ``kind``; None if unknown."""
    if values is None:
        return None
    types = pa.types
    whole = types.is_integer(values.type) and types.is_integer(kind)
    text = (types.is_string(values.type) or types.is_large_string(values.type)) and types.is_string(kind)
    if not whole and not text:
        return None
    return as_array(value_texts(values, "key"))


@dataclass(frozen=True)
class WantedBuckets:
    """The buckets of some keys, in a partition of ``default`` buckets or of as many as ``rules`` say.

    ``counts``: every bucket count by which rows may lie, of a table without rules.
    """

    hashes: np.ndarray
    default: int
    counts: frozenset[int]
    rules: BucketRules | None
    _known: dict[int, frozenset[int]] = field(default_factory=dict)

    def of(self, partition: str) -> tuple[frozenset[int], int]:
        """The buckets in a partition, and how many it has."""
        count = self.default if self.rules is None else self.rules.count(partition)
        if count not in self._known:
            counts = self.counts if self.rules is None else (count,)
            found = (self.hashes % np.uint32(each) for each in sorted(counts))
            self._known[count] = frozenset(number for each in found for number in each.tolist())
        return self._known[count], count

    def may_hold(self, partition: str, file_id: str) -> bool:
        """Whether a file group may hold one of the keys. True also if its id names no valid bucket: some
        writer did not follow the bucket index."""
        bucket = file_id_bucket(file_id)
        wanted, count = self.of(partition)
        return bucket is None or bucket >= count or bucket in wanted


def wanted_buckets(keys: pa.Array | None, config: TableConfig, storage: Storage) -> WantedBuckets | None:
    """Buckets of these keys; None if the table does not determine how keys map to buckets.

    A table created by mainstem has its bucket counts in the properties from the start, and every engine uses
    them. For other tables each writer is configured with the count, and a reader cannot know it. If the table
    was resized, rows may lie by any count that it had: the query's view may be of before it or of after it.
    The properties are read for this, after the view was: a resize is announced there before it completes. So
    is a file by which another engine gives partitions counts of their own.
    """
    if keys is None or not _is_bucketed(config) or config.buckets is None:
        return None
    if not made_here(storage, config):
        return None
    rules = config.bucket_rules
    if (rules is not None or not config.exclusive) and not counts_as_made(storage, rules):
        return None
    counts = config.every_buckets | load_config(storage).every_buckets
    hashes = key_hashes(keys, hash_fields=config.hash_fields, parts=None)
    return WantedBuckets(hashes, config.buckets, counts, rules)


def _is_bucketed(config: TableConfig) -> bool:
    kind, engine = (config.raw.get(key, "").strip().upper() for key in (INDEX_TYPE, BUCKET_ENGINE))
    return kind == "BUCKET" and engine in ("", "SIMPLE")
