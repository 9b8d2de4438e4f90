"""What a stream has sent so far: per key the newest event time, kept so that it survives a kill -9.

A wide table in COMMIT_TIME_ORDERING takes what is committed last. So a stream must not send, for a
key, an event that is older than one it sent before. Spark may run a micro-batch again after a
crash, and then the same rows must be dropped as the first time: the state that batch N is judged by
is that of batches 0 to N-1, never that of N itself. Hence one small file per batch, written before
the batch is; running N again finds the files below N, drops the same rows and writes the same file.
"""

from __future__ import annotations

from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs
import pyarrow.parquet as pq

from demos.flights import KEY

_NEVER = np.iinfo(np.int64).min


class SentBefore:
    """The state of one stream in files of its own, for the one process that runs this stream."""

    def __init__(self, files: fs.FileSystem) -> None:
        self._files = files
        self._newest: dict[str, int] = {}
        self._next_batch = 0

    def keep(self, events: pa.Table, batch_id: int) -> pa.Table:
        """Of ``events`` (columns: key, ``event_time``) per key the newest, unless it is older than
        what an earlier batch sent for this key."""
        self._go_to(batch_id)
        keys = _key_texts(events)
        times = events["event_time"].cast(pa.int64()).to_numpy()
        newest_first = np.argsort(-times, kind="stable")
        _, first = np.unique(keys[newest_first], return_index=True)
        rows = np.sort(newest_first[first])
        before = np.fromiter(map(self._newest.get, keys[rows], repeat(_NEVER)), np.int64, len(rows))
        rows = rows[times[rows] >= before]
        self._remember(batch_id, keys[rows], times[rows])
        return events.take(pa.array(rows))

    def _go_to(self, batch_id: int) -> None:
        """Make the state that of all batches before ``batch_id``."""
        if batch_id < self._next_batch:
            self._newest, self._next_batch = {}, 0
        for earlier in range(self._next_batch, batch_id):
            stored = pq.read_table(_name(earlier), filesystem=self._files)
            self._newest.update(zip(stored["key"].to_pylist(), stored["time"].to_pylist(), strict=True))
        self._next_batch = batch_id

    def _remember(self, batch_id: int, keys: np.ndarray, times: np.ndarray) -> None:
        self._newest.update(zip(keys, times.tolist(), strict=True))
        rows = pa.table({"key": pa.array(keys, pa.string()), "time": times})
        started = f"{_name(batch_id)}.started"
        pq.write_table(rows, started, filesystem=self._files)
        self._files.move(started, _name(batch_id))
        self._next_batch = batch_id + 1


def _name(batch_id: int) -> str:
    return f"batch-{batch_id:06d}.parquet"


def _key_texts(events: pa.Table) -> np.ndarray:
    texts = pc.binary_join_element_wise(*(events[name].cast(pa.string()) for name in KEY), "|")
    return texts.to_numpy(zero_copy_only=False)
