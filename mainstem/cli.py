"""The command ``mainstem``: look at a table, and roll back what dead writers left.

    mainstem timeline PATH      instants: requested and completion time, action, state
    mainstem slices PATH        file slices: partition, file id, base file, log files
    mainstem scan PATH          rows of a snapshot, as of a time, or of the base files alone
    mainstem properties PATH    hoodie.properties
    mainstem rollback PATH      roll back the instants of writers whose heartbeat has expired

``--json`` prints one JSON object per line (``properties``: one object). Text output is for people:
control characters in names and values, which could move a terminal's cursor or fake a line, are
stripped. Exit codes: 0 done, 1 refused (the line on stderr says what, where and what to do), 2
wrong command line, 3 storage or lock not available (try again later), 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

import mainstem
from mainstem.errors import (
    LeaseLost,
    LockUnavailable,
    MainstemError,
    OutcomeUnknown,
    Unavailable,
)

if TYPE_CHECKING:
    from mainstem.client import Table

DONE, REFUSED, USAGE, TRY_AGAIN, INTERRUPTED = 0, 1, 2, 3, 130
_AGAIN = (LeaseLost, LockUnavailable, OutcomeUnknown, Unavailable)
_WIDTH_MAX = 60
_SAMPLE_ROWS = 1000  # rows whose widths decide the columns; later ones may be wider
_CONTROL = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))


def plain(text: str) -> str:
    """``text`` without control, formatting and line-breaking characters; tab and newline are
    blanks.

    Covers C0 and C1 controls (terminal escapes), bidirectional overrides and lone surrogates.
    """
    if text.isascii() and text.isprintable():
        return text
    spaced = text.replace("\t", " ").replace("\n", " ").replace("\r", " ")
    return "".join(c for c in spaced if unicodedata.category(c) not in _CONTROL)


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
            options.command(options, sys.stdout)
            sys.stdout.flush()
        return DONE
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

    def add(name: str, command: Callable[..., None], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.add_argument("path", metavar="PATH", help="base path of the table")
        sub.add_argument("--json", action="store_true", help="one JSON object per line")
        sub.add_argument(
            "-o", "--option", action="append", default=[], type=_option, metavar="KEY=VALUE",
            help="a property on top of the table's own, for instance"
            " hoodie.mainstem.timeline.zone=UTC; may be repeated",
        )  # fmt: skip
        sub.set_defaults(command=command)
        return sub

    sub = add("timeline", _timeline, "show the active timeline")
    sub.add_argument("--pending", action="store_true", help="only instants that are not completed")
    sub = add("slices", _slices, "show the file slices")
    sub.add_argument("--latest", action="store_true", help="only the newest slice per file group")
    sub = add("scan", _scan, "print rows")
    sub.add_argument("--columns", type=_names, metavar="A,B", help="these columns, in this order")
    sub.add_argument("--as-of", metavar="TIME", help="rows as of this instant (yyyyMMddHHmmssSSS)")
    sub.add_argument(
        "--mode", choices=("snapshot", "read_optimized"), default="snapshot",
        help="read_optimized reads base files alone",
    )  # fmt: skip
    sub.add_argument(
        "--limit", type=_count, default=20, metavar="N", help="at most N rows; 0 = all (default 20)"
    )
    sub.add_argument("--count", action="store_true", help="print the number of rows instead")
    add("properties", _properties, "show hoodie.properties")
    add("rollback", _rollback, "roll back the instants of dead writers")
    return parser


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
    return mainstem.open_table(options.path, properties=dict(options.option))


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
    scan = _open(options).scan(columns=options.columns, as_of=options.as_of, mode=options.mode)
    if options.count:
        rows = sum(batch.num_rows for batch in scan.to_batches())
        out.write(f"{json.dumps({'rows': rows})}\n" if options.json else f"{rows}\n")
        return
    heads = list(options.columns or scan.schema.names)
    rows = _rows(scan.to_batches(), options.limit)
    if options.json:
        _print_json(rows, out)
    else:
        _print_table(rows, heads, out)


def _rows(batches: Iterable[Any], limit: int) -> Iterator[dict[str, Any]]:
    left = limit or None
    for batch in batches:
        for start in range(0, batch.num_rows, _SAMPLE_ROWS):
            part = batch.slice(start, _SAMPLE_ROWS)
            if left is not None:
                part = part.slice(0, left)
                left -= part.num_rows
            yield from part.to_pylist()
            if left == 0:
                return


def _properties(options: argparse.Namespace, out: TextIO) -> None:
    properties: Mapping[str, str] = _open(options).properties
    if options.json:
        out.write(json.dumps(dict(sorted(properties.items()))) + "\n")
        return
    for key in sorted(properties):
        out.write(f"{plain(key)}={plain(properties[key])}\n")


def _rollback(options: argparse.Namespace, out: TextIO) -> None:
    done = [
        {"instant": r.instant, "action": r.action, "rollback": r.rollback, "files": r.files}
        for r in _open(options).rollback_failed_writes()
    ]
    if options.json:
        _print_json(done, out)
        return
    for r in done:
        out.write(
            f"rolled back {plain(r['action'])} {r['instant']} by {r['rollback']}:"
            f" {r['files']} files removed\n"
        )
    if not done:
        out.write("nothing to roll back\n")


# -- output --------------------------------------------------------------------------------------


def _print_items(
    items: Sequence[Mapping[str, Any]], heads: Sequence[str], as_json: bool, out: TextIO
) -> None:
    if as_json:
        _print_json(items, out)
    else:
        _print_table(items, heads, out)


def _print_json(items: Iterable[Mapping[str, Any]], out: TextIO) -> None:
    """ASCII only, so that every control character is an escape."""
    for item in items:
        out.write(json.dumps(_plain_json(item), allow_nan=False) + "\n")


def _plain_json(value: Any) -> Any:
    """What JSON cannot hold becomes text: times in ISO 8601, decimals, bytes as hexadecimal."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # NaN and infinities have no JSON
    if isinstance(value, Mapping):
        return {str(k): _plain_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_json(v) for v in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (dict, list)):
        return plain(json.dumps(_plain_json(value)))
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    return plain(str(value))


def _print_table(items: Iterable[Mapping[str, Any]], heads: Sequence[str], out: TextIO) -> None:
    """Columns as wide as the first rows need; nothing is cut, the last column is not padded."""
    source = iter(items)
    sample = [[_cell(item[h]) for h in heads] for item in islice(source, _SAMPLE_ROWS)]
    names = [plain(h) for h in heads]
    widths = [min(_WIDTH_MAX, max(map(len, column))) for column in zip(names, *sample, strict=True)]
    _print_line(names, widths, out)
    for cells in sample:
        _print_line(cells, widths, out)
    for item in source:
        _print_line([_cell(item[h]) for h in heads], widths, out)


def _print_line(cells: Sequence[str], widths: Sequence[int], out: TextIO) -> None:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    out.write("  ".join(padded).rstrip() + "\n")


if __name__ == "__main__":
    sys.exit(main())
