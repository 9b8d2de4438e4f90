"""The commands ``mainstem index ...``; ``mainstem.cli.main`` adds them to its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from mainstem.cli.progress_shown import shown_progress
from mainstem.cli.services import tell

if TYPE_CHECKING:
    from mainstem.api.table import Table


def add_index_commands(
    add: Callable[[str, Callable[..., None], str], argparse.ArgumentParser],
    open_table: Callable[[argparse.Namespace], Table],
) -> None:
    """``add`` makes a subcommand with PATH and the common options; ``open_table`` opens its table."""

    def index(name: str, command: Callable[..., None], text: str) -> argparse.ArgumentParser:
        sub = add(name, command, text)
        sub.set_defaults(open=open_table)
        return sub

    index("list", _list, "show the table's indexes: name, kind, columns, state")
    create = index("create", _create, "build an index while writers run")
    kinds = (
        "column_stats, partition_stats, bloom_filters, record_index, secondary_index, expr_index, vector or"
        " files"
    )
    create.add_argument("kind", metavar="KIND", help=kinds)
    create.add_argument("--columns", metavar="A,B", help="what it is on; default of statistics: all columns")
    create.add_argument(
        "--name", metavar="NAME", help="of a secondary, expression or vector index; default: of its column"
    )
    create.add_argument(
        "--set", action="append", default=[], type=_setting, metavar="KEY=VALUE",
        help="an option of the index, such as engine=hnsw, metric=l2 or clusters=4; may be repeated",
    )  # fmt: skip
    refresh = index("refresh", _refresh, "make the next version of a vector index, beside writers")
    refresh.add_argument("name", metavar="NAME", help="its name")
    rebuild = index("rebuild", _rebuild, "build an index anew; reads do without it meanwhile")
    rebuild.add_argument(
        "name", metavar="NAME", nargs="?", help="its name, or its partition; default: all"
    )
    drop = index("drop", _drop, "drop an index, whatever state it is in, while writers run")
    drop.add_argument("name", metavar="NAME", help="its name, or its partition of the metadata table")
    drop.add_argument("--if-exists", action="store_true", help="an index that is not there is no error")


def _list(options: argparse.Namespace, out: TextIO) -> None:
    tell(options, out, options.open(options).indexes(), "no indexes")


def _create(options: argparse.Namespace, out: TextIO) -> None:
    table = options.open(options)
    columns = [name.strip() for name in (options.columns or "").split(",") if name.strip()]
    made = table.create_index(
        options.kind, columns, name=options.name, options=dict(options.set), progress=shown_progress(table)
    )
    tell(options, out, [made], "")


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key.strip(), value.strip()


def _refresh(options: argparse.Namespace, out: TextIO) -> None:
    table = options.open(options)
    tell(options, out, [table.refresh_index(options.name, progress=shown_progress(table))], "")


def _rebuild(options: argparse.Namespace, out: TextIO) -> None:
    table = options.open(options)
    line = shown_progress(table)
    done = [table.reindex(options.name, progress=line)] if options.name else table.reindex_all(progress=line)
    tell(options, out, done, "no indexes")


def _drop(options: argparse.Namespace, out: TextIO) -> None:
    done = options.open(options).drop_index(options.name, if_exists=options.if_exists)
    tell(options, out, [] if done is None else [done], "no such index")
