"""``mainstem flink-commit``: commits what completed Flink checkpoints wrote, without Flink.

A job whose client has ended continues to write; its checkpoints wait in the table until a process commits
them. Any number of these processes may run, even beside jobs that commit for themselves.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

from mainstem.cli.rounds import add_when, ended_by_signals, warn
from mainstem.cli.row_output import plain, print_json
from mainstem.errors import LeaseLost, LockUnavailable, MainstemError, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from mainstem.writers.outcome import Outcome

_AGAIN = (LeaseLost, LockUnavailable, OutcomeUnknown, Unavailable)


def add_flink_command(
    add: Callable[[str, Callable[..., None], str], argparse.ArgumentParser],
    open_table: Callable[[argparse.Namespace], Table],
) -> None:
    """``add`` makes a subcommand with PATH and the common options; ``open_table`` opens its table."""
    sub = add("flink-commit", _flink_commit, "commit what completed checkpoints of Flink jobs wrote")
    sub.add_argument("--sink", metavar="NAME", help="of this sink (default: of every sink of the table)")
    when = add_when(sub, once="what is there now, then end", every_s=1)
    when.add_argument("--list", action="store_true", help="show the sinks and what waits instead")
    sub.set_defaults(open=open_table)


def _flink_commit(options: argparse.Namespace, out: TextIO) -> None:
    from mainstem.flink.committer import sink_names
    from mainstem.services.background import Background

    if options.list:
        _list(options, out)
        return

    def work(stopping: Callable[[], bool]) -> bool:
        # Open the table in each round: its properties may change while this process runs.
        table = options.open(options)
        failed: list[MainstemError] = []
        for name in [options.sink] if options.sink else sink_names(table):
            try:
                _commit(table, name, options.json, out)
            except MainstemError as error:
                failed.append(error)
        for failure in failed:
            if options.once or not isinstance(failure, _AGAIN):
                raise failure
            warn(failure)
        return bool(failed)

    rounds = Background(work, every_s=options.every)
    with ended_by_signals(rounds):
        rounds.here(1 if options.once else None)


def _commit(table: Table, sink: str, as_json: bool, out: TextIO) -> None:
    from mainstem.flink.committer import Committer

    def tell(outcome: Outcome) -> None:
        if as_json:
            print_json([{"sink": sink, **asdict(outcome)}], out)
        else:
            out.write(
                plain(
                    f"{sink}: {outcome.rows:,} rows committed as {outcome.instant}, visible at"
                    f" {outcome.completion_time}"
                )
                + "\n"
            )
        out.flush()

    Committer(table, sink, on_outcome=tell).commit_pending()


def _list(options: argparse.Namespace, out: TextIO) -> None:
    from mainstem.flink.committer import sinks

    found = [s for s in sinks(options.open(options)) if options.sink in (None, s.name)]
    if options.json:
        print_json([asdict(sink) for sink in found], out)
        return
    for sink in found:
        out.write(
            plain(
                f"{sink.name}: {sink.parts} part files wait, {sink.staged_files} staged files of"
                f" {sink.staged_bytes:,} bytes"
            )
            + "\n"
        )
