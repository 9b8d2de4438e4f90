"""``mainstem catalog ...`` and ``mainstem sync``: tables by name, and a catalog kept true to its tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TextIO

from mainstem.api.catalog import Catalog, open_catalog, sync_by_options
from mainstem.catalogs.synchronising import Synced
from mainstem.cli.emptying import ask
from mainstem.cli.row_output import plain, print_json, print_table

Command = Callable[[argparse.Namespace, TextIO], None]
Options = Callable[[argparse.ArgumentParser], None]


def add_catalog_commands(actions: Any, common: Options) -> None:
    """``actions``: the subparsers of ``mainstem catalog``; ``common`` adds ``--json`` and ``-o``."""

    def add(name: str, command: Command, text: str, *arguments: str) -> argparse.ArgumentParser:
        sub: argparse.ArgumentParser = actions.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + "."
        )
        sub.add_argument(
            "catalog", metavar="CATALOG",
            help="thrift://host:port, glue:, glue://region, rest:http://host:port, or a folder",
        )
        for argument in arguments:
            sub.add_argument(argument.lower(), metavar=argument)
        common(sub)
        sub.set_defaults(command=command)
        return sub

    add("databases", _databases, "list the databases")
    tables = add("tables", _tables, "list the tables of a database")
    tables.add_argument("database", metavar="DATABASE", nargs="?", default="default")
    add("show", _show, "what the catalog says of a table", "NAME")
    add("register", _register, "give the table at PATH a name", "NAME", "PATH")
    add("refresh", _refresh, "bring an entry up to its table", "NAME")
    drop = add("drop", _drop, "remove a name; the table stays", "NAME")
    drop.add_argument("--purge", action="store_true", help="delete the table with all of its rows, too")
    drop.add_argument("--yes", action="store_true", help="do not ask")
    add("create-database", _create_database, "make a database", "NAME")
    add("drop-database", _drop_database, "drop an empty database", "NAME")


def add_sync_command(add: Callable[[str, Any, str], argparse.ArgumentParser]) -> None:
    """``add`` makes a subcommand with PATH and the common options."""
    add("sync", _sync, "register a table by Hudi's options (-o hoodie.datasource.hive_sync...=...)")


def _given(options: argparse.Namespace) -> dict[str, str]:
    return dict(options.option)


def _opened(options: argparse.Namespace) -> Catalog:
    return open_catalog(options.catalog, _given(options))


def _databases(options: argparse.Namespace, out: TextIO) -> None:
    _rows([{"database": name} for name in _opened(options).databases()], options, out)


def _tables(options: argparse.Namespace, out: TextIO) -> None:
    names = _opened(options).tables(options.database)
    _rows([{"database": options.database, "table": name} for name in names], options, out)


def _show(options: argparse.Namespace, out: TextIO) -> None:
    found = asdict(_opened(options).describe(options.name))
    if options.json:
        print_json([found], out)
        return
    for key, value in found.items():
        shown = ", ".join(f"{name} {kind}" for name, kind in value) if isinstance(value, tuple) else value
        out.write(f"{key}: {plain(str(shown))}\n")


def _register(options: argparse.Namespace, out: TextIO) -> None:
    found = open_catalog(options.catalog).register(options.name, options.path, _given(options))
    _tell(found, options, out)


def _refresh(options: argparse.Namespace, out: TextIO) -> None:
    _tell(open_catalog(options.catalog).refresh(options.name, _given(options)), options, out)


def _drop(options: argparse.Namespace, out: TextIO) -> None:
    catalog = _opened(options)
    if options.purge:
        where = catalog.describe(options.name).location
        ask(options, f"delete the table {options.name} in {where} with all of its rows")
    done = catalog.drop_table(options.name, purge=options.purge)
    if done is None:
        out.write(f"{plain(options.name)} is no name any more; the table stays\n")
        return
    left = f"; not its files, and left: {', '.join(done.left)}" if done.left else ""
    out.write(plain(f"{options.name} is deleted, {done.files} data files in {done.path}{left}") + "\n")


def _create_database(options: argparse.Namespace, out: TextIO) -> None:
    _opened(options).create_database(options.name)
    out.write(f"{plain(options.name)} is made\n")


def _drop_database(options: argparse.Namespace, out: TextIO) -> None:
    _opened(options).drop_database(options.name)
    out.write(f"{plain(options.name)} is dropped\n")


def _sync(options: argparse.Namespace, out: TextIO) -> None:
    _tell(sync_by_options(options.path, _given(options), catalog=options.catalog), options, out)


def _tell(found: Synced, options: argparse.Namespace, out: TextIO) -> None:
    if options.json:
        print_json([asdict(found)], out)
        return
    made = f", new: {', '.join(found.created)}" if found.created else ""
    text = (
        f"{', '.join(found.names)} up to {found.completion_time or 'no commit yet'}{made}; partitions:"
        f" {found.added} added, {found.moved} moved, {found.dropped} dropped"
    )
    if found.left_alone:
        text += f"; outside the table and left alone: {', '.join(found.left_alone[:5])}"
    out.write(plain(text) + "\n")


def _rows(rows: Sequence[Mapping[str, Any]], options: argparse.Namespace, out: TextIO) -> None:
    if options.json:
        print_json(rows, out)
    else:
        print_table(rows, tuple(rows[0]) if rows else ("database", "table"), out)
