"""Goal: the demo's input is what it claims to be, and what it expects of the tables is right.

Method: properties of the whole year's events; the expected tables of a few days against a plain
row-by-row merge in the order of sending, which knows nothing of pandas' sorting and joining.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demos import flights
from demos.flights import KEY, OWNED, PARTITION, STREAMS, wide_columns


@pytest.fixture(scope="module")
def year() -> dict[str, pd.DataFrame]:
    return flights.make_events(flights.read_flights())


@pytest.fixture(scope="module")
def days() -> dict[str, pd.DataFrame]:
    return flights.make_events(flights.read_flights(days=4))


def test_every_flight_of_the_year_has_its_own_key_and_at_least_one_event(
    year: dict[str, pd.DataFrame],
) -> None:
    source = flights.read_flights()
    assert len(source) == 336_776
    seen = pd.concat([rows[list(KEY)] for rows in year.values()]).drop_duplicates()
    assert len(seen) == len(source)


def test_no_two_different_events_of_a_key_share_an_event_time(
    year: dict[str, pd.DataFrame],
) -> None:
    every = pd.concat([rows[flights.STATUS_SCHEMA.names] for rows in year.values()])
    different = every.drop_duplicates()
    assert len(different) < len(every)  # some are sent twice
    assert not different.duplicated([*KEY, "event_time"]).any()


@pytest.mark.parametrize("stream", STREAMS)
def test_some_events_are_sent_after_newer_ones_of_their_key_and_some_twice(
    year: dict[str, pd.DataFrame], stream: str
) -> None:
    rows = year[stream]
    newest_before = rows.groupby(list(KEY))["event_time"].cummax()
    overtaken = (rows["event_time"] < newest_before).sum()
    twice = rows.duplicated([*KEY, "event_time"]).sum()
    assert overtaken > 500
    assert 0.01 * len(rows) < twice < 0.03 * len(rows)


def test_no_column_of_the_wide_table_belongs_to_two_streams_and_all_have_an_owner() -> None:
    owned = [name for stream in STREAMS for name in wide_columns(stream)]
    assert len(owned) == len(set(owned))
    assert {*owned, *KEY, PARTITION} == set(flights.WIDE_SCHEMA.names)


@pytest.mark.parametrize("stream", STREAMS)
def test_a_cell_that_had_a_value_is_never_null_in_a_newer_event(
    year: dict[str, pd.DataFrame], stream: str
) -> None:
    # IGNORE_DEFAULTS cannot set a cell back to null: such an input would have no right answer.
    ordered = year[stream].sort_values("event_time", kind="stable")
    columns = list(OWNED[stream])
    had_value = ordered[columns].notna().groupby([ordered[k] for k in KEY]).cummax()
    assert not (had_value & ordered[columns].isna()).any(axis=None)


def test_the_same_seed_makes_the_same_events_and_another_one_others() -> None:
    source = flights.read_flights(days=3)
    first, again = flights.make_events(source), flights.make_events(source)
    other = flights.make_events(source, seed=1)
    for stream in STREAMS:
        pd.testing.assert_frame_equal(first[stream], again[stream])
        assert not first[stream].equals(other[stream])


def test_expected_status_equals_a_row_by_row_merge(days: dict[str, pd.DataFrame]) -> None:
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for stream in reversed(STREAMS):
        for row in _records(days[stream], flights.STATUS_SCHEMA):
            key = tuple(row[name] for name in KEY)
            if key not in newest or row["event_time"] > newest[key]["event_time"]:
                newest[key] = row
    expected = [newest[key] for key in sorted(newest)]
    assert flights.expected_status(days).to_pylist() == expected


def test_expected_wide_equals_a_row_by_row_merge_that_drops_what_is_overtaken(
    days: dict[str, pd.DataFrame],
) -> None:
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for stream in STREAMS:
        sent: dict[tuple[Any, ...], Any] = {}
        for row in _records(days[stream], flights.event_schema(stream)):
            key = tuple(row[name] for name in KEY)
            if row["event_time"] < sent.get(key, row["event_time"]):
                continue
            sent[key] = row["event_time"]
            row[flights.event_time_column(stream)] = row["event_time"]
            wide = merged.setdefault(key, dict.fromkeys(flights.WIDE_SCHEMA.names))
            kept = [*KEY, PARTITION, *wide_columns(stream)]
            wide.update({name: row[name] for name in kept if row[name] is not None})
    expected = [merged[key] for key in sorted(merged)]
    assert flights.expected_wide(days).to_pylist() == expected


def test_the_files_hold_the_events_in_order_and_get_later_and_later(
    days: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    flights.write_files(days, tmp_path, files=5)
    for stream in STREAMS:
        files = sorted((tmp_path / stream).iterdir())
        assert len(files) == 5
        times = [file.stat().st_mtime for file in files]
        assert times == sorted(set(times))
        whole = pa.concat_tables(pq.read_table(file) for file in files)
        assert whole.equals(flights.to_arrow(days[stream], flights.event_schema(stream)))


def _records(rows: pd.DataFrame, schema: pa.Schema) -> list[dict[str, Any]]:
    return flights.to_arrow(rows, schema).to_pylist()
