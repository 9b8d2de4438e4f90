"""The commands ``mainstem metadata ...``; ``mainstem.cli.main`` adds them to its own."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from mainstem.cli.row_output import plain, print_json

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from mainstem.indexing.differences import MetadataReport, PartitionReport

DIFFERENT = 1


def add_metadata_commands(
    add: Callable[[str, Callable[..., Any], str], argparse.ArgumentParser],
    open_table: Callable[[argparse.Namespace], Table],
) -> None:
    """``add`` makes a subcommand with PATH and the common options; ``open_table`` opens its table."""
    text = "compare the metadata table with the data; exit code 1 if they differ"
    validate = add("validate", _validate, text)
    validate.set_defaults(open=open_table)
    validate.add_argument("--format", choices=("text", "json"), help="json: as --json")
    validate.add_argument(
        "--limit", type=int, default=100, metavar="N",
        help="list at most N differences per partition (default 100); all are counted",
    )  # fmt: skip


def _validate(options: argparse.Namespace, out: TextIO) -> int:
    report = options.open(options).validate_metadata(kept=options.limit)
    if options.json or options.format == "json":
        print_json(_items(report), out)
    elif report is None:
        out.write("no metadata table\n")
    else:
        _print(report, out)
    return 0 if report is None or report.ok else DIFFERENT


def _items(report: MetadataReport | None) -> Iterator[dict[str, Any]]:
    """One object per partition, then one per difference."""
    if report is None:
        return
    for partition in report.partitions:
        yield {
            "partition": partition.partition,
            "instant": report.instant,
            "rows": partition.rows,
            "counts": {kind: count for kind, count in sorted(partition.counts.items()) if count},
            "refused": partition.refused,
        }
    for difference in report.differences:
        yield {"difference": difference.kind, **{k: v for k, v in asdict(difference).items() if k != "kind"}}


def _print(report: MetadataReport, out: TextIO) -> None:
    for difference in report.differences:
        where = difference.partition or "table"
        out.write(plain(f"{where}: {difference.kind}: {difference.key}: {difference.detail}") + "\n")
    for partition in report.partitions:
        out.write(plain(_line(partition)) + "\n")
    total = sum(p.wrong for p in report.partitions)
    left = total - len(report.differences)
    more = f", {left} of them not listed" if left else ""
    out.write(f"as of {report.instant or 'the beginning'}: {total or 'no'} differences{more}\n")


def _line(partition: PartitionReport) -> str:
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(partition.counts.items()) if count)
    if partition.refused is not None:
        return f"{partition.partition}: not compared: {partition.refused}"
    if not partition.partition:
        return f"lists in hoodie.properties: {counts or 'as the folders'}"
    return f"{partition.partition}: {partition.rows} rows, {counts or 'all as in the data'}"
