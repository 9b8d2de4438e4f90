"""``mainstem ingest``: Kafka topics, files, and tables of PostgreSQL into tables, without an engine.

Any number of these processes may run for one topic, and any of them may be killed: what is in the table says
where to go on. SIGTERM and SIGINT end a process after it has committed what it has read.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, TextIO

from mainstem.cli.progress_shown import bar_of_terminal
from mainstem.cli.rounds import seconds
from mainstem.cli.row_output import plain, print_json

if TYPE_CHECKING:
    from mainstem.ingestion.ingest_progress import IngestProgress


def add_ingest_command(add: Callable[[str, Callable[..., None], str], argparse.ArgumentParser]) -> None:
    """``add`` makes a subcommand with PATH and the common options."""
    sub = add("ingest", _ingest, "bring Kafka topics, files or PostgreSQL tables into a table, exactly once")
    sub.add_argument("--kafka", metavar="SERVERS", help="bootstrap servers, host:port,...")
    sub.add_argument("--topic", help="the topic to read")
    sub.add_argument(
        "--files", metavar="PATTERN", help="instead: files, 'DIR/*.json' (.csv, .parquet), each once"
    )
    sub.add_argument(
        "--postgres", metavar="DSN", help="instead: a PostgreSQL server, 'host=... dbname=...', or its URL"
    )
    sub.add_argument("--table", metavar="SCHEMA.NAME", help="the table there: its rows, then its changes")
    sub.add_argument("--group", help="the consumer group (default: one for this topic and table)")
    sub.add_argument("--source", metavar="NAME", help="the stream's name in the table (default: the topic)")
    sub.add_argument(
        "--format", help="of the records: json (default), avro, protobuf, debezium-json or debezium-avro"
    )
    sub.add_argument("--registry", metavar="URL", help="of schemas; or a folder with ID.avsc, ID.desc")
    sub.add_argument(
        "--start", choices=("earliest", "latest"), default="earliest",
        help="where partitions begin that the table does not know",
    )  # fmt: skip
    sub.add_argument(
        "--every", type=seconds, default=1.0, metavar="TIME",
        help="from reading a record to its commit, for instance 500ms, 5s (default 1s)",
    )  # fmt: skip
    for option, most in (("--rows", 1_000_000), ("--bytes", 256 << 20)):
        sub.add_argument(option, type=int, default=most, metavar="N", help="commit at most so many at once")
    sub.add_argument(
        "--on-error", choices=("stop", "dead-letter"), default="stop",
        help="what to do about a record that does not become a row",
    )  # fmt: skip
    sub.add_argument(
        "--dead-letters", metavar="PATH", help="table of such records (default PATH_dead_letters)"
    )
    sub.add_argument(
        "--on-lost", choices=("fail", "earliest"), default="fail",
        help="records that should come next are gone: refuse, or go on with what is there",
    )  # fmt: skip
    sub.add_argument(
        "--on-truncate", choices=("fail", "apply", "skip"), default="fail",
        help="PostgreSQL's table was truncated: refuse, empty this one too, or keep its rows",
    )  # fmt: skip
    sub.add_argument(
        "--append-offsets", action="store_true", help="add columns of offset, partition, time and key"
    )
    for option in ("--record-key", "--ordering", "--partition-by"):
        sub.add_argument(option, default="", metavar="A,B", help="of the table, if there is none yet")
    sub.add_argument("--buckets", type=int, metavar="N", help="of the table, if there is none yet")
    sub.add_argument("--name", help="of the table, if there is none yet")
    sub.add_argument(
        "--schema", metavar="COLUMNS", help="of the table, if there is none yet: id bigint, at timestamp"
    )
    sub.add_argument(
        "--kafka-option", action="append", default=[], metavar="KEY=VALUE",
        help="of the Kafka client, for instance security.protocol=SSL; may be repeated",
    )  # fmt: skip
    sub.add_argument("--once", action="store_true", help="what is there now, then end")


def _ingest(options: argparse.Namespace, out: TextIO) -> None:
    from mainstem.ingestion.run import ingest

    bar = None if options.json or not out.isatty() else bar_of_terminal()

    def tell(progress: IngestProgress) -> None:
        if options.json:
            print_json([{**asdict(progress), "behind": progress.behind}], out)
        elif bar is not None and not progress.dead_letters:
            bar(f"{progress.source}, rows", progress.total_rows, progress.total_rows + progress.behind)
        else:
            out.write(plain(progress.describe()) + "\n")
        out.flush()

    with _ended_by_signals() as stopped:
        ingest(
            options.path, kafka=options.kafka, topic=options.topic, files=options.files,
            postgres=options.postgres, table=options.table, format=options.format, registry=options.registry,
            group=options.group, source=options.source, start=options.start, every_s=options.every,
            rows=options.rows, bytes=options.bytes, on_error=options.on_error,
            dead_letters=options.dead_letters, on_lost=options.on_lost, on_truncate=options.on_truncate,
            append_offsets=options.append_offsets, record_key=options.record_key,
            ordering=options.ordering, partition_by=options.partition_by, buckets=options.buckets,
            name=options.name, schema=options.schema, properties=dict(options.option),
            kafka_options=dict(text.partition("=")[::2] for text in options.kafka_option),
            once=options.once, stopping=stopped.is_set, on_progress=tell,
        )  # fmt: skip


@contextmanager
def _ended_by_signals() -> Iterator[threading.Event]:
    stopped = threading.Event()

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stopped.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, was in before.items():
            signal.signal(number, was)
