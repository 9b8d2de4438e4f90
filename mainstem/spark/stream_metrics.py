"""``stream_metrics``: what Spark's StreamingQueryProgress does not say of a query on a table.

Spark fills ``metrics`` of sources and sinks from Scala interfaces (ReportsSourceMetrics, ReportsSinkMetrics),
which its Python data sources and foreachBatch have not, in 4.1 to 4.3. So a progress is looked up in the
tables: commits name their batch (the streaming guard), offsets are completion times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.layout.properties import load_config
from mainstem.readers.changes.commit_range import write_times
from mainstem.readers.planning.table_state import TableState
from mainstem.spark.in_tasks import here_or_there
from mainstem.spark.session_options import location_in
from mainstem.storage.backends import storage_of
from mainstem.storage.location import Location
from mainstem.timeline.active import load_timeline
from mainstem.truetime.instant_times import parse_wall
from mainstem.writers.stream_guard import commits_of_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQueryProgress

_AT = "completion"


def stream_metrics(
    spark: SparkSession,
    progress: StreamingQueryProgress,
    *,
    sink: str | None = None,
    source: str | None = None,
    identifier: str | None = None,
    options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Metrics of one progress of a query, of ``query.lastProgress`` or a StreamingQueryListener's event.

    ``sink`` and ``source``: paths of the tables that it writes and reads; ``options``: of their stores;
    ``identifier``: the query's checkpoint identifier, if its options give one. The result has

    - ``batchId``, ``rows`` and ``deletes`` (written), ``instants`` (requested times of the batch's commits on
      the active timeline; [] for a batch without rows), ``commitMs`` (from the first begin to the last
      completion; None without a commit), with ``sink``;
    - ``lagMs``: by how much the completion time that the batch has read up to is behind the newest of the
      table, now with ``source``, else as Spark noted it when it planned the batch (4.2 and newer; 4.1 notes
      no more than the batch reads). None if the query reads no table of ours.

    Raises what reading a table raises.
    """
    told = json.loads(progress.json) if hasattr(progress, "json") else dict(progress)
    found: dict[str, Any] = {"batchId": told["batchId"]}
    given = dict(options or {})
    if sink is not None:
        place, name = location_in(spark, sink, given), identifier or told["id"]
        found |= here_or_there(spark, partial(_written, place, name, int(told["batchId"])))
    newest = None
    if source is not None:
        newest = here_or_there(spark, partial(_newest, location_in(spark, source, given)))
    lags = [_lag(one, newest) for one in told["sources"]]
    found["lagMs"] = max((lag for lag in lags if lag is not None), default=None)
    return found


def _written(location: Location, identifier: str, batch: int) -> dict[str, Any]:
    storage = storage_of(location)
    commits = list(commits_of_batch(storage, load_timeline(storage), identifier, batch))
    begun = min((instant.requested for instant, _ in commits), default="")
    ended = max((instant.completion or "" for instant, _ in commits), default="")
    stats = [stat for _, commit in commits for stats in commit.stats.values() for stat in stats]
    return {
        "rows": sum(int(stat.get("numWrites") or 0) for stat in stats),
        "deletes": sum(int(stat.get("numDeletes") or 0) for stat in stats),
        "instants": sorted(instant.requested for instant, _ in commits),
        "commitMs": _between(begun, ended) if ended else None,
    }


def _newest(location: Location) -> str | None:
    storage = storage_of(location)
    return max(write_times(TableState.load(storage, load_config(storage))), default=None)


def _lag(source: Mapping[str, Any], newest: str | None) -> int | None:
    """Milliseconds; None for a source that is no table."""
    read = next(_completions(source.get("endOffset")), None)
    newest = newest or next(_completions(source.get("latestOffset")), None)
    if read is None or newest is None or not read.strip("0"):
        return None
    return max(0, _between(read, newest))


def _between(start: str, end: str) -> int:
    """Milliseconds between two times of one table."""
    return round((parse_wall(end) - parse_wall(start)).total_seconds() * 1000)


def _completions(offset: Any) -> Iterator[str]:
    """The completion time in an offset, which Spark shows as JSON or as its text."""
    try:
        found = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return
    if isinstance(found, dict) and isinstance(found.get(_AT), str):
        yield found[_AT]
