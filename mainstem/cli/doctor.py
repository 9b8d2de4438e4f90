"""The command ``mainstem doctor``; ``mainstem.cli.main`` adds it to its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from mainstem.cli.progress_shown import shown_progress
from mainstem.cli.row_output import plain, print_json

if TYPE_CHECKING:
    from mainstem.api.table import Table

FOUND = 1


def add_doctor_command(
    add: Callable[[str, Callable[..., Any], str], argparse.ArgumentParser],
    open_table: Callable[[argparse.Namespace], Table],
) -> None:
    """``add`` makes a command with PATH, ``open_table`` opens a table."""
    text = "say what is wrong with a table, its options and its writers; exit code 1 for errors and warnings"
    sub = add("doctor", _doctor, text)
    sub.add_argument(
        "--fix", action="store_true",
        help="first roll back dead writers and run what is due of all table services; then say what is left",
    )  # fmt: skip
    sub.add_argument("--quiet", action="store_true", help="leave notes out")
    sub.set_defaults(open_table=open_table)


def _doctor(options: argparse.Namespace, out: TextIO) -> int:
    from mainstem.doctor.finding import NOTE

    table = options.open_table(options)
    found = table.doctor(fix=options.fix, progress=shown_progress(table))
    wrong = [one for one in found if one.severity != NOTE]
    told = wrong if options.quiet else found
    if options.json:
        print_json((one.to_dict() for one in told), out)
    else:
        for one in told:
            for line in str(one).split("\n"):
                out.write(f"{plain(line)}\n")
        out.write(f"{_number(len(wrong), 'finding')}, {_number(len(found) - len(wrong), 'note')}\n")
    return FOUND if wrong else 0


def _number(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"
