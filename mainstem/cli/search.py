"""The command ``mainstem search``; ``mainstem.cli.main`` adds it to its own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

from mainstem.cli.row_output import plain, write_rows
from mainstem.errors import Invalid

if TYPE_CHECKING:
    from mainstem.api.table import Table

_KEY = "_hoodie_record_key"


def add_search_command(
    add: Callable[[str, Callable[..., None], str], argparse.ArgumentParser],
    add_rows: Callable[[argparse.ArgumentParser], None],
    open_table: Callable[[argparse.Namespace], Table],
) -> None:
    """``add`` makes a command with PATH, ``add_rows`` adds the row options, ``open_table`` opens a table."""
    sub = add("search", _search, "print the rows whose vectors are nearest to one, nearest first")
    sub.add_argument("column", metavar="COLUMN", help="the column of vectors")
    query = sub.add_mutually_exclusive_group(required=True)
    query.add_argument("--vector", metavar="X,Y,...", help="the vector to be near to: its numbers")
    query.add_argument("--like", metavar="KEY", help="the vector of the row with this record key")
    sub.add_argument("-k", type=int, default=10, metavar="N", help="so many rows (default 10)")
    sub.add_argument("--metric", help="cosine, l2 or dot_product; default: that of the index, else cosine")
    sub.add_argument("--ef", type=int, metavar="N", help="how widely the index is searched")
    sub.add_argument("--exact", action="store_true", help="compare all vectors, without the index")
    sub.add_argument("--as-of", metavar="TIME", help="rows as of this instant (yyyyMMddHHmmssSSS)")
    sub.add_argument("--explain", action="store_true", help="tell how it is searched, instead of rows")
    add_rows(sub)
    sub.set_defaults(open=open_table)


def _search(options: argparse.Namespace, out: TextIO) -> None:
    table: Table = options.open(options)
    asked: dict[str, Any] = {
        "as_of": options.as_of, "metric": options.metric, "ef": options.ef, "exact": options.exact,
    }  # fmt: skip
    for text in options.where:
        from mainstem.filters.conditions import conditions

        found = conditions(text, table.scan().schema, "--where")
        asked["filter"] = asked["filter"] & found if "filter" in asked else found
    vector = _like(table, options) if options.vector is None else _numbers(options.vector)
    if options.explain:
        said = table.explain_search(options.column, vector, options.k, **asked)
        out.write((json.dumps(said.to_dict()) if options.json else plain_lines(str(said))) + "\n")
        return
    rows = table.search(options.column, vector, options.k, columns=options.columns, **asked)
    if options.count:
        out.write(f"{json.dumps({'rows': len(rows)})}\n" if options.json else f"{len(rows)}\n")
        return
    form = options.format or ("json" if options.json else "table")
    write_rows(rows.to_batches(), rows.schema, form, options.limit or 0, out, options.output)


def plain_lines(text: str) -> str:
    """The lines without control characters, such as those that move a terminal's cursor."""
    return "\n".join(plain(line) for line in text.split("\n"))


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.strip(" []()").split(",")]
    except ValueError as error:
        raise Invalid(f"--vector {text[:60]!r}: {error}; expected numbers such as 0.1,0.5,-2") from None


def _like(table: Table, options: argparse.Namespace) -> list[float]:
    """The vector of a row."""
    import pyarrow.compute as pc

    wanted = pc.field(_KEY) == options.like
    found = table.scan(columns=[options.column], filter=wanted, as_of=options.as_of).to_arrow()
    vectors = [vector for vector in found.column(options.column).to_pylist() if vector is not None]
    if not vectors:
        why = "its vector is null" if len(found) else "there is no such record key"
        raise Invalid(f"--like {options.like!r}: {why}", table=table.path)
    return vectors[0]
