"""Questions to the wide table, and how long an answer takes with and without indexes.

Each asks for flights of which every event is in the first files of its stream: so its answer is the same
before the indexes are built, after that and in the end, while the streams go on to write other flights.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

import mainstem
from demos.compare import differences
from demos.flights import KEY, PARTITION, file_starts
from mainstem.readers.planning.explain import Explanation

TRIES = 3


class WrongAnswer(Exception):
    """Rows that are not those which pandas computed."""


@dataclass(frozen=True)
class Question:
    """``answer``: the rows as pandas computed them, ordered by key."""

    text: str
    filter: pc.Expression
    answer: pa.Table


@dataclass(frozen=True)
class Reading:
    """How a question was answered: the quickest of a few tries, in seconds, and the files that were read."""

    seconds: float
    explained: Explanation

    @property
    def files(self) -> int:
        return self.explained.base_files_read + self.explained.log_files_read

    def describe(self) -> str:
        read, of = self.explained.file_slices_read, self.explained.file_slices
        return f"{self.seconds:6.3f} s, {self.files:3} files of {read:2} of {of} slices"


def questions(
    wide: pa.Table, events: Mapping[str, pd.DataFrame], files: int, first: int
) -> dict[str, Question]:
    """By the kind of index that answers it: a question whose flights are settled once ``first`` of the
    ``files`` files of each stream are in ``wide``, the whole table."""
    settled = _settled(wide, events, files, first)
    return {
        "record_index": _one_flight(wide, settled),
        "secondary_index": _one_aircraft(wide, settled),
        "column_stats": _far_flights(wide, settled),
    }


def _settled(
    wide: pa.Table, events: Mapping[str, pd.DataFrame], files: int, first: int
) -> pa.ChunkedArray:
    """By row of ``wide``: whether no event of it is in a later file than the first."""
    later = [rows.iloc[file_starts(len(rows), files)[first] :][[*KEY]] for rows in events.values()]
    keys = pa.Table.from_pandas(pd.concat(later).drop_duplicates(), preserve_index=False)
    keys = keys.cast(pa.schema([wide.schema.field(name) for name in KEY]))
    keys = keys.append_column("later", pa.array([True] * len(keys)))
    marked = wide.select(KEY).join(keys, list(KEY), join_type="left outer")
    marked = marked.sort_by([(name, "ascending") for name in KEY])
    return pc.is_null(marked["later"])


def _one_flight(wide: pa.Table, settled: pa.ChunkedArray) -> Question:
    """The one in the middle."""
    flights = wide.filter(settled)
    flight = flights.slice(len(flights) // 2, 1)
    found = {name: flight[name][0] for name in KEY}
    told = " ".join(str(value) for value in found.values())
    asked = [pc.field(name) == value for name, value in found.items()]
    return Question(f"flight {told}", asked[0] & asked[1] & asked[2], flight)


def _one_aircraft(wide: pa.Table, settled: pa.ChunkedArray) -> Question:
    """The first by name of those that came least often."""
    every = wide.select(["tailnum"]).append_column("later", pc.cast(pc.invert(settled), pa.int32()))
    counted = every.filter(pc.is_valid(every["tailnum"])).group_by("tailnum")
    counted = counted.aggregate([("later", "sum"), ("later", "count")])
    counted = counted.filter(pc.equal(counted["later_sum"], 0))
    counted = counted.sort_by([("later_count", "ascending"), ("tailnum", "ascending")])
    name = counted["tailnum"][0]
    return Question(
        f"aircraft {name}", pc.field("tailnum") == name, wide.filter(pc.equal(wide["tailnum"], name))
    )


def _far_flights(wide: pa.Table, settled: pa.ChunkedArray) -> Question:
    """Flights that go farther than any from the other airports, until the first that is not settled."""
    farthest = wide.group_by(PARTITION).aggregate([("distance", "max")])["distance_max"]
    limit = sorted(farthest.to_pylist())[-2]
    far = pc.greater(wide["distance"], limit)
    open_ones = wide.filter(pc.and_(far, pc.invert(settled)))["time_hour"]
    until = pc.min(open_ones) if len(open_ones) else pa.scalar("9999")
    rows = wide.filter(pc.and_(far, pc.less(wide["time_hour"], until)))
    asked = (pc.field("distance") > limit) & (pc.field("time_hour") < until)
    return Question(f"farther than {limit:,} miles", asked, rows)


def ask(path: str | Path, question: Question, *, indexes: bool = True) -> Reading:
    """Answer it, with ``indexes`` or, as Hudi's option says, without any skipping of files.

    Raises ``WrongAnswer`` for rows that are not the expected ones.
    """
    table = mainstem.open_table(path, {"hoodie.enable.data.skipping": str(indexes).lower()})
    plan = table.scan(columns=question.answer.schema.names, filter=question.filter)
    explained = plan.explain()
    best = float("inf")
    for _ in range(TRIES):
        begun = time.perf_counter()
        found = plan.to_arrow()
        best = min(best, time.perf_counter() - begun)
        different = differences(found, question.answer)
        if different:
            told = "\n  ".join(different)
            raise WrongAnswer(f"{question.text}: not what pandas computed\n  {told}\n{explained}")
    return Reading(best, explained)
