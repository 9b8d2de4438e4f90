"""A Hive Metastore (2.3, 3 and 4), spoken to over Thrift by the bindings that pyiceberg keeps.

Every call has a connection of its own, so that threads and forked children share nothing; several calls of
one sync are seconds apart at most, and a connection takes a millisecond. Answers are bounded. There is no
Kerberos.
"""

from __future__ import annotations

import getpass
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mainstem.catalogs.protocol import Column, Entry, Part
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.limits import CATALOG_ANSWER_BYTES_MAX, CATALOG_ANSWER_ITEMS_MAX

SCHEME = "thrift://"
_PORT = 9083
_PATIENCE_MS = 60_000


@dataclass(frozen=True)
class HiveMetastore:
    """``uris``: ``thrift://host:port``, of several the first that answers."""

    uris: str
    keeps_entries = True
    of_iceberg = False

    @property
    def place(self) -> str:
        return self.uris

    # -- the connection --------------------------------------------------------------------------

    @contextmanager
    def _client(self, doing: str) -> Iterator[Any]:
        """A connected client; errors of Thrift and of the metastore are told as ours."""
        thrift, types = _bindings()
        refusals = (
            types.InvalidOperationException, types.InvalidObjectException, types.AlreadyExistsException
        )
        try:
            client, transport = self._connected(thrift)
            try:
                yield client
            finally:
                transport.close()
        except (types.NoSuchObjectException, types.UnknownDBException) as error:
            raise Invalid(f"the metastore {self.uris} does not know it ({doing}): {_text(error)}") from error
        except refusals as error:
            raise Invalid(f"the metastore {self.uris} refuses ({doing}): {_text(error)}") from error
        except types.MetaException as error:
            raise Unavailable(
                f"the metastore {self.uris} failed ({doing}): {_text(error)}; try again"
            ) from error
        except (thrift.TException, OSError, EOFError) as error:
            raise Unavailable(
                f"the metastore {self.uris} does not answer ({doing}): {_text(error)}; is it running, and"
                " does it speak plain Thrift without Kerberos?"
            ) from error

    def _connected(self, thrift: Any) -> tuple[Any, Any]:
        addresses = _addresses(self.uris)
        for number, (host, port) in enumerate(addresses):
            socket = thrift.TSocket.TSocket(host, port)
            socket.setTimeout(_PATIENCE_MS)
            transport = thrift.TBufferedTransport(socket)
            protocol = thrift.TBinaryProtocol(
                transport, string_length_limit=CATALOG_ANSWER_BYTES_MAX,
                container_length_limit=CATALOG_ANSWER_ITEMS_MAX
            )
            try:
                transport.open()
            except (thrift.TException, OSError):
                if number + 1 == len(addresses):
                    raise
                continue
            return thrift.Client(protocol), transport
        raise AssertionError("no address")

    # -- databases -------------------------------------------------------------------------------

    def databases(self) -> list[str]:
        with self._client("listing databases") as client:
            return sorted(client.get_all_databases())

    def has_database(self, database: str) -> bool:
        return database.lower() in self.databases()

    def create_database(self, database: str, comment: str) -> bool:
        _, types = _bindings()
        with self._client(f"making the database {database}") as client:
            try:
                client.create_database(types.Database(database, comment, None, {}))
            except types.AlreadyExistsException:
                return False
        return True

    def drop_database(self, database: str) -> bool:
        _, types = _bindings()
        with self._client(f"dropping the database {database}") as client:
            try:
                client.drop_database(database, False, False)
            except types.NoSuchObjectException:
                return False
        return True

    def table_location(self, database: str, name: str) -> str:
        with self._client(f"asking for the database {database}") as client:
            where = client.get_database(database).locationUri or ""
        return f"{where.rstrip('/')}/{name}"

    # -- entries ---------------------------------------------------------------------------------

    def tables(self, database: str) -> list[str]:
        if not self.has_database(database):
            raise Invalid(f"the metastore {self.uris} has no database {database}")
        with self._client(f"listing the tables of {database}") as client:
            return sorted(client.get_all_tables(database))

    def entry(self, database: str, name: str) -> Entry | None:
        _, types = _bindings()
        with self._client(f"asking for {database}.{name}") as client:
            try:
                found = _table(client, database, name)
            except types.NoSuchObjectException:
                return None
        return None if found is None else _entry(found)

    def create(self, entry: Entry) -> bool:
        _, types = _bindings()
        table = types.Table(
            tableName=entry.name, dbName=entry.database, owner=getpass.getuser(), createTime=0,
            lastAccessTime=0, retention=0, sd=_storage(entry),
            partitionKeys=_columns(entry.partition_columns), parameters=dict(entry.parameters),
            tableType=entry.kind,
        )  # fmt: skip
        with self._client(f"registering {entry.full_name}") as client:
            try:
                client.create_table(table)
            except types.AlreadyExistsException:
                return False
        return True

    def alter(self, entry: Entry, *, cascade: bool) -> None:
        _, types = _bindings()
        table = entry.found
        table.parameters = dict(entry.parameters)
        kept = table.sd
        made = _storage(entry)
        kept.cols, kept.location, kept.serdeInfo = made.cols, made.location, made.serdeInfo
        kept.inputFormat, kept.outputFormat = made.inputFormat, made.outputFormat
        context = types.EnvironmentContext({"CASCADE": "true"} if cascade else {})
        with self._client(f"changing {entry.full_name}") as client:
            client.alter_table_with_environment_context(entry.database, entry.name, table, context)

    def drop(self, database: str, name: str) -> bool:
        _, types = _bindings()
        with self._client(f"dropping {database}.{name}") as client:
            try:
                client.drop_table(database, name, False)
            except types.NoSuchObjectException:
                return False
        return True

    # -- partitions ------------------------------------------------------------------------------

    def partitions(self, entry: Entry) -> list[Part]:
        with self._client(f"listing the partitions of {entry.full_name}") as client:
            found = client.get_partitions(entry.database, entry.name, -1)
        return [Part(tuple(one.values), one.sd.location or "") for one in found]

    def add_partitions(self, entry: Entry, parts: Sequence[Part]) -> None:
        _, types = _bindings()
        request = types.AddPartitionsRequest(
            entry.database, entry.name, [_partition(entry, part) for part in parts], ifNotExists=True,
            needResult=False
        )
        with self._client(f"adding partitions to {entry.full_name}") as client:
            client.add_partitions_req(request)

    def move_partitions(self, entry: Entry, parts: Sequence[Part]) -> None:
        made = [_partition(entry, part) for part in parts]
        with self._client(f"changing partitions of {entry.full_name}") as client:
            client.alter_partitions(entry.database, entry.name, made)

    def drop_partitions(self, entry: Entry, parts: Sequence[Part]) -> None:
        _, types = _bindings()
        with self._client(f"dropping partitions of {entry.full_name}") as client:
            for part in parts:
                try:
                    client.drop_partition(entry.database, entry.name, list(part.values), False)
                except types.NoSuchObjectException:
                    continue


@dataclass(frozen=True)
class _Thrift:
    TSocket: Any
    TBufferedTransport: Any
    TBinaryProtocol: Any
    TException: Any
    Client: Any


def _bindings() -> tuple[Any, Any]:
    try:
        from hive_metastore import ttypes
        from hive_metastore.ThriftHiveMetastore import Client
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.Thrift import TException
        from thrift.transport import TSocket
        from thrift.transport.TTransport import TBufferedTransport

        # It logs what it raises, too.
        logging.getLogger("thrift.transport.TSocket").addHandler(logging.NullHandler())
    except ImportError as error:
        raise Unsupported(
            f"a Hive Metastore is spoken to by pyiceberg's client, which is not installed ({error}): pip"
            " install"
            " 'mainstem[hive]'"
        ) from error
    return _Thrift(TSocket, TBufferedTransport, TBinaryProtocol, TException, Client), ttypes


def _addresses(uris: str) -> list[tuple[str, int]]:
    found = []
    for uri in filter(None, map(str.strip, uris.split(","))):
        host, colon, port = uri.removeprefix(SCHEME).rstrip("/").rpartition(":")
        if not colon:
            host, port = port, str(_PORT)
        if not uri.startswith(SCHEME) or not host or "@" in host or "/" in host or not port.isdecimal():
            raise Invalid(
                "a Hive Metastore is given as thrift://host:port, of several with commas between them"
            )
        found.append((host, int(port)))
    if not found:
        raise Invalid("a Hive Metastore is given as thrift://host:port; found nothing")
    return found


def check_uris(uris: str) -> None:
    """Raises ``Invalid`` for text that names no metastore."""
    _addresses(uris)


def _text(error: BaseException) -> str:
    return str(getattr(error, "message", None) or error)[:500]


def _table(client: Any, database: str, name: str) -> Any:
    """As all versions tell it: Hive 4 has the older call no more."""
    from hive_metastore import ttypes
    from thrift.Thrift import TApplicationException

    try:
        return client.get_table(database, name)
    except TApplicationException as error:
        if error.type != TApplicationException.UNKNOWN_METHOD:
            raise
        return client.get_table_req(ttypes.GetTableRequest(dbName=database, tblName=name)).table


def _columns(columns: Sequence[Column]) -> list[Any]:
    _, types = _bindings()
    return [types.FieldSchema(name, kind, "") for name, kind in columns]


def _storage(entry: Entry) -> Any:
    _, types = _bindings()
    return types.StorageDescriptor(
        cols=_columns(entry.columns), location=entry.location, inputFormat=entry.input_format,
        outputFormat=entry.output_format, compressed=False, numBuckets=0,
        serdeInfo=types.SerDeInfo(None, entry.serde, dict(entry.serde_parameters)), bucketCols=[],
        sortCols=[], parameters={},
    )  # fmt: skip


def _partition(entry: Entry, part: Part) -> Any:
    _, types = _bindings()
    storage = _storage(entry)
    storage.location = part.location
    return types.Partition(
        values=list(part.values), dbName=entry.database, tableName=entry.name, createTime=0, lastAccessTime=0,
        sd=storage, parameters={},
    )  # fmt: skip


def _entry(table: Any) -> Entry:
    sd = table.sd
    serde = sd.serdeInfo if sd is not None else None
    return Entry(
        table.dbName or "", table.tableName or "", (sd.location if sd is not None else "") or "",
        tuple((c.name, c.type) for c in (sd.cols if sd is not None else None) or ()),
        tuple((c.name, c.type) for c in table.partitionKeys or ()),
        dict(table.parameters or {}), dict((serde.parameters if serde is not None else None) or {}),
        (serde.serializationLib if serde is not None else "") or "",
        (sd.inputFormat if sd is not None else "") or "", (sd.outputFormat if sd is not None else "") or "",
        table.tableType or "", table,
    )  # fmt: skip
