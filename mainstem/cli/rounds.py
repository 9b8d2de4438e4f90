"""``mainstem services``: rounds of table services in a process of its own.

Several such processes may run for one table, and any of them may be killed: the next round of any process
continues unfinished work. SIGTERM and SIGINT end a process after the current step.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TextIO

from mainstem.cli.progress_shown import shown_progress
from mainstem.cli.row_output import plain, print_json
from mainstem.errors import Unavailable
from mainstem.services.service_switches import SERVICES

if TYPE_CHECKING:
    from mainstem.services.background import Background
    from mainstem.services.runner import ServiceRun

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def add_rounds_command(
    add: Callable[[str, Callable[..., None], str], argparse.ArgumentParser],
) -> None:
    """``add`` makes a subcommand with PATH, the common options and ``open``."""
    sub = add("services", _services, "run what is due of all table services, again and again")
    add_when(sub, once="one round, then end", every_s=30)
    sub.add_argument(
        "--only", metavar="A,B", help=f"these services, whatever their switches say: {', '.join(SERVICES)}"
    )


def add_when(sub: argparse.ArgumentParser, *, once: str, every_s: int) -> argparse._MutuallyExclusiveGroup:
    """``--once`` or ``--every TIME``, for a process that works in rounds."""
    when = sub.add_mutually_exclusive_group()
    when.add_argument("--once", action="store_true", help=once)
    when.add_argument(
        "--every", type=seconds, default=float(every_s), metavar="TIME",
        help=f"pause between rounds, for instance 500ms, 30s or 5m (default {every_s}s); SIGTERM and SIGINT"
        " end the process after the step under way",
    )  # fmt: skip
    return when


def seconds(text: str) -> float:
    """Parses a duration from the command line (500ms, 30s, 5m, 1h); returns seconds."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|)", text.strip().lower())
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{plain(text)!r} is not a length of time; expected a number and ms, s, m or h"
        )
    return float(found[1]) * _UNITS_S[found[2] or "s"]


def _services(options: argparse.Namespace, out: TextIO) -> None:
    from mainstem.indexing.creating import tend
    from mainstem.services.background import Background
    from mainstem.services.runner import Round
    from mainstem.vectors.index import lifecycle

    plan = Round.of(options.only, rebuild=tend, vectors=lifecycle.tend)

    def work(stopping: Callable[[], bool]) -> bool:
        try:
            # Open the table in each round: its properties may change while this process runs.
            table = options.open(options)
            how = replace(plan, progress=shown_progress(table), stopping=stopping)
            runs = how.run(table.writer_context())
        except Unavailable as error:
            if options.once:
                raise
            warn(error)
            return True
        return _tell(runs, options.json, options.once, out)

    rounds = Background(work, every_s=options.every)
    with ended_by_signals(rounds):
        rounds.here(1 if options.once else None)


def _tell(runs: Sequence[ServiceRun], as_json: bool, once: bool, out: TextIO) -> bool:
    """Prints what a round did; whether a service failed. With ``once``, also prints what was not due, and
    raises the first failure."""
    done = [run for run in runs if run.results or run.error is not None]
    if as_json:
        print_json([_record(run) for run in (runs if once else done)], out)
    else:
        out.writelines(f"{plain(run.describe())}\n" for run in (runs if once else done))
    out.flush()
    failed = [run.error for run in done if run.error is not None]
    if failed and once:
        raise failed[0]
    for error in failed:
        warn(error)
    return bool(failed)


def _record(run: ServiceRun) -> Mapping[str, Any]:
    return {
        "service": run.service,
        "results": [asdict(result) for result in run.results],
        "off": run.off,
        "error": None if run.error is None else str(run.error),
    }


def warn(error: Exception) -> None:
    """Prints an error that does not end the command."""
    print(f"mainstem: warning: {plain(str(error))}", file=sys.stderr)


@contextmanager
def ended_by_signals(rounds: Background) -> Iterator[None]:
    """SIGTERM and SIGINT end the rounds after the current step; a second SIGINT ends them at once."""

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        rounds.stop(0)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)
