"""Whether the files of a partition were written one commit after the other.

Java makes a partition's statistics of the files that its writer sees, calls them tight, and takes those of
the instant with the greatest requested time for the newest. Of two writers that cross, that is the one that
could not see the other's files: the statistics then do not bound the data (seen with Hudi 1.2.0 under
non-blocking concurrency control, until the next commit to the partition). Writers of mainstem only widen what
is there.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths


def written_in_turn(state: TableState, names: Iterable[str]) -> bool:
    """False where two of the instants that wrote these files were in flight at the same time, and one of
    them is not mainstem's."""
    parsed = (paths.parse_log_name(name) or paths.parse_base_name(name) for name in names)
    instants = sorted({name.instant for name in parsed if name is not None})
    times = [(instant, done) for instant in instants if (done := state.completion(instant)) is not None]
    crossed: set[str] = set()
    latest = ("", "")
    for requested, done in times:
        if requested < latest[1]:
            crossed |= {latest[0], requested}
        latest = max(latest, (requested, done), key=lambda item: item[1])
    return all(_is_ours(state, instant) for instant in crossed)


def _is_ours(state: TableState, instant: str) -> bool:
    found = state.metadata(instant)
    return found is not None and found.ours
