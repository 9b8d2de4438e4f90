"""The command ``mainstem ui``; ``mainstem.cli.main`` adds it to its own."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, TextIO

from mainstem.cli.row_output import plain, print_json
from mainstem.errors import Invalid

PORT = 8120
TOKEN_VARIABLE = "MAINSTEM_UI_TOKEN"


def add_page_command(add: Callable[[str, Callable[..., Any], str], argparse.ArgumentParser]) -> None:
    """``add`` makes a command with PATH."""
    sub = add("ui", _page, "show tables in the browser: timeline, files, rows, indexes, findings; read-only")
    sub.add_argument("more", nargs="*", metavar="PATH", help="more tables, or folders that hold tables")
    sub.add_argument("--host", default="127.0.0.1", help="listen there; another than loopback needs a token")
    sub.add_argument("--port", type=_port, default=PORT, help=f"listen there (default {PORT}; 0: a free one)")
    sub.add_argument(
        "--token", default=os.environ.get(TOKEN_VARIABLE),
        help=f"what a browser must give to see data; better in the variable {TOKEN_VARIABLE}, as others see a"
        " command line",
    )  # fmt: skip
    sub.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="a name under which browsers reach this server; may be repeated",
    )  # fmt: skip


def _page(options: argparse.Namespace, out: TextIO) -> None:
    from mainstem.storage.store_options import split
    from mainstem.truetime.clock import SystemClock
    from mainstem.ui.admission import Admission
    from mainstem.ui.answers import Answers
    from mainstem.ui.found_tables import found_tables, places
    from mainstem.ui.page_server import PageServer

    of_store, given = split(dict(options.option))
    located = places([options.path, *options.more], of_store)
    tables, troubles = found_tables(located)
    if not tables:
        raise Invalid(f"nothing to show: {'; '.join(troubles)}")
    admission = Admission.of(options.host, options.token or None, tuple(options.allow_host))
    server = PageServer(options.host, options.port, admission, Answers(located, given, SystemClock()))
    ended = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in numbers}
    try:
        with server.in_background() as url:
            _tell(options, url, len(tables), troubles, out)
            ended.wait()
    finally:
        for number, was in before.items():
            signal.signal(number, was)


def _tell(options: argparse.Namespace, url: str, tables: int, troubles: list[str], out: TextIO) -> None:
    if options.json:
        print_json([{"url": url, "tables": tables, "troubles": troubles}], out)
    else:
        out.writelines(f"note: {plain(one)}\n" for one in troubles)
        out.write(f"{tables} table{'' if tables == 1 else 's'} at {url} (Ctrl-C ends it)\n")
        if options.token:
            out.write(f"give the token there, or open {url}#token=TOKEN\n")
    out.flush()


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{plain(text)!r} is no port; expected 0 to 65535")
    return int(text)
