"""The command ``mainstem explain``; ``mainstem.cli.main`` adds it to its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from mainstem.cli.row_output import plain, print_json

if TYPE_CHECKING:
    from mainstem.api.table import Table


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


def _explain(options: argparse.Namespace, out: TextIO) -> None:
    table: Table = options.open_table(options)
    found = table.explain_row(options.key, options.partition, options.as_of)
    if options.json:
        print_json([found.to_json()], out)
        return
    for line in str(found).split("\n"):
        out.write(f"{plain(line)}\n")
