"""Merges the rows of indexes of keys without decoding each: of a key's values the newest counts, whatever it
says (``row_merging``), and many rows have one value, which names a file group and an instant, or nothing.

So keys and values stay bytes. Each distinct value is decoded once, which checks it, and encoded as a base
file holds it; that is the same for all file groups of an index but for the file's name, which is put in last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.formats.avro_put_flat import branch
from mainstem.formats.avro_rows import zigzag
from mainstem.formats.avro_schema import AvroType
from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.records.flat_rows import decode, encode_values
from mainstem.metadata.records.key_order import key_order
from mainstem.metadata.records.record_schema import FILE_NAME, parse_record_schema

#: contents of which the newest row counts, with few distinct values
OF_KEYS = frozenset((Content.RECORDS, Content.SECONDARY))
#: more distinct values than this are decoded by columns
_DISTINCT_MAX = 16_384


@dataclass(frozen=True)
class Piece:
    """Rows of a file or of blocks: binary keys and values, and the schema with which they were encoded."""

    keys: pa.Array
    values: pa.Array
    schema_text: str


@dataclass
class Recoder:
    """Values of one content as base files of one schema hold them, without the file's name; safe to share
    between threads."""

    content: Content
    schema_text: str
    #: schema of the values -> value -> the same as a base file holds it
    _known: dict[str, dict[bytes, bytes]] = field(default_factory=dict)

    def values(self, values: Sequence[bytes], schema_text: str) -> list[bytes]:
        """Raises ``CorruptTable`` for values that do not parse, ``Unsupported`` as ``flat_rows.decode``."""
        known = self._known.setdefault(schema_text, {})
        if new := [value for value in values if value not in known]:
            keys = pa.array([""] * len(new), pa.string())
            rows = decode(self.content, keys, pa.array(new, pa.binary()), schema_text)
            made = encode_values(self.content, rows, self.schema_text)
            known.update(zip(new, made.to_pylist(), strict=True))
        return [known[value] for value in values]


def newest_values(
    pieces: Sequence[Piece | pa.Array], recoder: Recoder, file_name: str, base_name: str = ""
) -> tuple[pa.Array, pa.Array] | None:
    """Keys, sorted, and values (a dictionary array) of the base file of this name that merges the pieces,
    oldest first; an array is of deleted keys. Tombstones stay. ``base_name``: of the base file among them.

    None if this is no way to make them: too many distinct values, or a schema without a place for the name
    where it was looked for. Errors as ``Recoder.values``; keys that are no texts are refused there, too.
    """
    at = name_place(recoder.schema_text)
    if at is None:
        return None
    distinct: list[bytes] = []
    keys, numbers = [], []
    for schema_text, some in _by_schema([piece for piece in pieces if _count(piece)]):
        if schema_text is None:
            for gone in some:
                keys.append(gone.cast(pa.binary()))
                numbers.append(np.full(len(gone), -1))
            continue
        coded = pa.chunked_array([piece.values.cast(pa.binary()) for piece in some], pa.binary())
        coded = coded.dictionary_encode().combine_chunks()
        if len(coded.dictionary) > _DISTINCT_MAX:
            return None
        numbers.append(coded.indices.to_numpy() + np.int64(len(distinct)))
        keys += [piece.keys.cast(pa.binary()) for piece in some]
        values = _nameless(coded.dictionary.to_pylist(), base_name, schema_text)
        distinct += recoder.values(values, schema_text)
    if not keys:
        return pa.array([], pa.binary()), pa.array([], pa.binary())
    whole = pc.dictionary_encode(pa.chunked_array(keys, pa.binary())).combine_chunks()
    number, codes = np.concatenate(numbers), whole.indices.to_numpy()
    last = np.empty(len(whole.dictionary), np.int64)
    last[codes] = number  # for repeated codes numpy keeps the last
    texts, there = whole.dictionary, last >= 0
    if not there.all():
        texts, last = texts.filter(pa.array(there)), last[there]
    order = key_order(texts.cast(pa.string()))
    named = _named(distinct, at, file_name, recoder.schema_text)
    chosen = pa.array(last[order].astype(np.int32))
    return texts.take(pa.array(order)), pa.DictionaryArray.from_arrays(chosen, pa.array(named, pa.binary()))


def _count(piece: Piece | pa.Array) -> int:
    return len(piece.keys if isinstance(piece, Piece) else piece)


def _by_schema(pieces: Sequence[Piece | pa.Array]) -> list[tuple[str | None, list]]:
    """Neighbours with one schema together; None for deleted keys."""
    found: list[tuple[str | None, list]] = []
    for piece in pieces:
        schema_text = piece.schema_text if isinstance(piece, Piece) else None
        if found and found[-1][0] == schema_text:
            found[-1][1].append(piece)
        else:
            found.append((schema_text, [piece]))
    return found


@lru_cache(maxsize=16)
def name_place(schema_text: str) -> int | None:
    """Which byte of a value says that it has no file name; -1 if the schema has no such field, None if that
    depends on the row."""
    fields = parse_record_schema(schema_text).record.fields
    if FILE_NAME not in dict(fields):
        return -1
    for at, (name, kind) in enumerate(fields):
        if not kind.nullable or kind.kind != "string":  # Java's columns of its own stand first
            return None
        if name == FILE_NAME:
            return at
    return None


def _nameless(values: list[bytes], file_name: str, schema_text: str) -> list[bytes]:
    """The values without this name of a file: then those of all base files are alike."""
    at = name_place(schema_text) if file_name else None
    if at is None or at < 0:
        return values
    name, nothing = _name_field(file_name, schema_text)
    end = at + len(name)
    return [b"".join((v[:at], nothing, v[end:])) if v.startswith(name, at) else v for v in values]


def _named(values: Sequence[bytes], at: int, file_name: str, schema_text: str) -> list[bytes]:
    if at < 0:
        return list(values)
    name, nothing = _name_field(file_name, schema_text)
    if not all(value.startswith(nothing, at) for value in values):
        raise Invalid("a row of metadata that names a file before it has one")
    return [b"".join((value[:at], name, value[at + 1 :])) for value in values]


def _name_field(file_name: str, schema_text: str) -> tuple[bytes, bytes]:
    """The field of a value that names its file, and the same without a name."""
    kind: AvroType = dict(parse_record_schema(schema_text).record.fields)[FILE_NAME]
    text = file_name.encode()
    return branch(kind) + zigzag(len(text)) + text, bytes((kind.null_tag,))
