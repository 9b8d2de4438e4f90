"""Record keys of tables without record key fields: the writer makes them up.

Hudi's Spark writer makes them of the instant, the task and the number of the row
(``AutoRecordGenWrapperKeyGenerator``), and so do we: ``<instant>_<task>_<number>``. Only the process that
commits makes keys, so each is given once, and nobody else has those of the instant. A row that is updated or
deleted comes with the key that it has, in the column ``_hoodie_record_key``, as a query shows it.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid, Unsupported
from mainstem.layout.key_generator import KEY_COLUMN
from mainstem.options.placing import RECORD_KEY_FIELDS
from mainstem.writers.row_order import FIRST_SEQUENCE, same_width, sequence_texts
from mainstem.writers.write_spec import INSERT, MERGE_ROWS, OF_BASE_FILES, WriteSpec

#: operations that make a key for each row, whatever key it comes with: rows of another table, say
_INSERTS = OF_BASE_FILES | {INSERT}
_FIELD = pa.field(KEY_COLUMN, pa.string())


def carried(batch: pa.Table, spec: WriteSpec, deleted: np.ndarray | None = None) -> pa.Array | None:
    """The keys that rows come with, null where one is to be made; None if all are.

    Raises ``Unsupported`` for rows without keys that are no inserts, ``Invalid`` for some without.
    """
    if spec.operation in _INSERTS:
        return None
    if KEY_COLUMN not in batch.column_names:
        raise Unsupported(
            f"{spec.operation} into a table without record key ({RECORD_KEY_FIELDS} is not set): rows are"
            f" inserted there (insert, bulk_insert). To update or delete rows give {KEY_COLUMN}, as a query"
            " shows it; in SQL use UPDATE, DELETE and MERGE",
            table=spec.base,
        )
    keys = pa.concat_arrays([pa.array([], pa.string()), *batch.column(KEY_COLUMN).cast(pa.string()).chunks])
    without = pc.or_(keys.is_null(), pc.fill_null(pc.equal(keys, ""), False)).to_numpy(zero_copy_only=False)
    if spec.operation == MERGE_ROWS:
        without = np.zeros(len(keys), bool) if deleted is None else without & deleted
    if without.any():
        raise Invalid(
            f"{KEY_COLUMN} is null or empty in {int(without.sum())} of {len(keys)} rows, first in row"
            f" {int(np.flatnonzero(without)[0])}: {spec.operation} needs the key of each row",
            table=spec.base,
        )
    return keys


def with_column(rows: pa.Table, keys: pa.Array | None) -> pa.Table:
    """The rows with these keys in place of those that they have, if any; None: without."""
    if KEY_COLUMN in rows.column_names:
        rows = rows.drop_columns([KEY_COLUMN])
    return rows if keys is None else rows.append_column(_FIELD, keys)


class KeyMaker:
    """Makes the keys of one transaction's new rows; ``task`` tells it from no other, there is one."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._next = FIRST_SEQUENCE

    def keyed(self, batch: pa.Table, spec: WriteSpec, deleted: np.ndarray | None = None) -> pa.Table:
        """The batch with a key in each row. Raises as ``carried``."""
        keys = carried(batch, spec, deleted)
        new = len(batch) if keys is None else keys.null_count
        if new:
            first = same_width(self._next, new)
            self._next = first + new
            made = sequence_texts(f"{own_prefix(spec)}{self._task}_", first, new)
            keys = made if keys is None else pc.replace_with_mask(keys, keys.is_null(), made)
        return with_column(batch, keys)


def own_prefix(spec: WriteSpec) -> str:
    """With what keys begin that this transaction made."""
    return f"{spec.instant}_"


def made_here(keys: pa.Array, spec: WriteSpec) -> np.ndarray:
    """Mask of the keys that this transaction made, which therefore lie nowhere yet."""
    if not spec.keys.made_up:
        return np.zeros(len(keys), bool)
    return pc.starts_with(keys, own_prefix(spec)).to_numpy(zero_copy_only=False)
