"""What every system of the collision writes, and how its table is judged afterwards.

Eight writers update the same keys. Each writer updates every key once, in batches and in an order of its
own; the row with the newest ``ts`` of a key is to stay, however late or often it is written. So the right
table is known: per key the newest of the rows whose commit was acknowledged. Needs pyarrow and numpy only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

KEY, ORDERING = "id", "ts"
SCHEMA = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False),
        pa.field(ORDERING, pa.int64()),
        pa.field("writer", pa.int32()),
        pa.field("batch", pa.int32()),
        pa.field("amount", pa.float64()),
        pa.field("note", pa.string()),
    ]
)
BUCKETS = 8
#: in a system's folder: its writers may begin
GATE = "go"
_NOTES = pa.array([f"{number:02d} " + "what a row carries beside its numbers " * 2 for number in range(64)])


@dataclass(frozen=True)
class Verdict:
    """Rows of a key beyond its first; keys whose newest acknowledged row is not there; rows that nobody
    wrote."""

    duplicates: int
    lost: int
    foreign: int

    @property
    def right(self) -> bool:
        return not (self.duplicates or self.lost or self.foreign)


@dataclass(frozen=True)
class Load:
    """The work of one run; the same numbers give the same rows in every process."""

    keys: int = 100_000
    writers: int = 8
    batches: int = 20
    seed: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Load:
        return cls(**json.loads(text))

    def first_rows(self) -> pa.Table:
        """Half of the keys, which are there before the writers come."""
        numbers = np.arange(0, self.keys, 2)
        return _table(numbers, np.zeros(len(numbers), np.int64), -1, -1)

    def rows(self, writer: int, batch: int) -> pa.Table:
        """Batch ``batch`` of ``writer``."""
        numbers = self._numbers(writer, batch)
        return _table(numbers, _times(self, writer)[numbers], writer, batch)

    def _numbers(self, writer: int, batch: int) -> np.ndarray:
        """Which keys the batch updates."""
        return np.array_split(_order(self, writer), self.batches)[batch]

    def judge(self, found: pa.Table, acknowledged: Sequence[int]) -> Verdict:
        """Compare a table's columns id and ts with what must be there.

        ``acknowledged[w]``: so many batches of writer w are committed for certain. Later ones may stand too:
        their writer was killed, or stopped, before it could say so.
        """
        least = np.full(self.keys, -1, np.int64)
        least[::2] = 0
        possible = [np.empty(0, np.int64)]
        for writer, count in enumerate(acknowledged):
            times = _times(self, writer)
            for batch in range(self.batches):
                numbers = self._numbers(writer, batch)
                if batch < count:
                    least[numbers] = np.maximum(least[numbers], times[numbers])
                else:
                    possible.append(_pairs(numbers, times[numbers]))
        numbers = np.array([int(key[1:]) for key in found[KEY].to_pylist()], np.int64)
        newest = np.full(self.keys, -1, np.int64)
        np.maximum.at(newest, numbers, found[ORDERING].to_numpy())
        beyond = np.flatnonzero(newest > least)
        foreign = ~np.isin(_pairs(beyond, newest[beyond]), np.concatenate(possible))
        duplicates = len(numbers) - len(np.unique(numbers))
        return Verdict(duplicates, int((newest < least).sum()), int(foreign.sum()))


def _pairs(numbers: np.ndarray, times: np.ndarray) -> np.ndarray:
    """One number per (key, time): times are below 2**40, keys below 2**23."""
    return numbers.astype(np.int64) << 40 | times


@lru_cache
def _order(load: Load, writer: int) -> np.ndarray:
    return np.random.default_rng([load.seed, writer, 0]).permutation(load.keys)


@lru_cache
def _times(load: Load, writer: int) -> np.ndarray:
    """``ts`` of the writer's row of each key: no two writers have the same."""
    drawn = np.random.default_rng([load.seed, writer, 1]).integers(1, 2**32, load.keys)
    return drawn * load.writers + writer


def _table(numbers: np.ndarray, times: np.ndarray, writer: int, batch: int) -> pa.Table:
    count = len(numbers)
    columns = [
        pa.array([f"k{number:07d}" for number in numbers.tolist()], pa.string()),
        pa.array(times),
        pa.array(np.full(count, writer, np.int32)),
        pa.array(np.full(count, batch, np.int32)),
        pa.array((times % 10_000) / 100.0),
        _NOTES.take(pa.array(times % len(_NOTES))),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)
