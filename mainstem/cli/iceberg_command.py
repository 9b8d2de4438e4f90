"""``mainstem iceberg``: Iceberg's metadata beside a table, brought up to its base files."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

from mainstem.cli.row_output import plain, print_json

if TYPE_CHECKING:
    from mainstem.api.table import Table


def add_iceberg_command(
    add: Callable[[str, Callable[..., None], str], argparse.ArgumentParser],
    open_table: Callable[[argparse.Namespace], Table],
) -> None:
    """``add`` makes a subcommand with PATH and the common options; ``open_table`` opens its table."""
    sub = add("iceberg", _publish, "let engines that know Iceberg read the table's base files")
    sub.set_defaults(open=open_table)


def _publish(options: argparse.Namespace, out: TextIO) -> None:
    done = options.open(options).services.publish_iceberg()
    if options.json:
        print_json([asdict(done)], out)
    else:
        out.write(plain(done.describe()) + "\n")
