"""``mainstem.ingest``: one call that brings a Kafka topic, a folder's files, or a table of PostgreSQL into a
table.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.ingestion.avro_messages import AvroDecoder, DebeziumAvro
from mainstem.ingestion.dead_letters import DeadLetters
from mainstem.ingestion.debezium import DELETED, OPERATION, DebeziumJson, ordering_of
from mainstem.ingestion.folder_files import FolderIngester
from mainstem.ingestion.ingest_progress import IngestProgress
from mainstem.ingestion.ingester import Ingester, Pace
from mainstem.ingestion.json_rows import JsonDecoder
from mainstem.ingestion.kafka_topic import EARLIEST, FAIL, LATEST, KafkaTopic
from mainstem.ingestion.postgres_table import APPLY, SKIP, PostgresIngester
from mainstem.ingestion.protobuf_messages import ProtobufDecoder
from mainstem.ingestion.records import Decoder
from mainstem.ingestion.schema_registry import Registry
from mainstem.ingestion.target_table import NewTable, TargetTable, parse_schema
from mainstem.merge.rules import DELETED_COLUMN
from mainstem.options.catalogs import HIVE_SYNC, IGNORE_EXCEPTIONS, META_SYNC
from mainstem.options.tables import DELETE_FIELD, DELETE_MARKER
from mainstem.storage.backends import Place
from mainstem.telemetry import steps
from mainstem.writers.transaction_schema import fills_missing

JSON, AVRO, PROTOBUF = "json", "avro", "protobuf"
DEBEZIUM_JSON, DEBEZIUM_AVRO = "debezium-json", "debezium-avro"
FORMATS = (JSON, AVRO, PROTOBUF, DEBEZIUM_JSON, DEBEZIUM_AVRO)
STOP, DEAD_LETTER = "stop", "dead-letter"


def ingest(
    path: Place,
    *,
    kafka: str | None = None,
    topic: str | None = None,
    files: str | None = None,
    postgres: str | None = None,
    table: str | None = None,
    format: str | None = None,
    registry: str | None = None,
    group: str | None = None,
    source: str | None = None,
    start: str = EARLIEST,
    every_s: float = 1.0,
    rows: int = 1_000_000,
    bytes: int = 256 << 20,
    on_error: str = STOP,
    dead_letters: Place | None = None,
    on_lost: str = FAIL,
    on_truncate: str = FAIL,
    append_offsets: bool = False,
    record_key: Sequence[str] | str = (),
    ordering: Sequence[str] | str = (),
    partition_by: Sequence[str] | str = (),
    buckets: int | None = None,
    name: str | None = None,
    schema: pa.Schema | str | None = None,
    properties: Mapping[str, object] | None = None,
    kafka_options: Mapping[str, str] | None = None,
    once: bool = False,
    stopping: Callable[[], bool] = lambda: False,
    on_progress: Callable[[IngestProgress], None] = lambda progress: None,
) -> int:
    """Bring a stream into the table at ``path``, each record exactly once; returns the number of rows.

    ``kafka``: bootstrap servers, and ``topic``; or ``files``: a folder and a pattern; or ``postgres``: a
    connection string, and ``table``, whose snapshot and changes come by logical decoding. Any number of
    processes may do this at once, for one topic in one ``group``. How far the stream is stands in the table's
    commits, so a process that dies is continued by any other. It runs until ``stopping()``; with ``once``
    until all that is there now is in the table.

    ``every_s``: seconds from reading a record to the commit with it; ``rows`` and ``bytes`` of values are
    committed at once at most, which bounds memory. ``source``: the stream's name in the table (the topic's,
    otherwise). ``start``: where partitions begin that the table does not know, ``earliest`` or ``latest``.
    ``on_error``: a record that does not become a row ends it (``stop``), or is kept in the table
    ``dead_letters`` (``dead-letter``; PATH_dead_letters, otherwise). ``on_lost``: records that should come
    next are gone, or the topic was created again: refuse (``fail``), or go on with what is there
    (``earliest``). ``on_truncate``: PostgreSQL's table was truncated: refuse (``fail``), empty this one too
    (``apply``), or keep its rows (``skip``). ``append_offsets`` adds the columns of Hudi's streamer that tell
    where a row came from. A missing table is made, with ``record_key`` and so on as for ``create_table``, and
    the columns of ``schema`` (``id bigint, price decimal(10,2)``), or else those of the first records.

    Raises ``Invalid`` and ``Unsupported`` for what only a person can decide; trouble with storage, lock and
    brokers is met by another try, with ``once`` ten times in a row. A catalog that is away ends nothing,
    unless ``hoodie.datasource.hive_sync.ignore_exceptions=false`` asks for it: the next commit synchronises.
    """
    origins = sum(one is not None for one in (kafka, files, postgres))
    if origins != 1 or (kafka is None) != (topic is None) or (postgres is None) != (table is None):
        raise Invalid(
            "where does the stream come from? Give kafka and topic (--kafka, --topic), or files (--files), or"
            " postgres and table (--postgres, --table)"
        )
    for what, given, allowed in (
        ("start", start, (EARLIEST, LATEST)),
        ("on_error", on_error, (STOP, DEAD_LETTER)),
        ("on_lost", on_lost, (FAIL, EARLIEST)),
        ("on_truncate", on_truncate, (APPLY, SKIP, FAIL)),
    ):
        if given not in allowed:
            raise Invalid(f"{what}={given!r}: expected {' or '.join(allowed)}")
    form = format or JSON
    if form not in FORMATS:
        raise Invalid(f"format={form!r}: expected one of {', '.join(FORMATS)}")
    if (registry is not None) != (form in (AVRO, PROTOBUF, DEBEZIUM_AVRO)):
        raise Invalid(f"format={form!r}, registry={registry!r}: JSON takes none, others need one")
    columns = parse_schema(schema) if isinstance(schema, str) else schema
    new = NewTable(_names(record_key), _names(ordering), _names(partition_by), buckets, name, columns)
    if form in (DEBEZIUM_JSON, DEBEZIUM_AVRO) or postgres is not None:
        # As Hudi keeps them in a table, of version 9 (HoodieTableConfig: merge properties).
        marks = {DELETE_FIELD.names[-1]: OPERATION, DELETE_MARKER.names[-1]: DELETED}
        new = replace(new, ordering_of=None if new.ordering else ordering_of, properties=marks)
    target = TargetTable(path, _told_and_gone_on(properties or {}), new)
    stream = source or topic or files or table or ""
    dead = None
    if on_error == DEAD_LETTER:
        dead = DeadLetters(dead_letters or f"{target.base}_dead_letters", stream, properties or {})
    pace = Pace(every_s, rows, bytes, tries=10 if once else None)

    def told(progress: IngestProgress) -> None:
        steps.counted("ingest.rows", progress.rows, "{row}", target.base, source=stream)
        steps.counted("ingest.dead_letters", progress.dead_letters, "{record}", target.base, source=stream)
        steps.stands_at("ingest.lag", progress.behind, "{record}", target.base, source=stream)
        on_progress(progress)

    if postgres is None and on_truncate != FAIL:
        raise Invalid("on_truncate (--on-truncate): only tables of PostgreSQL are truncated; leave it out")
    if files is not None:
        if form != JSON or append_offsets:
            raise Invalid("files: their names tell their formats, and they have no offsets; leave these out")
        folder = FolderIngester(target, files, source=stream, dead=dead, pace=pace, on_progress=told)
        return folder.run(stopping, once=once)
    if postgres is not None:
        if form != JSON or append_offsets or on_lost != FAIL or start != EARLIEST:
            raise Invalid(
                "postgres: its changes have their own form and begin with a snapshot; leave out format,"
                " append_offsets, on_lost and start"
            )
        assert table is not None
        fill = fills_missing({key: str(value) for key, value in (properties or {}).items()})
        changes = PostgresIngester(
            target, postgres, table, source=stream, pace=pace, fill=fill, dead=dead,
            on_truncate=on_truncate, on_progress=told,
        )  # fmt: skip
        return changes.run(stopping, once=once)
    assert kafka is not None and topic is not None
    made = functools.partial(
        KafkaTopic, kafka, topic, group or _group(target.base, stream), start=start, on_lost=on_lost,
        timestamps=append_offsets or dead is not None, config=kafka_options,
    )  # fmt: skip
    ingester = Ingester(
        target, _decoder(form, target, registry, properties or {}), made, source=stream, dead=dead, pace=pace,
        append_offsets=append_offsets, anew=on_lost == EARLIEST, on_progress=told,
    )  # fmt: skip
    return ingester.run(stopping, once=once)


def _told_and_gone_on(properties: Mapping[str, object]) -> Mapping[str, object]:
    """A catalog that is away is a warning: the commit stands, and the next one synchronises."""
    names = {*META_SYNC.names, *HIVE_SYNC.names}
    return {IGNORE_EXCEPTIONS.name: "true", **properties} if names & set(properties) else properties


def _decoder(
    form: str, target: TargetTable, registry: str | None, properties: Mapping[str, object]
) -> Decoder:
    def keys() -> Sequence[str]:
        return target.key_columns

    if registry is None:
        return JsonDecoder(keys, DELETED_COLUMN) if form == JSON else DebeziumJson()
    schemas, fill = Registry(registry), fills_missing({key: str(value) for key, value in properties.items()})
    if form == AVRO:
        return AvroDecoder(schemas, keys, DELETED_COLUMN, fill=fill)
    if form == PROTOBUF:
        return ProtobufDecoder(schemas, keys, DELETED_COLUMN, fill=fill)
    return DebeziumAvro(schemas, fill=fill)


def _group(base: str, source: str) -> str:
    """All processes that bring this stream into this table are one group, if nobody says otherwise."""
    return f"mainstem-{source}-{hashlib.sha256(base.encode()).hexdigest()[:12]}"


def _names(value: Sequence[str] | str) -> list[str]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value)
