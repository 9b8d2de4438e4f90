"""The commands of ``mainstem`` that run table services; ``mainstem.cli.main`` adds them to its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from mainstem.cli.progress_shown import shown_progress
from mainstem.cli.rounds import add_rounds_command
from mainstem.cli.row_output import plain, print_json
from mainstem.options.services import (
    ARCHIVE_MAX,
    COMPACTION_TRIGGER,
    LAYOUT_STRATEGY,
    LOG_BLOCKS_MIN,
    SORT_COLUMNS,
)

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from mainstem.services.compaction import Compaction
    from mainstem.services.log_compaction import LogCompaction


def add_service_commands(
    add: Callable[[str, Callable[..., None], str], argparse.ArgumentParser],
    open_table: Callable[[argparse.Namespace], Table],
) -> None:
    """``add`` makes a subcommand with PATH and the common options; ``open_table`` opens its table."""

    def service(name: str, command: Callable[..., None], text: str) -> argparse.ArgumentParser:
        sub = add(name, command, text)
        sub.set_defaults(open=open_table)
        return sub

    rollback = service("rollback", _rollback, "roll back the instants of dead writers, or one instant")
    rollback.add_argument("--instant", metavar="TIME", help="this one: pending, or the one completed last")
    merging = service("log-compact", _log_compact, "merge the blocks of log files into one log file each")
    merging.add_argument(
        "--if-due", action="store_true", help=f"only file groups with {LOG_BLOCKS_MIN}"
    )
    compact = service("compact", _compact, "merge log files into new base files")
    compact.add_argument(
        "--if-due", action="store_true", help=f"only if Hudi's trigger fires ({COMPACTION_TRIGGER})"
    )
    cluster = service("cluster", _cluster, "write rows in an order; without buckets, in larger files")
    cluster.add_argument("--sort-columns", metavar="NAMES", help=f"with commas; default: {SORT_COLUMNS}")
    cluster.add_argument(
        "--strategy", metavar="NAME", help=f"linear, z-order, hilbert; default: {LAYOUT_STRATEGY}"
    )
    cluster.add_argument(
        "--partition", metavar="PATH", action="append", help="only this one; may be repeated"
    )
    resize = service("resize", _resize, "give a table another number of buckets, while writers run")
    resize.add_argument("--buckets", metavar="N", type=int, required=True, help="per partition")
    upgrade = service("upgrade", _upgrade, "give a table a newer version, while writers run")
    downgrade = service("downgrade", _downgrade, "bring a table of version 10 back to 9")
    for sub, newest in ((upgrade, "10 (Hudi 1.3) or 9"), (downgrade, "9 (Hudi 1.1)")):
        sub.add_argument("--to", metavar="VERSION", type=int, required=True, help=newest)
    clean = service("clean", _clean, "remove files that no retained view, savepoint or plan needs")
    clean.add_argument(
        "--if-due", action="store_true", help="only if Hudi's trigger fires (hoodie.clean.trigger.*)"
    )
    archive = service("archive", _archive, "move old instants from the active timeline into the archive")
    archive.add_argument(
        "--if-due", action="store_true", help=f"only if there are more than {ARCHIVE_MAX}"
    )
    add_rounds_command(service)
    savepoint = service("savepoint", _savepoint, "keep the files of a completed instant, to restore it later")
    savepoint.add_argument("--instant", metavar="TIME", help="requested time; default: completed last")
    savepoint.add_argument("--user", default="", help="who makes it")
    savepoint.add_argument("--comment", default="", help="why")
    savepoint.add_argument("--list", action="store_true", help="show the savepoints instead")
    savepoint.add_argument("--delete", metavar="TIME", help="delete the savepoint of this instant instead")
    restore = service("restore", _restore, "remove everything that completed after a savepoint's instant")
    restore.add_argument(
        "savepoint", metavar="SAVEPOINT", nargs="?", help="left out: finish a restore whose process died"
    )


def tell(
    options: argparse.Namespace,
    out: TextIO,
    done: Sequence[Any],
    nothing: str,
    shown: Callable[[Any], dict[str, Any]] = asdict,
) -> None:
    """Prints what a service did: one line or JSON object (``shown``) per result, ``nothing`` if none."""
    if options.json:
        print_json([shown(result) for result in done], out)
        return
    for result in done:
        out.write(plain(result.describe()) + "\n")
    if not done:
        out.write(f"{nothing}\n")


def _archive(options: argparse.Namespace, out: TextIO) -> None:
    done = options.open(options).archive(if_due=options.if_due)
    tell(options, out, [] if done is None else [done], "nothing to archive")


def _rollback(options: argparse.Namespace, out: TextIO) -> None:
    table = options.open(options)
    one = options.instant is not None
    done = [table.rollback(options.instant)] if one else table.rollback_failed_writes()
    tell(options, out, done, "nothing to roll back")


def _log_compact(options: argparse.Namespace, out: TextIO) -> None:
    found = options.open(options).log_compact(if_due=options.if_due)
    done = [c for c in found if c.completion is not None or c.given_up is not None]

    def shown(c: LogCompaction) -> dict[str, Any]:
        rest = {**vars(c), "files": len(c.files)}
        return {"instant": rest.pop("requested"), **rest}

    tell(options, out, done, "nothing to merge", shown)


def _cluster(options: argparse.Namespace, out: TextIO) -> None:
    from mainstem.services.compaction import Compaction

    nothing = "everything is in order"
    table = options.open(options)
    found = table.cluster(
        options.sort_columns, strategy=options.strategy, partitions=options.partition,
        progress=shown_progress(table),
    )  # fmt: skip
    if any(isinstance(one, Compaction) for one in found):
        _tell_compactions(options, out, [c for c in found if isinstance(c, Compaction)], nothing)
        return

    def shown(c: Any) -> dict[str, Any]:
        rest = {**vars(c), "files": len(c.files)}
        return {"instant": rest.pop("requested"), **rest}

    tell(options, out, found, nothing, shown)


def _resize(options: argparse.Namespace, out: TextIO) -> None:
    table = options.open(options)
    tell(options, out, [table.resize(options.buckets, progress=shown_progress(table))], "")


def _upgrade(options: argparse.Namespace, out: TextIO) -> None:
    table = options.open(options)
    tell(options, out, [table.upgrade(options.to, progress=shown_progress(table))], "")


def _downgrade(options: argparse.Namespace, out: TextIO) -> None:
    table = options.open(options)
    tell(options, out, [table.downgrade(options.to, progress=shown_progress(table))], "")


def _compact(options: argparse.Namespace, out: TextIO) -> None:
    table = options.open(options)
    found = table.compact(if_due=options.if_due, progress=shown_progress(table))
    _tell_compactions(options, out, found, "nothing to compact")


def _tell_compactions(
    options: argparse.Namespace, out: TextIO, found: Sequence[Compaction], nothing: str
) -> None:

    def shown(c: Compaction) -> dict[str, Any]:
        return {
            "instant": c.requested,
            "completion": c.completion,
            "base_files": len(c.files),
            "rows": c.rows,
            "log_files": c.log_files,
        }

    tell(options, out, [c for c in found if c.completion is not None], nothing, shown)


def _clean(options: argparse.Namespace, out: TextIO) -> None:
    table = options.open(options)
    done = table.clean(if_due=options.if_due, progress=shown_progress(table))
    tell(options, out, done, "nothing to clean")


def _savepoint(options: argparse.Namespace, out: TextIO) -> None:
    table = options.open(options)
    if options.delete is not None:
        table.delete_savepoint(options.delete)
        out.write(f"savepoint {plain(options.delete)} deleted\n")
        return
    if options.list:
        found = table.savepoints()
    else:
        found = [table.savepoint(options.instant, user=options.user, comment=options.comment)]
    tell(options, out, found, "no savepoints")


def _restore(options: argparse.Namespace, out: TextIO) -> None:
    tell(options, out, [options.open(options).restore(options.savepoint)], "")
