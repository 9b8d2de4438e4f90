"""File ids in the record index: a UUID as two longs and a number, or else the text (``fileIdEncoding``)."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: encoding 0 holds ``<uuid>-<number>`` or a bare UUID, encoding 1 any text
UUID_ENCODING, TEXT_ENCODING = 0, 1
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(-(0|[1-9][0-9]{0,8}))?\Z")
_NAMES = ("fileIdHighBits", "fileIdLowBits", "fileIndex", "fileId", "fileIdEncoding")
#: fields of ``recordIndexMetadata`` that hold a file id
ID_FIELDS = frozenset(_NAMES)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DASHES = (8, 13, 18, 23)
_DIGITS = np.array([i for i in range(36) if i not in _DASHES])


def texts_of(columns: dict[str, pa.Array]) -> pa.Array:
    """File ids as texts, from the fields of ``recordIndexMetadata``; null for a row without one."""
    high, low = columns["fileIdHighBits"], columns["fileIdLowBits"]
    number, text = columns["fileIndex"], columns["fileId"]
    encoding = columns.get("fileIdEncoding")
    as_text = pa.array(np.zeros(len(high), bool)) if encoding is None else pc.equal(encoding, TEXT_ENCODING)
    if pc.all(as_text, min_count=0).as_py() and len(as_text):
        return text
    uuids = _uuid_texts(high.fill_null(0), low.fill_null(0))
    plain = pc.equal(number, -1).fill_null(True)
    numbered = pc.binary_join_element_wise(uuids, number.fill_null(0).cast(pa.string()), "-")
    made = pc.if_else(plain, uuids, numbered)
    made = pc.if_else(pc.and_(high.is_valid(), low.is_valid()), made, pa.scalar(None, pa.string()))
    return pc.if_else(as_text, text, made)


def _uuid_texts(high: pa.Array, low: pa.Array) -> pa.Array:
    rows = len(high)
    halves = np.stack([high.to_numpy(zero_copy_only=False), low.to_numpy(zero_copy_only=False)], axis=1)
    raw = halves.astype(">i8").view(np.uint8).reshape(rows, 16)
    text = np.full((rows, 36), ord("-"), np.uint8)
    nibbles = np.empty((rows, 32), np.uint8)
    nibbles[:, 0::2], nibbles[:, 1::2] = _HEX[raw >> 4], _HEX[raw & 15]
    text[:, _DIGITS] = nibbles
    offsets = np.arange(rows + 1, dtype=np.int32) * 36
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def fields_of(texts: pa.Array) -> dict[str, pa.Array]:
    """The inverse of ``texts_of``: UUIDs get encoding 0, all other texts encoding 1.

    There are few distinct file ids among many rows, so each is parsed once.
    """
    coded = pc.dictionary_encode(texts)
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    parts = [_fields(text) for text in coded.dictionary.to_pylist()] or [(0, 0, 0, "", 0)]
    columns = list(zip(*parts, strict=True))
    types = (pa.int64(), pa.int64(), pa.int32(), pa.string(), pa.int32())
    return {
        name: pa.array(column, kind).take(coded.indices)
        for name, column, kind in zip(_NAMES, columns, types, strict=True)
    }


def encoding_of(text: str) -> int:
    """The field ``fileIdEncoding`` of a file id's text."""
    return _fields(text)[-1]


def id_fields(text: str) -> dict[str, int | str]:
    """``fields_of`` for one text."""
    return dict(zip(_NAMES, _fields(text), strict=True))


@lru_cache(maxsize=4096)  # a table has few file groups
def _fields(text: str) -> tuple[int, int, int, str, int]:
    match = _UUID.match(text)
    if match is None:
        return -1, -1, -1, text, TEXT_ENCODING
    digits = bytes.fromhex(text[:36].replace("-", ""))
    high, low = (int.from_bytes(part, "big", signed=True) for part in (digits[:8], digits[8:]))
    return high, low, -1 if match.group(2) is None else int(match.group(2)), "", UUID_ENCODING
