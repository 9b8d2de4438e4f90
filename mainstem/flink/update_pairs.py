"""Stages batches of an updating query: an UPDATE_BEFORE that no row of its key follows deletes the row.

Flink sends an update as two rows, UPDATE_BEFORE with the old values and UPDATE_AFTER with the new ones. The
first says nothing if the second comes. But a filter may keep the old row and drop the new one (FLINK-9528),
or the new one has another key or partition. Then it comes alone and is the row's deletion, as Flink's sinks
for JDBC and Kafka take it. One that is followed may not become a deletion: that would carry the old row's
ordering value, and an UPDATE_AFTER with a smaller one would lose against it.

An operator gives both rows while it handles one input, and they go the same way. So a checkpoint's barrier
never comes between them, but the end of a batch may, and a worker does not see barriers. So of each batch

  1  an UPDATE_BEFORE counts only if it is the last row of its key in the batch; the other rows are staged
  2  keys of the batch are looked up among the deletions of 3 of earlier batches. Those that are found are
     taken back: a new file, without them, goes in the older one's place
  3  what counts in 1 is staged as deletions, in a file of its own, and remembered

A line of 2 has an effect only if the line that it replaces is in the same part file, which is one checkpoint
(``staged_rows.counting``). The deletions of an earlier checkpoint stay as they were committed. So nothing
has to be told when a barrier passed, a job that starts again begins with nothing, and what is remembered may
be forgotten at any time: a deletion is then committed although rows of its key follow, before them. These
lose against it in the one case that their ordering values are smaller. So the newest deletions are kept, up
to ``ROWS_MAX``, ``BYTES_MAX`` and ``FILES_MAX``, always those of the newest batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import MainstemError
from mainstem.limits import MIB
from mainstem.writers.staged_rows import Stager, parse_line
from mainstem.writers.write_spec import WriteSpec

#: most remembered deletions of a worker: rows, bytes of these rows, files that hold them
ROWS_MAX = 200_000
BYTES_MAX = 64 * MIB
FILES_MAX = 1000


@dataclass(frozen=True)
class _Open:
    """Deletions that a row of their key may still take back: their file's stamp, identities and full rows."""

    stamp: str
    identities: pa.Array
    rows: pa.Table

    @property
    def size(self) -> int:
        return int(self.rows.nbytes + self.identities.nbytes)


class UpdatePairs:
    """Stages batches of one worker, in the order in which they come. Not thread-safe.

    ``unique_in_table``: a record key is one row of the table, else of its partition.
    """

    def __init__(self, stager: Stager, spec: WriteSpec, *, unique_in_table: bool) -> None:
        self._stager = stager
        self._spec = spec
        self._unique_in_table = unique_in_table
        self._open: list[_Open] = []

    def stage(self, rows: pa.Table, deleted: pa.BooleanArray, before: pa.BooleanArray) -> list[str]:
        """Write a batch, durably; returns its lines, in their order.

        ``deleted`` marks the rows of DELETE, ``before`` those of UPDATE_BEFORE, and of DELETE where Flink's
        materializer makes one of each update. Raises what ``Stager.stage`` raises.
        """
        is_before = before.to_numpy(zero_copy_only=False)
        if not self._open and not is_before.any():
            return _some(self._stager.stage(rows, deleted))
        try:
            identities = self._identities(rows)
        except MainstemError as error:
            error.table = error.table or self._spec.base
            raise
        alone = is_before & _last_of_each(identities)
        kept = pa.array(~is_before)
        lines = _some(self._stager.stage(rows.filter(kept), deleted.filter(kept)))
        self._take_back(identities, lines)
        if alone.any():
            mask = pa.array(alone)
            self._put(rows.filter(mask), identities.filter(mask), lines)
            self._forget()
        return lines

    def _take_back(self, identities: pa.Array, lines: list[str]) -> None:
        """Earlier deletions that rows of these identities follow; adds the lines that say so."""
        earlier, self._open = self._open, []
        if not earlier:
            return
        every = pc.is_in(pa.concat_arrays([one.identities for one in earlier]), value_set=identities)
        if not every.true_count:
            self._open = earlier
            return
        start = 0
        for one in earlier:
            followed = every.slice(start, one.rows.num_rows)
            start += one.rows.num_rows
            if followed.true_count:
                left = pc.invert(followed)
                self._put(one.rows.filter(left), one.identities.filter(left), lines, one.stamp)
            else:
                self._open.append(one)

    def _put(self, rows: pa.Table, identities: pa.Array, lines: list[str], instead: str = "") -> None:
        """Stage deletions and remember them."""
        line = self._stager.stage(rows, pa.array(np.ones(rows.num_rows, bool)), instead=instead)
        lines.append(line)
        if rows.num_rows:
            self._open.append(_Open(parse_line(line, source="own").stamp, identities, rows))

    def _forget(self) -> None:
        """Forget the oldest."""
        newest = self._open[-1]
        count, size = newest.rows.num_rows, newest.size
        for place in range(len(self._open) - 2, -1, -1):
            count += self._open[place].rows.num_rows
            size += self._open[place].size
            if count > ROWS_MAX or size > BYTES_MAX or len(self._open) - place > FILES_MAX:
                del self._open[: place + 1]
                return

    def _identities(self, rows: pa.Table) -> pa.Array:
        """A text for each row, equal for versions of one row of the table."""
        keys = self._spec.keys.record_keys(rows).texts
        if self._unique_in_table or not self._spec.keys.partition_fields:
            return keys
        codes, paths = self._spec.keys.partitions(rows)
        partitions = pa.array(paths, keys.type).take(pa.array(codes))
        # No path holds a NUL, so the first one ends it.
        return pc.binary_join_element_wise(partitions, keys, pa.scalar("\0", keys.type))


def _last_of_each(identities: pa.Array) -> np.ndarray:
    """Mask of the rows that no later one of their identity follows."""
    codes = identities.dictionary_encode().indices.to_numpy()
    places = np.arange(len(codes))
    last = np.zeros(len(codes), np.int64)
    last[codes] = places  # of equal codes the last one stays
    return last[codes] == places


def _some(line: str) -> list[str]:
    return [line] if line else []
