"""Goal: a stream never sends, for a key, an older event after a newer one, and a batch that is run
again drops the same rows as the first time, in the same process or in the next one.

Method: hand-made batches; then the demo's events through the real tables without Spark, streams
interleaved at random and batches run twice, compared with what pandas expects.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mainstem
from demos import flights
from demos.compare import differences
from demos.main_job import create_tables
from demos.places import Place
from demos.sent_before import SentBefore
from demos.stream_writer import STATUS, WIDE, full_width


def _events(*rows: tuple[int, int]) -> pa.Table:
    """(flight, event time)"""
    count = len(rows)
    return pa.table(
        {
            "time_hour": pa.array(["2013-01-01T10:00:00Z"] * count),
            "carrier": pa.array(["UA"] * count),
            "flight": pa.array([flight for flight, _ in rows], pa.int32()),
            "event_time": pa.array([time for _, time in rows], pa.timestamp("us", tz="UTC")),
        }
    )


def _kept(sent: SentBefore, batch_id: int, *rows: tuple[int, int]) -> list[tuple[int, int]]:
    table = sent.keep(_events(*rows), batch_id)
    times = table["event_time"].cast(pa.int64()).to_pylist()
    return sorted(zip(table["flight"].to_pylist(), times, strict=True))


def test_older_events_are_dropped_and_newer_or_repeated_ones_sent(tmp_path: Path) -> None:
    sent = SentBefore(Place(tmp_path).files())
    assert _kept(sent, 0, (1, 50), (2, 50), (1, 40)) == [(1, 50), (2, 50)]
    assert _kept(sent, 1, (1, 45), (2, 50), (3, 1)) == [(2, 50), (3, 1)]
    assert _kept(sent, 2, (1, 60), (1, 55), (3, 0)) == [(1, 60)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_batch_run_again_keeps_the_same_rows(tmp_path: Path, restarted: bool) -> None:
    sent = SentBefore(Place(tmp_path).files())
    _kept(sent, 0, (1, 10))
    first = _kept(sent, 1, (1, 30), (2, 5))
    assert first == [(1, 30), (2, 5)]
    if restarted:
        sent = SentBefore(Place(tmp_path).files())
    assert _kept(sent, 1, (1, 30), (2, 5)) == first
    assert _kept(sent, 2, (1, 20), (2, 6)) == [(2, 6)]


def test_streams_interleaved_at_random_with_replays_give_what_pandas_expects(
    tmp_path: Path,
) -> None:
    events = flights.make_events(flights.read_flights(days=20))
    flights.write_files(events, tmp_path / "events", files=6)
    create_tables(Place(tmp_path))
    wide = mainstem.open_table(tmp_path / WIDE)
    status = mainstem.open_table(tmp_path / STATUS, {"hoodie.time.generator.max_expected_clock_skew_ms": 0})
    chance = random.Random(7)
    sent = {stream: SentBefore(Place(tmp_path).files("sent", stream)) for stream in flights.STREAMS}
    turns = [stream for stream in flights.STREAMS for _ in range(6)]
    chance.shuffle(turns)
    done = dict.fromkeys(flights.STREAMS, 0)
    for stream in turns:
        batch_id = done[stream]
        done[stream] += 1
        rows = pq.read_table(tmp_path / "events" / stream / f"events-{batch_id:04d}.parquet")
        if chance.random() < 0.3:  # killed after this, and started again
            sent[stream].keep(rows, batch_id)
            sent[stream] = SentBefore(Place(tmp_path).files("sent", stream))
        wide.upsert(full_width(sent[stream].keep(rows, batch_id), stream))
        status.upsert(rows.select(flights.STATUS_SCHEMA.names))
    for table, expected in (
        (wide, flights.expected_wide(events)),
        (status, flights.expected_status(events)),
    ):
        found = table.scan(columns=expected.schema.names).to_arrow()
        assert differences(found, expected) == []
