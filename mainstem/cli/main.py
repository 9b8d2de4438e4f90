"""The command ``mainstem``: look at a table, empty it, and roll back what dead writers left.

    mainstem timeline PATH      instants: requested and completion time, action, state
    mainstem slices PATH        file slices: partition, file id, base file, log files
    mainstem scan PATH          rows of a snapshot, as of a time, or of the base files alone
    mainstem changes PATH       what instants of a range of completion times changed
    mainstem search PATH COLUMN the rows whose vectors are nearest to one
    mainstem explain PATH       every version of a row that is still there, and which one a query shows
    mainstem top PATH           who writes, how fast, what is under way, what is due; or --once
    mainstem metrics PATH...    the same for Prometheus, served or --once
    mainstem doctor PATH        what is wrong with a table and its writers; --fix mends what is safe
    mainstem ui PATH...         all of that in the browser, live; read-only
    mainstem properties PATH    hoodie.properties
    mainstem delete-partition PATH PARTITION...  delete all rows of partitions, beside running writers
    mainstem truncate PATH      delete all rows; the table and its history stay
    mainstem rollback PATH      roll back the instants of writers whose heartbeat has expired
    mainstem compact PATH       merge log files into new base files, beside running writers
    mainstem cluster PATH       the same, with rows in an order; without buckets, put small files together
    mainstem resize PATH --buckets N  another number of buckets per partition, beside running writers
    mainstem upgrade PATH --to 10  a newer table version, beside running writers; downgrade: back to 9
    mainstem services PATH      all table services, whatever is due, every 30 s or --once
    mainstem ingest PATH        a Kafka topic, files, or a table of PostgreSQL into a table
    mainstem flink-commit PATH  commit what completed checkpoints of Flink jobs wrote
    mainstem catalog tables CATALOG DATABASE  tables by name: databases, show, register, refresh, drop
    mainstem sync PATH          register a table in a catalog by Hudi's options
    mainstem index list PATH    the table's indexes; create, rebuild and drop them while writers run
    mainstem metadata validate PATH  compare the metadata table with the data

``--json`` prints one JSON object per line (``properties``: one object). ``scan``, ``changes`` and ``search``
also write CSV, JSON lines or Parquet to a file (``--format``, ``--output``). Text output is for people:
control characters in names and values, which could move a terminal's cursor or fake a line, are
stripped, and long cells of rows cut. Exit codes: 0 done, 1 refused (the line on stderr says what, where
and what to do), or ``metadata validate`` or ``doctor`` found something, 2 wrong command line, 3 storage or
lock not available (try again later), 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import mainstem
from mainstem.cli.catalog_commands import add_catalog_commands, add_sync_command
from mainstem.cli.doctor import add_doctor_command
from mainstem.cli.emptying import add_emptying_commands
from mainstem.cli.explained_rows import add_explain_command, add_history_command
from mainstem.cli.flink_commit import add_flink_command
from mainstem.cli.iceberg_command import add_iceberg_command
from mainstem.cli.index import add_index_commands
from mainstem.cli.ingest import add_ingest_command
from mainstem.cli.metadata import add_metadata_commands
from mainstem.cli.progress_shown import shown_progress
from mainstem.cli.row_output import FORMATS, plain, print_json, print_table, write_rows
from mainstem.cli.search import add_search_command
from mainstem.cli.serve_metrics import add_metrics_command
from mainstem.cli.services import add_service_commands
from mainstem.cli.top import add_top_command
from mainstem.cli.web_page import add_page_command
from mainstem.errors import (
    LeaseLost,
    LockUnavailable,
    MainstemError,
    OutcomeUnknown,
    Unavailable,
)
from mainstem.options.tables import LOCAL_ZONE

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from mainstem.readers.queries.scan_plan import ScanPlan

DONE, REFUSED, USAGE, TRY_AGAIN, INTERRUPTED = 0, 1, 2, 3, 130
_AGAIN = (LeaseLost, LockUnavailable, OutcomeUnknown, Unavailable)
_TABLE_ROWS = 20  # rows of a table where no limit is given


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Errors become one line on stderr, never a
    traceback.
    """
    parser = _parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as ended:  # argparse has printed help or what is wrong
        return int(ended.code or 0)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = options.command(options, sys.stdout)
            sys.stdout.flush()
        return code or DONE
    except MainstemError as error:
        _complain(str(error))
        return TRY_AGAIN if isinstance(error, _AGAIN) else REFUSED
    except BrokenPipeError:
        # The reader (`head`) has seen enough; keep Python from complaining again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _complain(f"storage: {error.strerror or error}{where}; check the path and your permissions")
        return TRY_AGAIN
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED


def _complain(text: str) -> None:
    print(f"mainstem: error: {plain(text)}", file=sys.stderr)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"mainstem: warning: {plain(str(message))}", file=sys.stderr)


# -- command line --------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mainstem", description="Look at Apache Hudi tables that mainstem reads and writes."
    )
    parser.add_argument("--version", action="version", version=f"mainstem {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add = _adder(commands)
    sub = add("timeline", _timeline, "show the active timeline")
    sub.add_argument("--pending", action="store_true", help="only instants that are not completed")
    sub = add("slices", _slices, "show the file slices")
    sub.add_argument("--latest", action="store_true", help="only the newest slice per file group")
    sub = add("scan", _scan, "print rows")
    _add_rows(sub)
    sub.add_argument("--as-of", metavar="TIME", help="rows as of this instant (yyyyMMddHHmmssSSS)")
    sub.add_argument(
        "--as-of-completion", metavar="TIME", help="what was completed at this completion time"
    )
    sub.add_argument(
        "--mode", choices=("snapshot", "read_optimized"), default="snapshot",
        help="read_optimized reads base files alone",
    )  # fmt: skip
    sub = add("changes", _changes, "print what instants changed")
    _add_rows(sub)
    sub.add_argument("--after", metavar="TIME", help="completed after this completion time")
    sub.add_argument("--until", metavar="TIME", help="completed at or before this completion time")
    sub.add_argument("--deletes", action="store_true", help="deleted keys too, marked in _change_type")
    sub.add_argument("--cdc", action="store_true", help="change data: operation, row before, row after")
    add_search_command(add, _add_rows, _open)
    add_explain_command(add, _open)
    add_history_command(add, _open)
    add_top_command(add, _open)
    add_metrics_command(add, _open)
    add_doctor_command(add, _open)
    add_page_command(add)
    add("properties", _properties, "show hoodie.properties")
    add_emptying_commands(add, _open)
    add_service_commands(add, _open)
    add_flink_command(add, _open)
    add_ingest_command(add)
    add_sync_command(add)
    add_iceberg_command(add, _open)
    about = "tables by name: in a folder, a Hive Metastore or AWS Glue"
    catalog = commands.add_parser("catalog", help=about, description=about[0].upper() + about[1:] + ".")
    add_catalog_commands(catalog.add_subparsers(metavar="ACTION", required=True), _add_common)
    about = "see, build and drop the table's indexes"
    index = commands.add_parser("index", help=about, description=about[0].upper() + about[1:] + ".")
    add_index_commands(_adder(index.add_subparsers(metavar="ACTION", required=True)), _open)
    about = "compare the metadata table with the data"
    metadata = commands.add_parser("metadata", help=about, description=about[0].upper() + about[1:] + ".")
    add_metadata_commands(_adder(metadata.add_subparsers(metavar="ACTION", required=True)), _open)
    return parser


def _adder(commands: Any) -> Callable[[str, Callable[..., None], str], argparse.ArgumentParser]:
    """Makes commands with PATH and the common options."""

    def add(name: str, command: Callable[..., None], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.add_argument("path", metavar="PATH", help="base path of the table, or its name with --catalog")
        sub.add_argument(
            "--catalog", metavar="CATALOG", help="where PATH is a name: thrift://..., glue:, a folder"
        )
        _add_common(sub)
        sub.set_defaults(command=command)
        return sub

    return add


def _add_common(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--json", action="store_true", help="one JSON object per line")
    sub.add_argument(
        "-o", "--option", action="append", default=[], type=_option, metavar="KEY=VALUE",
        help="a property on top of the table's own, for instance"
        f" {LOCAL_ZONE}=UTC; may be repeated",
    )  # fmt: skip


def _add_rows(sub: argparse.ArgumentParser) -> None:
    """Which rows, and in which form; of ``scan``, ``changes`` and ``search``."""
    sub.add_argument("--columns", type=_names, metavar="A,B", help="these columns, in this order")
    sub.add_argument(
        "--where", action="append", default=[], metavar="CONDITION",
        help="rows with COLUMN OP VALUE (= != < <= > >=), is null, in, between, like, joined by and, or, not",
    )  # fmt: skip
    sub.add_argument(
        "--limit", type=_count, metavar="N",
        help=f"at most N rows; 0 = all (default {_TABLE_ROWS} for tables, else all)",
    )  # fmt: skip
    sub.add_argument("--count", action="store_true", help="print the number of rows instead")
    sub.add_argument("--format", choices=FORMATS, help="how to write rows (default table)")
    sub.add_argument("--output", metavar="FILE", help="write to this new file instead of the terminal")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("mainstem")
    except PackageNotFoundError:
        return "(not installed)"


def _option(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{plain(text)!r} is not of the form KEY=VALUE")
    return key.strip(), value.strip()


def _names(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    if not names:
        raise argparse.ArgumentTypeError("expected column names, separated by commas")
    return names


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{plain(text)!r} is not a whole number")
    return int(text)


def _open(options: argparse.Namespace) -> Table:
    return mainstem.open_table(options.path, properties=dict(options.option), catalog=options.catalog)


# -- commands ------------------------------------------------------------------------------------


def _timeline(options: argparse.Namespace, out: TextIO) -> None:
    instants = [
        {
            "requested": i.requested,
            "completion": i.completion,
            "action": i.action,
            "state": i.state,
        }
        for i in _open(options).timeline()
        if not (options.pending and i.is_completed)
    ]
    _print_items(instants, ("requested", "completion", "action", "state"), options.json, out)


def _slices(options: argparse.Namespace, out: TextIO) -> None:
    slices = [
        {
            "partition": s.partition,
            "file_id": s.file_id,
            "base_instant": s.base_instant,
            "base_file": s.base_file,
            "log_files": list(s.log_files) if options.json else len(s.log_files),
            "latest": s.latest,
            "pending": s.pending,
        }
        for s in _open(options).file_slices()
        if s.latest or not options.latest
    ]
    heads = (
        "partition", "file_id", "base_instant", "base_file", "log_files", "latest", "pending",
    )  # fmt: skip
    _print_items(slices, heads, options.json, out)


def _scan(options: argparse.Namespace, out: TextIO) -> None:
    table = _open(options)

    def plan(columns: Sequence[str] | None, filter: Any) -> ScanPlan:
        return table.scan(
            columns=columns,
            filter=filter,
            as_of=options.as_of,
            as_of_completion=options.as_of_completion,
            mode=options.mode,
        )

    _print_rows(table, plan, options, out)


def _changes(options: argparse.Namespace, out: TextIO) -> None:
    table = _open(options)

    def plan(columns: Sequence[str] | None, filter: Any) -> ScanPlan:
        return table.changes(
            options.after,
            options.until,
            columns=columns,
            filter=filter,
            mode="cdc" if options.cdc else "latest",
            deletes=options.deletes,
        )

    _print_rows(table, plan, options, out)


def _print_rows(
    table: Table,
    plan: Callable[[Sequence[str] | None, Any], ScanPlan],
    options: argparse.Namespace,
    out: TextIO,
) -> None:
    form = options.format or ("json" if options.json else "table")
    limit = options.limit if options.limit is not None else _TABLE_ROWS if form == "table" else 0
    filter = None
    if options.where:
        from mainstem.filters.conditions import conditions

        schema = plan(None, None).schema
        for text in options.where:
            found = conditions(text, schema, "--where")
            filter = found if filter is None else filter & found
    scan = plan(options.columns, filter)
    if options.count:
        rows = scan.count_rows(progress=shown_progress(table))
        out.write(f"{json.dumps({'rows': rows})}\n" if options.json else f"{rows}\n")
        return
    quiet = options.output is None and out.isatty()  # a bar between rows would be in their way
    batches = scan.to_batches(progress=None if quiet else shown_progress(table))
    write_rows(batches, scan.schema, form, limit, out, options.output)


def _properties(options: argparse.Namespace, out: TextIO) -> None:
    properties: Mapping[str, str] = _open(options).properties
    if options.json:
        out.write(json.dumps(dict(sorted(properties.items()))) + "\n")
        return
    for key in sorted(properties):
        out.write(f"{plain(key)}={plain(properties[key])}\n")


# -- output --------------------------------------------------------------------------------------


def _print_items(
    items: Sequence[Mapping[str, Any]], heads: Sequence[str], as_json: bool, out: TextIO
) -> None:
    if as_json:
        print_json(items, out)
    else:
        print_table(items, heads, out)


if __name__ == "__main__":
    sys.exit(main())
