"""The command ``mainstem metrics``: what tables say of their writers, for Prometheus.

It looks at the tables from outside, so it counts all engines' commits, and a writer that died is seen too.
Each scrape looks anew, at most every ``--every``; a table that cannot be read is ``mainstem_table_up 0``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from mainstem.cli.rounds import seconds, warn
from mainstem.errors import Invalid, MainstemError

if TYPE_CHECKING:
    from mainstem.doctor.activity import Activity

_TABLE, _WRITER = ("mainstem_table",), ("mainstem_table", "mainstem_writer", "mainstem_action")
#: name, what it tells, labels
_GAUGES = {
    "mainstem_table_up": ("Whether the table could be read.", _TABLE),
    "mainstem_table_active_instants": ("Instants of the active timeline.", _TABLE),
    "mainstem_table_pending_instants": (
        "Instants that are not completed.", (*_TABLE, "mainstem_action", "mainstem_alive"),
    ),
    "mainstem_table_oldest_pending_age_seconds": ("Age of the oldest of them.", _TABLE),
    "mainstem_table_due": (
        "Work of table services that is due: commits or instants that wait, or 1.",
        (*_TABLE, "mainstem_work"),
    ),
    "mainstem_writer_commit_rate": ("Commits per second within the window.", _WRITER),
    "mainstem_writer_row_rate": ("Rows per second within the window.", _WRITER),
    "mainstem_writer_byte_rate": ("Bytes per second within the window.", _WRITER),
    "mainstem_writer_last_commit_age_seconds": ("Time since the newest commit within it.", _WRITER),
}  # fmt: skip


def add_metrics_command(
    add: Callable[[str, Callable[..., Any], str], argparse.ArgumentParser],
    open_table: Callable[[argparse.Namespace], Any],
) -> None:
    """``add`` makes a command with PATH, ``open_table`` opens a table."""
    sub = add("metrics", _metrics, "serve what tables say of their writers to Prometheus; or --once")
    sub.add_argument("more", metavar="PATH", nargs="*", help="more tables")
    sub.add_argument("--once", action="store_true", help="print the metrics, then end")
    sub.add_argument("--host", default="127.0.0.1", help="address to serve at (default 127.0.0.1)")
    sub.add_argument("--port", type=int, default=9464, help="port to serve at (default 9464)")
    sub.add_argument(
        "--every", type=seconds, default=5.0, metavar="TIME", help="look at most so often (default 5s)"
    )
    sub.add_argument("--window", type=int, default=60, metavar="SECONDS", help="rates of the last seconds")
    sub.set_defaults(open_table=open_table)


def _metrics(options: argparse.Namespace, out: TextIO) -> None:
    try:
        import prometheus_client as prometheus
    except ImportError as error:
        raise Invalid("mainstem metrics needs prometheus_client: pip install 'mainstem[metrics]'") from error
    registry = prometheus.CollectorRegistry()
    registry.register(_Tables(options))
    if options.once:
        out.write(prometheus.generate_latest(registry).decode())
        return
    try:
        server, serving = prometheus.start_http_server(options.port, options.host, registry)
    except (OSError, OverflowError) as error:
        raise Invalid(f"metrics cannot be served at {options.host}:{options.port}: {error}") from error
    print(f"metrics at http://{options.host}:{server.server_port}/metrics", file=sys.stderr, flush=True)
    serving.join()


class _Tables:
    """A collector of ``prometheus_client``."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._seen: dict[str, tuple[float, Activity | None]] = {}

    def describe(self) -> list[Any]:
        """Nothing is looked at when it is registered."""
        return []

    def collect(self) -> Iterator[Any]:
        """All gauges of all tables."""
        from prometheus_client.core import GaugeMetricFamily

        found = {
            name: GaugeMetricFamily(name, says, labels=labels) for name, (says, labels) in _GAUGES.items()
        }
        for path in (self._options.path, *self._options.more):
            seen = self._look(path)
            found["mainstem_table_up"].add_metric([path], float(seen is not None))
            if seen is not None:
                _add(found, path, seen)
        yield from found.values()

    def _look(self, path: str) -> Activity | None:
        now = time.monotonic()
        at, known = self._seen.get(path, (float("-inf"), None))
        if now - at < self._options.every:
            return known
        found = None
        try:
            options = argparse.Namespace(**{**vars(self._options), "path": path})
            found = self._options.open_table(options).activity(self._options.window)
        except (MainstemError, OSError) as error:
            warn(error)
        self._seen[path] = now, found
        return found


def _add(found: dict[str, Any], path: str, seen: Activity) -> None:
    found["mainstem_table_active_instants"].add_metric([path], seen.instants)
    counts: dict[tuple[str, str], int] = {}
    for one in seen.pending:
        key = one.action, str(one.alive).lower()
        counts[key] = counts.get(key, 0) + 1
    for key, count in sorted(counts.items()):
        found["mainstem_table_pending_instants"].add_metric([path, *key], count)
    oldest = max((one.since_s for one in seen.pending), default=0.0)
    found["mainstem_table_oldest_pending_age_seconds"].add_metric([path], oldest)
    for finding in seen.due:
        much = [value for value in finding.evidence.values() if isinstance(value, int)]
        found["mainstem_table_due"].add_metric([path, finding.check], much[0] if much else 1)
    for writer in seen.writers:
        labels, window = [path, writer.writer, writer.action], seen.window_s
        found["mainstem_writer_commit_rate"].add_metric(labels, writer.commits / window)
        found["mainstem_writer_row_rate"].add_metric(labels, writer.rows / window)
        found["mainstem_writer_byte_rate"].add_metric(labels, writer.bytes / window)
        found["mainstem_writer_last_commit_age_seconds"].add_metric(labels, writer.last_s)
