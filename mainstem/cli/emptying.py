"""The commands of ``mainstem`` that hide rows: ``delete-partition`` and ``truncate``.

Both ask, or want ``--yes``. What other writers complete meanwhile stays; of the older rows readers see none.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from mainstem.cli.row_output import plain, print_json
from mainstem.errors import Invalid
from mainstem.writers.outcome import COMMITTED

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from mainstem.writers.outcome import Outcome


def add_emptying_commands(
    add: Callable[[str, Callable[..., None], str], argparse.ArgumentParser],
    open_table: Callable[[argparse.Namespace], Table],
) -> None:
    """``add`` makes a subcommand with PATH and the common options; ``open_table`` opens its table."""
    delete = add("delete-partition", _delete_partition, "delete all rows of partitions")
    delete.add_argument(
        "partitions", metavar="PARTITION", nargs="+", help="its path below the table, as in city=rome/day=3"
    )
    truncate = add("truncate", _truncate, "delete all rows of the table; the table and its history stay")
    for sub in (delete, truncate):
        sub.add_argument("--yes", action="store_true", help="do not ask")
        sub.set_defaults(open=open_table)


def _delete_partition(options: argparse.Namespace, out: TextIO) -> None:
    table: Table = options.open(options)
    names = dict.fromkeys(options.partitions)
    ask(options, f"delete all rows of {', '.join(names)} in {table.path}")
    _tell(options, out, table.delete_partition(*names), ", ".join(names))


def _truncate(options: argparse.Namespace, out: TextIO) -> None:
    table: Table = options.open(options)
    ask(options, f"delete all rows of {table.path}")
    _tell(options, out, table.truncate(), "the table")


def ask(options: argparse.Namespace, what: str) -> None:
    """Asks, unless there is ``--yes``. Raises ``Invalid`` unless it is wanted."""
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise Invalid(f"would {what}: nobody can be asked here, give --yes. Nothing was changed")
    print(f"{plain(what[0].upper() + what[1:])}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Invalid("nothing was changed")


def _tell(options: argparse.Namespace, out: TextIO, outcome: Outcome, what: str) -> None:
    done = outcome.status == COMMITTED
    if options.json:
        shown: dict[str, Any] = {
            "status": outcome.status,
            "instant": outcome.instant,
            "completion": outcome.completion_time,
            "files": outcome.files,
        }
        print_json([shown], out)
    elif done:
        out.write(f"{plain(what)} is empty since {plain(outcome.completion_time or '')}\n")
    else:
        out.write("nothing to delete\n")
