"""The commands ``mainstem explain`` and ``mainstem history``; ``mainstem.cli.main`` adds them to its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from mainstem.cli.row_output import plain, print_json, print_table
from mainstem.options import WRITER_NAME

if TYPE_CHECKING:
    from mainstem.api.table import Table

#: columns of the table that people see
_HISTORY = (
    "requested", "completion", "action", "state", "operation", "writer", "partitions", "file_groups",
    "inserts", "updates", "deletes", "bytes", "keys",
)  # fmt: skip


def add_explain_command(
    add: Callable[[str, Callable[..., None], str], argparse.ArgumentParser],
    open_table: Callable[[argparse.Namespace], Table],
) -> None:
    """``add`` makes a command with PATH, ``open_table`` opens a table."""
    sub = add("explain", _explain, "tell every version of a row that is still there, and which one wins")
    sub.add_argument("--key", required=True, metavar="KEY", help="the record key, as in _hoodie_record_key")
    sub.add_argument("--partition", metavar="PATH", help="its path below the table; default: all")
    sub.add_argument("--as-of", metavar="TIME", help="as of this instant (yyyyMMddHHmmssSSS)")
    sub.set_defaults(open_table=open_table)


def add_history_command(
    add: Callable[[str, Callable[..., None], str], argparse.ArgumentParser],
    open_table: Callable[[argparse.Namespace], Table],
) -> None:
    """``add`` makes a command with PATH, ``open_table`` opens a table."""
    sub = add("history", _history, "tell who wrote what and when, archived instants too")
    sub.add_argument("--after", metavar="TIME", help="completed after this completion time")
    sub.add_argument("--until", metavar="TIME", help="completed at or before this completion time")
    sub.add_argument("--action", action="append", metavar="ACTION", help="this action; may be repeated")
    sub.add_argument("--writer", metavar="NAME", help=f"writes of the writer with this {WRITER_NAME}")
    sub.add_argument("--partition", metavar="PATH", help="writes that touched this partition")
    sub.add_argument("--key", metavar="KEY", help="writes of this record key, while their files are there")
    sub.add_argument("--keys", nargs=2, metavar=("FIRST", "LAST"), help="the same for a range of keys")
    sub.set_defaults(open_table=open_table)


def _history(options: argparse.Namespace, out: TextIO) -> None:
    table: Table = options.open_table(options)
    keys = options.key if options.keys is None else tuple(options.keys)
    found = table.history(
        options.after, options.until, actions=options.action, writer=options.writer,
        partition=options.partition, keys=keys,
    )  # fmt: skip
    names = [name for name in _HISTORY if name != "keys" or keys is not None]
    if options.json:
        print_json(found.to_pylist(), out)
        return
    rows = found.select(names).to_pylist()
    print_table(({**row, "partitions": len(row["partitions"])} for row in rows), names, out)


def _explain(options: argparse.Namespace, out: TextIO) -> None:
    table: Table = options.open_table(options)
    found = table.explain_row(options.key, options.partition, options.as_of)
    if options.json:
        print_json([found.to_json()], out)
        return
    for line in str(found).split("\n"):
        out.write(f"{plain(line)}\n")
