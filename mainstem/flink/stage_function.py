"""The Python function that stages rows in Flink's workers: Arrow batches in, one line per batch out.

A pandas function of Flink gets its rows in batches, which end with ``arrow.batch.size`` rows, with the
bundle, before a checkpoint's barrier and at the end of the input. This one writes each batch as a staged
file (``writers/staged_rows.py``), durably, and returns the line that commits it in the batch's first row,
null in the others; a batch of an updating query may have several lines (``update_pairs.py``), in one text,
as Flink's file sink ends a text with a line feed. Whatever a barrier follows has been written, and its
line is on the way to the file sink, whose state the checkpoint holds. A worker that dies leaves files
that no line names; the rows come again after the restart.

Flink hands pandas functions the batches as pandas series, which cannot hold all values (nulls become NaN,
large integers floats, times of day objects). So the decoder of the worker passes batches whose columns have
our names (``COLUMN``) on as Arrow; those of other functions stay as they are.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyflink.table.udf import FunctionContext, ScalarFunction

from mainstem.errors import Unsupported
from mainstem.flink.declared_columns import Shape, assembled
from mainstem.flink.update_pairs import UpdatePairs
from mainstem.storage.backends import storage_of
from mainstem.writers.staged_rows import Stager
from mainstem.writers.write_spec import WriteSpec

#: how the names of the columns begin that are passed on as Arrow
COLUMN = "__mainstem_"


class StageFunction(ScalarFunction):
    """Stages the rows of one sink. The arguments are the columns of ``shapes``, in front of them, if
    ``changes``, whether the row is a DELETE, and whether it may be an update's row before."""

    def __init__(
        self, spec: WriteSpec, sink: str, shapes: Sequence[Shape], changes: bool, unique_in_table: bool
    ) -> None:
        self._spec = spec
        self._sink = sink
        self._shapes = tuple(shapes)
        self._changes = changes
        self._unique_in_table = unique_in_table
        self._stager: Stager | None = None
        self._pairs: UpdatePairs | None = None

    def is_deterministic(self) -> bool:
        """False, so that Flink neither duplicates nor omits calls."""
        return False

    def open(self, function_context: FunctionContext) -> None:
        """Once per worker, before the first batch."""
        pass_arrow_on()
        self._stager = Stager(storage_of(self._spec.location), self._spec, self._sink, random.SystemRandom())
        if self._changes:
            self._pairs = UpdatePairs(self._stager, self._spec, unique_in_table=self._unique_in_table)

    def eval(self, *columns: pa.Array) -> pd.Series:
        """One batch."""
        if not all(isinstance(column, pa.Array) for column in columns):
            raise Unsupported(
                "this release of PyFlink does not decode rows where mainstem expects it: use apache-flink"
                " 2.3"
            )
        assert self._stager is not None
        lines = np.full(len(columns[0]), None, object)
        if self._pairs is None:
            lines[0] = self._stager.stage(assembled(columns, self._shapes))
        else:
            deleted, before, *sent = columns
            lines[0] = "\n".join(self._pairs.stage(assembled(sent, self._shapes), deleted, before)) or None
        return pd.Series(lines)


def pass_arrow_on() -> None:
    """Makes this process's decoder pass batches with our columns on as Arrow."""
    from pyflink.fn_execution import coders

    module = coders.coder_impl
    original = module.arrow_to_pandas
    if getattr(original, "passes_ours_on", False):
        return

    def arrow_to_pandas(timezone: Any, types: Any, batches: list[pa.RecordBatch]) -> list[Any]:
        if any(name.startswith(COLUMN) for name in batches[0].schema.names):
            return list(batches[0].columns)
        return original(timezone, types, batches)

    arrow_to_pandas.passes_ours_on = True  # type: ignore[attr-defined]  # a mark
    module.arrow_to_pandas = arrow_to_pandas
