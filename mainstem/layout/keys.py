"""Record keys and partition paths, written by columns as Java's key generators write them.

SIMPLE and NON_PARTITION: the value's text. COMPLEX: ``f1:v1,f2:v2`` (KeyGenUtils, BuiltinKeyGenerator).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.limits import FILE_NAME_BYTES_MAX, PARTITION_DEPTH_MAX
from mainstem.options.placing import URL_ENCODE
from mainstem.storage import paths

NULL_PART = "__null__"
EMPTY_PART = "__empty__"
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_ENCODED = {c: f"%{c:02X}" for c in [*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{[]^")]}


@dataclass(frozen=True)
class KeyColumns:
    """Texts of keys and, for composite keys, the parts they are made of (see ``buckets.bucket_ids``)."""

    texts: pa.Array
    parts: list[tuple[str, pa.Array]] | None


def as_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as one array."""
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks > 1 else column.combine_chunks()
    return column


def value_texts(column: pa.Array | pa.ChunkedArray, name: str) -> pa.Array:
    """Java's ``toString`` of each value; nulls stay null. Raises ``Invalid`` for a type that has none."""
    column = as_array(column)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return value_texts(column.dictionary_decode(), name)
    if kind == pa.string():
        return column
    if pa.types.is_large_string(kind) or pa.types.is_string(kind) or "string_view" in str(kind):
        return column.cast(pa.string())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    if pa.types.is_date32(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind):
        # The stored number, in the table's unit (timestamp-micros or timestamp-millis).
        return column.cast(pa.int64()).cast(pa.string())
    if pa.types.is_floating(kind):
        single = pa.types.is_float32(kind)
        values = column.to_pylist()
        texts = [None if v is None else java_double_text(v, single=single) for v in values]
        return pa.array(texts, pa.string())
    if pa.types.is_decimal(kind):
        return pa.array(
            [None if v is None else _decimal_text(v) for v in column.to_pylist()], pa.string()
        )
    raise Invalid(
        f"column {name!r} of type {kind} cannot be a key or partition field; expected a string,"
        " number, boolean, date, timestamp or decimal"
    )


def java_double_text(value: float, *, single: bool = False) -> str:
    """``Double.toString`` or ``Float.toString``: shortest digits, ``1.0E10`` outside 1e-3 to 1e7."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    shortest = str(np.float32(value)) if single else repr(value)
    sign, digits, exponent = Decimal(shortest).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)
    minus = "-" if sign else ""
    if 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        text = text.ljust(point, "0")
        return f"{minus}{text[:point]}.{text[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _decimal_text(value: Decimal) -> str:
    # BigDecimal.toString and Python's str give the same text.
    return str(value)


def record_keys(table: pa.Table | pa.RecordBatch, fields: Sequence[str], *, composite: bool) -> KeyColumns:
    """Record key of each row. Raises ``Invalid``, naming column and row, for a null or empty key."""
    columns = [(name, value_texts(table.column(name), name)) for name in fields]
    if not composite:
        name, texts = columns[0]
        bad = _null_or_empty(texts)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise Invalid(
                f"record key field {name!r} is null or empty in {int(bad.sum())} of {len(texts)} rows,"
                f" first in row {row}; every row needs a key: filter or fill these rows"
            )
        return KeyColumns(texts, None)
    missing = np.ones(table.num_rows, bool)
    pieces: list[pa.Array | pa.Scalar] = []
    for position, (name, texts) in enumerate(columns):
        missing &= _null_or_empty(texts)
        shown = pc.if_else(pc.equal(texts, ""), EMPTY_PART, texts)
        shown = pc.fill_null(shown, NULL_PART)
        pieces += [pa.scalar(("," if position else "") + name + ":"), shown]
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise Invalid(
            f"all record key fields {list(fields)} are null or empty in row {row}; every row needs a key"
        )
    # Java hashes a single ``field:value`` text as one value.
    return KeyColumns(
        pc.binary_join_element_wise(*pieces, ""), columns if len(columns) > 1 else None
    )


def _null_or_empty(texts: pa.Array) -> np.ndarray:
    if not len(texts):
        return np.zeros(0, bool)
    offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, 4 * texts.offset)
    empty = offsets[1:] == offsets[:-1]
    if texts.null_count:  # Arrow allows bytes under a null
        empty |= texts.is_null().to_numpy(zero_copy_only=False)
    return empty


def partition_paths(
    rows: int,
    fields: Sequence[str],
    levels: Sequence[tuple[np.ndarray, list[str]]],
    *,
    hive_style: bool,
    url_encode: bool,
    slash_dates: bool = False,
) -> tuple[np.ndarray, list[str]]:
    """Partition of each row: (codes into, partition paths); the one path "" without fields.

    ``levels`` gives (codes into, value texts) for each field; the text "" stands for no value.
    """
    if not fields:
        return np.zeros(rows, np.int64), [""]
    codes = np.zeros(rows, np.int64)
    segments: list[list[str]] = []
    for name, (values_of, values) in zip(fields, levels, strict=True):
        segments.append(
            [_segment(name, v, hive_style, url_encode, slash_dates, len(fields)) for v in values]
        )
        codes = codes * len(values) + values_of
    used, codes = np.unique(codes, return_inverse=True)
    found = []
    for code in used.tolist():
        parts = []
        for choices in reversed(segments):
            code, index = divmod(code, len(choices))
            parts.append(choices[index])
        found.append("/".join(reversed(parts)))
    paths_of = dict.fromkeys(found)
    if len(paths_of) < len(found):  # null and "" share a folder: give them one code, so rows keep their order
        places = {path: place for place, path in enumerate(paths_of)}
        codes, found = np.array([places[path] for path in found], np.int64)[codes], list(paths_of)
    return codes, found


def encoded(text: str) -> str:
    """A folder name under ``hoodie.datasource.write.partitionpath.urlencode``."""
    return text.translate(_ENCODED)


def _segment(
    name: str, value: str, hive_style: bool, url_encode: bool, slash_dates: bool, fields: int
) -> str:
    if not value:
        text = DEFAULT_PARTITION
    else:
        text = encoded(value) if url_encode else value
    if slash_dates and value:
        if not _DATE.fullmatch(value):
            raise Invalid(
                f"partition value {value!r} of column {name!r} is no date such as 2026-01-10, which"
                " slash-separated date partitions need"
            )
        text = text.replace("-", "/")
    parts = text.split("/")
    if fields > 1 and len(parts) > 1:
        raise Invalid(
            f"partition value {value!r} of column {name!r} makes several folders: with more than one"
            " partition column Java then cannot tell the columns apart and fails to read the table; set"
            f" {URL_ENCODE}=true when the table is created, or change"
            " the value"
        )
    # Hadoop's Path refuses a colon, and Spark's reader takes "a=b" for a Hive-style column: one such folder
    # makes Java fail on the whole table, or return other values.
    foreign = ":" in text or ("=" in text and not hive_style)
    bad = any(s in ("", ".", "..") for s in parts) or len(parts) > PARTITION_DEPTH_MAX
    if bad or not paths.is_path_text(text) or text.startswith(".hoodie") or foreign:
        raise Invalid(
            f"partition value {value!r} of column {name!r} is no usable folder name: set"
            f" {URL_ENCODE}=true when the table is created, or"
            " change the value"
        )
    path = f"{name}={text}" if hive_style else text
    longest = max(len(folder.encode()) for folder in path.split("/"))
    if longest > FILE_NAME_BYTES_MAX:
        raise Invalid(
            f"partition value {value[:60]!r}... of column {name!r} makes a folder name of {longest:,} bytes;"
            f" file systems take {FILE_NAME_BYTES_MAX}: shorten the value"
        )
    return path
