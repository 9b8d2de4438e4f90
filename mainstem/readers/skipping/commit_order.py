"""Tells whether the files of a partition were written by commits that did not overlap in time.

A Java writer computes a partition's statistics from the files that it sees and marks them as tight. The
statistics of the instant with the greatest requested time then count as the newest. If two writers overlap,
that instant may not have seen the other's files, so the statistics do not bound the data (seen with Hudi
1.2.0 under non-blocking concurrency control, until the next commit to the partition). Mainstem's writers only
widen the statistics that exist.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths


def written_in_turn(state: TableState, names: Iterable[str]) -> bool:
    """False if two instants that wrote these files were in flight at the same time, and one of them is not
    mainstem's."""
    parsed = (paths.parse_log_name(name) or paths.parse_base_name(name) for name in names)
    instants = sorted({name.instant for name in parsed if name is not None})
    times = [(instant, done) for instant in instants if (done := state.completion(instant)) is not None]
    crossed: set[str] = set()
    latest = ("", "")
    for requested, done in times:
        if requested < latest[1]:
            crossed |= {latest[0], requested}
        latest = max(latest, (requested, done), key=lambda item: item[1])
    return all(_is_ours(state, instant) for instant in sorted(crossed))


def _is_ours(state: TableState, instant: str) -> bool:
    found = state.metadata(instant)
    return found is not None and found.ours
