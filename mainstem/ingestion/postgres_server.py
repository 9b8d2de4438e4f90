"""PostgreSQL as a source: what it says of a table, its slot and snapshot, and the stream of its log.

The stream is that of a walsender: COPY BOTH through libpq, whose messages are
  from the server  w  start, end (int64), time, then a message of the plugin
                   k  end of what was sent (int64), time, whether it wants an answer
  to the server    r  written, flushed, applied (int64), time, whether an answer is wanted
"""

from __future__ import annotations

import re
import secrets
import select
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.ingestion.pgoutput import BEGIN, COMMIT, EPOCH_US, Relation, SourceColumn
from mainstem.ingestion.postgres_types import arrow_type

#: how values are written as text, whatever the role's own settings say
_SETTINGS = (
    "-c DateStyle=ISO -c TimeZone=UTC -c bytea_output=hex -c extra_float_digits=1 -c IntervalStyle=postgres"
    " -c statement_timeout=0 -c idle_in_transaction_session_timeout=0"
)
_OLDEST = 130_000
_ANSWER_S = 5.0
#: a slot's name is its publication's, and so many characters
SLOT_END = 9
_CONNECT_S = 10


def client() -> Any:
    """The module ``psycopg``. Raises ``Unsupported`` if it is not installed."""
    try:
        import psycopg
    except ImportError as error:
        raise Unsupported("PostgreSQL needs psycopg: pip install 'mainstem[postgres]'") from error
    return psycopg


def lsn_text(lsn: int) -> str:
    """As PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """``16/B374D848``. Raises ``Invalid``."""
    if re.fullmatch("[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}", text) is None:
        raise Invalid(f"position {text!r}: expected two hexadecimal numbers with a slash between")
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


def quoted(name: str) -> str:
    """An identifier for SQL."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def told() -> Iterator[None]:
    """Errors of the client as ours: trouble with the connection or server is ``Unavailable``, what the server
    refuses is ``Invalid``."""
    psycopg = client()
    try:
        yield
    except (psycopg.errors.ObjectInUse, psycopg.errors.SerializationFailure) as error:
        raise Unavailable(f"PostgreSQL: {_line(error)}; another process reads there") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        if (error.sqlstate or "") in ("55000", "42501", "53400"):  # needs another state, right, or setting
            raise Invalid(f"PostgreSQL refuses: {_line(error)}") from error
        raise Unavailable(
            f"PostgreSQL does not answer: {_line(error)}; check its address, try again"
        ) from error
    except psycopg.Error as error:
        raise Invalid(f"PostgreSQL refuses: {_line(error)}") from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]


def connect(dsn: str, *, log: bool = False, name: str = "") -> Any:
    """A connection that commits each statement; ``log``: one that speaks the protocol of replication;
    ``name``: as which the server lists it."""
    psycopg = client()
    with told():
        try:
            given = psycopg.conninfo.conninfo_to_dict(dsn)
        except psycopg.ProgrammingError as error:
            raise Invalid(f"the connection string does not parse: {_line(error)}") from error
        more: dict[str, Any] = {
            "options": f"{given.get('options') or ''} {_SETTINGS}".strip(),
            "client_encoding": "UTF8",
            "connect_timeout": given.get("connect_timeout") or _CONNECT_S,
            "fallback_application_name": "mainstem ingest",
        }
        if name:
            more["application_name"] = name
        if log:
            more["replication"] = "database"
        return psycopg.connect(dsn, autocommit=True, **more)


@dataclass(frozen=True)
class SourceTable:
    """A table as the catalog has it now; ``system``: the server cluster's identifier."""

    relation: Relation
    primary_key: tuple[str, ...]
    system: str
    database: str
    #: columns whose values may be stored apart (TOAST), and then are not sent unless they change
    long: tuple[str, ...] = ()
    #: its rows lie in partitions
    is_parent: bool = False

    @property
    def only(self) -> str:
        """For statements: tables that inherit from this one are left out, its partitions are not."""
        return "" if self.is_parent else "ONLY "

    @property
    def sql_name(self) -> str:
        """For statements."""
        return f"{quoted(self.relation.schema)}.{quoted(self.relation.name)}"


@dataclass(frozen=True)
class Slot:
    """A replication slot; ``confirmed``: changes that were committed before it are gone; ``lost``: all
    are."""

    name: str
    plugin: str
    database: str
    confirmed: int
    lost: bool
    #: its snapshot is still open
    made_now: bool


class PostgresServer:
    """Questions to one server, by an ordinary connection."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection = connect(dsn)
        self._types: dict[int, tuple[str, int, int, int]] = {}

    def close(self) -> None:
        """Leave."""
        with suppress(Exception):
            self._connection.close()

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows that a statement returns."""
        with told():
            found = self._connection.execute(sql, values or None)
            return list(found.fetchall()) if found.description else []

    def table(self, name: str) -> SourceTable:
        """The table ``schema.name``. Raises ``Invalid`` if there is none, or its log cannot be read."""
        schema, _, table = name.rpartition(".")
        schema = schema or "public"
        version = self._connection.info.server_version
        if version < _OLDEST:
            raise Unsupported(f"PostgreSQL {version // 10_000}: expected 13 or newer")
        ((level,),) = self.ask("SHOW wal_level")
        if level != "logical":
            raise Invalid(
                f"wal_level={level}: run ALTER SYSTEM SET wal_level = logical, and restart PostgreSQL"
            )
        found = self.ask(
            "SELECT c.oid::int8, c.relreplident::text, c.relkind::text, c.relpersistence::text FROM pg_class"
            " c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
            schema, table,
        )  # fmt: skip
        if not found or found[0][2] not in ("r", "p") or found[0][3] != "p":
            raise Invalid(f"there is no table {schema}.{table} whose changes are logged; name one (--table)")
        oid, identity, kind = found[0][:3]
        keys = self.ask(
            "SELECT a.attname, i.indisprimary, i.indisreplident, i.indimmediate FROM pg_index i CROSS JOIN"
            " LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place) JOIN pg_attribute a ON"
            " a.attrelid = i.indrelid AND a.attnum = k.number WHERE i.indrelid = %s AND (i.indisprimary OR"
            " i.indisreplident) AND k.place <= i.indnkeyatts"
            " ORDER BY i.indexrelid, k.place", oid,
        )  # fmt: skip
        primary = tuple(name for name, is_primary, _, _ in keys if is_primary)
        if any(is_primary and not immediate for _, is_primary, _, immediate in keys):
            raise Unsupported(
                f"{schema}.{table}: its primary key is DEFERRABLE, so that two rows may exchange their keys,"
                " which changes one by one cannot tell; make it NOT DEFERRABLE"
            )
        inside = {n for n, p, r, _ in keys if (p if identity == "d" else r and identity == "i")}
        columns = self.ask(
            "SELECT attname, atttypid::int8, atttypmod, attstorage::text FROM pg_attribute WHERE attrelid ="
            " %s AND attnum > 0"
            " AND NOT attisdropped AND attgenerated = '' ORDER BY attnum", oid,
        )  # fmt: skip
        made = tuple(SourceColumn(n, type_, modifier, n in inside) for n, type_, modifier, _ in columns)
        long = tuple(name for name, _, _, storage in columns if storage in ("x", "e"))
        ((system, database),) = self.ask(
            "SELECT system_identifier::text, current_database()::text FROM pg_control_system()"
        )
        relation = Relation(oid, schema, table, identity, made)
        return SourceTable(relation, primary, system, database, long, kind == "p")

    def type_of(self, oid: int, modifier: int) -> pa.DataType:
        """The Arrow type of a column; domains are what they are made of."""
        kind, base, base_modifier, element = self._type(oid)
        if kind == "d":
            return self.type_of(base, modifier if modifier >= 0 else base_modifier)
        if element:
            inner = self.type_of(element, modifier)
            return pa.string() if pa.types.is_list(inner) else pa.list_(inner)
        return arrow_type(oid, modifier, {})

    def _type(self, oid: int) -> tuple[str, int, int, int]:
        if oid not in self._types:
            found = self.ask(
                "SELECT typtype::text, typbasetype::int8, typtypmod, CASE WHEN typcategory = 'A' THEN"
                " typelem::int8 ELSE 0 END FROM pg_type WHERE oid = %s",
                oid,
            )
            self._types[oid] = found[0] if found else ("", 0, -1, 0)
        return self._types[oid]

    def publish(self, publication: str, table: SourceTable) -> None:
        """Make the publication, if there is none. Raises ``Invalid`` if one of this name is another."""
        if not self.ask("SELECT 1 FROM pg_publication WHERE pubname = %s", publication):
            statement = (
                f"CREATE PUBLICATION {quoted(publication)} FOR TABLE {table.only}{table.sql_name} WITH"
                " (publish_via_partition_root = true)"
            )
            try:
                self.ask(statement)
            except Invalid as error:
                if "already exists" not in error.message:
                    raise Invalid(f"{error.message}. Let the table's owner run: {statement}") from error
        self.check_published(publication, table)

    def check_published(self, publication: str, table: SourceTable) -> None:
        """Raises ``Invalid`` unless all changes of this very table are published."""
        found = self.ask(
            "SELECT p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate AND p.pubviaroot FROM"
            " pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid WHERE p.pubname = %s AND"
            " r.prrelid = %s",
            publication, table.relation.oid,
        )  # fmt: skip
        if not found or not found[0][0]:
            raise Invalid(
                f"publication {publication} does not tell all changes of {table.sql_name}: the table was"
                " dropped and created again, or the publication changed, and what happened meanwhile is not"
                " in the log. Nothing was read. Drop the publication, and ingest into a new table"
            )

    def slots(self, prefix: str) -> list[Slot]:
        """Slots whose names begin so."""
        found = self.ask(
            "SELECT slot_name::text, plugin::text, database::text, confirmed_flush_lsn::text,"
            " coalesce(wal_status = 'lost', false), EXISTS (SELECT 1 FROM pg_stat_activity WHERE"
            " application_name = slot_name) FROM pg_replication_slots WHERE slot_type = 'logical' AND"
            " starts_with(slot_name, %s) ORDER BY slot_name",
            prefix,
        )
        return [Slot(n, p, d, parse_lsn(at) if at else 0, lost, now) for n, p, d, at, lost, now in found]

    def drop_slot(self, name: str) -> None:
        """Let the server forget a slot; one that is read is left alone."""
        with suppress(Invalid, Unavailable):
            self.ask("SELECT pg_drop_replication_slot(%s)", name)

    def log_end(self) -> int:
        """Where the server's log ends."""
        ((text,),) = self.ask("SELECT pg_current_wal_lsn()::text")
        return parse_lsn(text)


class Snapshot:
    """A new slot, and the table as it was where the slot begins (``lsn``); a context manager.

    The table is locked against changes of its columns meanwhile, as pg_dump does: a snapshot sees nothing of
    a table that was rewritten after it was taken.
    """

    def __init__(self, dsn: str, prefix: str, table: str) -> None:
        self._dsn, self._table = dsn, table
        self.slot = f"{prefix}_{secrets.token_hex((SLOT_END - 1) // 2)}"
        self.lsn = 0
        self._holder: Any = None
        self._maker: Any = None
        self._reader: Any = None

    def __enter__(self) -> Snapshot:
        self._holder = connect(self._dsn)
        try:
            with told():
                self._holder.execute("BEGIN")
                self._holder.execute(f"LOCK TABLE {self._table} IN ACCESS SHARE MODE")
            self._maker = connect(self._dsn, log=True, name=self.slot)
            with told():
                # Its snapshot lives until this connection says anything more.
                made = self._maker.execute(
                    f"CREATE_REPLICATION_SLOT {quoted(self.slot)} LOGICAL pgoutput EXPORT_SNAPSHOT"
                ).fetchone()
            _, at, name, _ = made
            self.lsn = parse_lsn(at)
            self._reader = connect(self._dsn)
            with told():
                self._reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                self._reader.execute(f"SET TRANSACTION SNAPSHOT '{name}'")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for connection in (self._reader, self._maker, self._holder):
            if connection is not None:
                connection.close()

    def blocks(self, table: SourceTable) -> Iterator[bytes]:
        """The table's rows as CSV, in parts; may be called again."""
        columns = ", ".join(quoted(name) for name in table.relation.names)
        with told(), self._reader.cursor() as cursor:
            query = f"COPY (SELECT {columns} FROM {table.only}{table.sql_name}) TO STDOUT (FORMAT csv)"
            with cursor.copy(query) as copy:
                for block in copy:
                    yield bytes(block)


class WalStream:
    """The log's changes of a publication, from ``position`` on: transactions whole, in the order of their
    commits."""

    def __init__(self, dsn: str, slot: str, publication: str, position: int) -> None:
        self._psycopg = client()
        self._connection = connect(dsn, log=True)
        self._copy = self._connection.pgconn
        name = quoted(publication).replace("'", "''")
        command = (
            f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {lsn_text(position)} (proto_version '1',"
            f" publication_names '{name}')"
        )
        with told():
            result = self._copy.exec_(command.encode())
            if result.status != self._psycopg.pq.ExecStatus.COPY_BOTH:
                raise self._psycopg.errors.error_from_result(result)
        #: all commits before this have come
        self.received = 0
        #: a transaction has begun and not ended yet
        self.open = False
        self._flushed = position
        self._answered_s = time.monotonic()

    def collect(self, most_bytes: int, wait_s: float, *, one: bool = False) -> list[bytes]:
        """Messages that are there, for which it waits ``wait_s``; ``one``: none after the next Commit.

        Raises ``Unavailable`` when the connection is lost.
        """
        found: list[bytes] = []
        size = 0
        with told():
            copy = self._copy
            waited = False
            while size < most_bytes:
                count, view = copy.get_copy_data(1)
                if count == 0:
                    if waited or found:
                        break
                    self._answer()
                    readable, _, _ = select.select([copy.socket], [], [], wait_s)
                    waited = True
                    if readable:
                        copy.consume_input()
                        waited = False
                        wait_s = 0.0
                    continue
                if count < 0:
                    raise Unavailable("PostgreSQL ended the stream of its log; it is read again")
                data = bytes(view)
                if data[:1] == b"w" and len(data) > 25:
                    message = data[25:]
                    found.append(message)
                    size += len(message)
                    kind = message[0]
                    if kind == BEGIN:
                        self.open = True
                    elif kind == COMMIT:
                        self.open = False
                        if one:
                            break
                elif data[:1] == b"k" and len(data) == 18:
                    end, _, wanted = struct.unpack_from(">QqB", data, 1)
                    if not self.open:
                        self.received = max(self.received, end)
                    if wanted:
                        self.tell(self._flushed)
                else:
                    raise Invalid(f"PostgreSQL's stream holds a message {data[:1]!r} of {len(data)} bytes")
            self._answer()
        return found

    def _answer(self) -> None:
        if time.monotonic() - self._answered_s > _ANSWER_S:
            self.tell(self._flushed)

    def tell(self, flushed: int, *, ask: bool = False) -> None:
        """All before ``flushed`` is in the table, the server may forget it; ``ask``: how far it has sent."""
        self._flushed = flushed
        self._answered_s = time.monotonic()
        now = time.time_ns() // 1000 - EPOCH_US
        with told():
            self._copy.put_copy_data(struct.pack(">cQQQqB", b"r", flushed, flushed, flushed, now, ask))
            self._copy.flush()

    def close(self) -> None:
        """Leave."""
        with suppress(Exception):
            self._connection.close()
