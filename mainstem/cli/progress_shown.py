"""Progress of long work on standard error: a bar in a terminal that has tqdm, else a line now and then."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from mainstem.cli.row_output import plain

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from mainstem.services.progress import Progress

_QUIET_MS = 2_000  # longer work reports its progress at this interval
_BAR_AFTER_S = 1.0  # shorter work shows no bar


def shown_progress(table: Table) -> Progress:
    """What tells a person how far one command's work is."""
    return bar_of_terminal() or ProgressLine(table)


def bar_of_terminal() -> ProgressBar | None:
    """A bar, if standard error is a terminal and tqdm is there."""
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return ProgressBar(tqdm)


class ProgressLine:
    """Prints a line every two seconds."""

    def __init__(self, table: Table) -> None:
        self._now_ms = table.opened.seams.clock.monotonic_ms
        self._what = ""
        self._said_ms = 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = self._now_ms()
        if what != self._what:
            self._what, self._said_ms = what, now
        if now - self._said_ms >= _QUIET_MS:
            self._said_ms = now
            print(f"mainstem: {plain(what)}: {done:,} of {total:,}", file=sys.stderr, flush=True)


class ProgressBar:
    """Draws one bar for each kind of work, one after another, which is gone when the work is done.

    ``tqdm``: the class of that name. What a failure leaves of a bar goes with the process.
    """

    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._what = ""
        self._bar: Any = None

    def __call__(self, what: str, done: int, total: int) -> None:
        if what != self._what or self._bar is None:
            self._close()
            self._what = what
            self._bar = self._tqdm(
                desc=plain(what), total=total, delay=_BAR_AFTER_S, leave=False, file=sys.stderr,
                dynamic_ncols=True, unit="",
            )  # fmt: skip
        self._bar.total = total
        self._bar.update(done - self._bar.n)
        if done >= total:
            self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
