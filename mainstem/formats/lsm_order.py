"""The order of rows in the files of an LSM tree (``hoodie.table.storage.layout``).

Rows lie by the bytes of their record keys in UTF-8, in which Arrow orders texts, too. Rows of one key stay in
their order.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.formats.avro_schema import META_FIELDS
from mainstem.formats.vectors import taken

_KEY_COLUMN = META_FIELDS[2]


def key_order(rows: pa.Table) -> pa.Array:
    """The numbers of the rows, in order."""
    keys = rows.column(_KEY_COLUMN).cast(pa.string())
    return pc.sort_indices(pa.concat_arrays([pa.array([], pa.string()), *keys.chunks]))


def sorted_by_key(rows: pa.Table) -> pa.Table:
    """The rows in order."""
    return taken(rows.combine_chunks(), key_order(rows))


def is_in_order(keys: pa.Array) -> bool:
    """Whether each key, none of which is null, is at least the one before it."""
    return pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py() is not False
