"""The command ``mainstem top``; ``mainstem.cli.main`` adds it to its own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TextIO

from mainstem.cli.rounds import add_when, ended_by_signals, warn
from mainstem.cli.row_output import plain, print_json, print_table
from mainstem.errors import Unavailable

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from mainstem.doctor.activity import Activity

_CLEAR = "\x1b[H\x1b[J"
_HEADS = ("writer", "action", "commits", "rows/s", "MB/s", "last")
_PENDING = ("instant", "action", "state", "since", "alive")


def add_top_command(
    add: Callable[[str, Callable[..., None], str], argparse.ArgumentParser],
    open_table: Callable[[argparse.Namespace], Table],
) -> None:
    """``add`` makes a command with PATH, ``open_table`` opens a table."""
    sub = add("top", _top, "show who writes the table, how fast, what is under way and what is due")
    add_when(sub, once="one look, then end", every_s=2)
    sub.add_argument(
        "--window", type=int, default=60, metavar="SECONDS", help="rates of the last seconds (default 60)"
    )
    sub.set_defaults(open_table=open_table)


def _top(options: argparse.Namespace, out: TextIO) -> None:
    from mainstem.services.background import Background

    def look(stopping: Callable[[], bool]) -> bool:
        try:
            # Open the table in each round: its properties may change while this process runs.
            found = options.open_table(options).activity(options.window)
        except Unavailable as error:
            if options.once:
                raise
            warn(error)
            return True
        if options.json:
            print_json([found.to_dict()], out)
        else:
            out.write(_CLEAR if out is sys.stdout and out.isatty() else "")
            _print(found, options.path, out)
        out.flush()
        return False

    rounds = Background(look, every_s=options.every)
    with ended_by_signals(rounds):
        rounds.here(1 if options.once else None)


def _print(found: Activity, path: str, out: TextIO) -> None:
    commits = sum(one.commits for one in found.writers)
    out.write(
        f"{plain(path)}: {commits} commits within {found.window_s:.0f} s, {len(found.pending)} instants under"
        f" way, {found.instants} active\n"
    )
    if found.lock is not None and (found.lock.holder or found.lock.waiting):
        since = "" if found.lock.since_s is None else f" for {found.lock.since_s:.1f} s"
        holder, wait = plain(found.lock.holder or "free"), len(found.lock.waiting or ())
        out.write(f"lock: {holder}{since}, {wait} wait\n")
    out.writelines(f"{plain(one.check)}: {plain(one.shown_by)}\n" for one in found.due)
    if found.writers:
        out.write("\n")
        print_table(_writers(found), _HEADS, out)
    if found.pending:
        out.write("\n")
        print_table(
            (
                {**vars(one), "since": f"{one.since_s:.0f} s", "alive": "yes" if one.alive else "no"}
                for one in found.pending
            ),
            _PENDING,
            out,
        )


def _writers(found: Activity) -> Iterator[dict[str, object]]:
    for one in found.writers:
        yield {
            "writer": one.writer or "-", "action": one.action, "commits": one.commits,
            "rows/s": round(one.rows / found.window_s), "MB/s": round(one.bytes / found.window_s / 1e6, 2),
            "last": f"{one.last_s:.0f} s ago",
        }  # fmt: skip
