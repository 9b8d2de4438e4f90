"""Streams of a table, by what they noted in their commits."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from mainstem.timeline.commit_metadata import STREAM_KEY
from mainstem.writers.stream_guard import GUARD_KEY

_STREAMS_MAX, _COMMITS_MAX = 200, 120
_TEXT_MAX = 2_000


def shown_streams(told: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each stream that a commit names, the one that committed last first.

    ``told``: rows of ``Table.history``, oldest first. A stream has its ``identifier`` (that of
    HoodieStreamingSink's checkpoint), its newest ``batch`` with ``completion``, how many ``commits``, the
    median seconds between them in ``every_s``, and its newest ``points``: completion time, batch and rows.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in told:
        extra = json.loads(row["extra_metadata"] or "{}")
        for identifier, batch in _batches(extra.get(STREAM_KEY)):
            stream = found.setdefault(
                identifier,
                {"identifier": identifier, "writer": "", "commits": 0, "rows": 0, "points": []},
            )
            stream |= {
                "batch": batch, "completion": row["completion"], "requested": row["requested"],
                "writer": row["writer"], "commits": stream["commits"] + 1,
                "rows": stream["rows"] + (row["rows"] or 0),
                "noted": _noted(extra),
            }  # fmt: skip
            stream["points"] = [
                *stream["points"][1 - _COMMITS_MAX :], [row["completion"], batch, row["rows"]]
            ]  # fmt: skip
            found[identifier] = stream
    newest = sorted(found.values(), key=lambda stream: stream["completion"] or "", reverse=True)
    return [{**stream, "every_s": _every_s(stream["points"])} for stream in newest[:_STREAMS_MAX]]


def _noted(extra: Mapping[str, Any]) -> dict[str, str]:
    """What else the commit says: offsets of sources, say."""
    known = (STREAM_KEY, GUARD_KEY)
    return {k: v[:_TEXT_MAX] for k, v in extra.items() if k not in known and isinstance(v, str)}


def _batches(text: object) -> list[tuple[str, str]]:
    """Identifier and batch of each stream in a commit's note."""
    try:
        noted = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return []
    return [(str(k), str(v)) for k, v in noted.items()] if isinstance(noted, dict) else []


def _every_s(points: list[list[Any]]) -> float | None:
    times = [seconds(point[0]) for point in points if point[0]]
    between = [after - before for before, after in zip(times, times[1:], strict=False)]
    return round(statistics.median(between), 3) if between else None


def seconds(instant: str) -> float:
    """Seconds of an instant's clock, for differences; hostile digits give some number."""
    year, month, day, hour, minute = (
        int(instant[a:b] or 0) for a, b in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 12))
    )
    # Days of the civil calendar, without complaint about a 13th month.
    before = year - (month <= 2)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    days = 365 * before + before // 4 - before // 100 + before // 400 + of_year
    return days * 86_400 + hour * 3_600 + minute * 60 + int(instant[12:17].ljust(5, "0")) / 1000
