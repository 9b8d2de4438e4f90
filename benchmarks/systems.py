"""The systems under comparison behind one small face: create a table, upsert a batch into it.

Each upsert is one atomic commit keyed by ``uuid``. ``Aborted`` means that the system refused the
commit because of another writer; the loops count it, reload and try the batch again.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from benchmarks import Missing
from benchmarks.bare_commit import BareCommits
from benchmarks.data import KEY, ORDERING, SCHEMA

BUCKETS = 8


class Aborted(Exception):
    """The commit was refused because of a concurrent one (or failed in a way that retry mends)."""


class Writer(Protocol):
    """One open table in one process."""

    def upsert(self, batch: pa.Table) -> None: ...

    def reload(self) -> None: ...

    #: per commit: milliseconds with the table lock held, and bytes written (empty when unknown)
    held_ms: list[float]
    bytes: list[int]


class Mainstem:
    """Ours. ``exclusive``: only mainstem writes; ``fsync=False`` is the peers' durability."""

    def __init__(self, *, fsync: bool = True, exclusive: bool = False) -> None:
        self.name = f"mainstem {'fsync' if fsync else 'no fsync'}" + (
            ", exclusive" if exclusive else ""
        )
        self._properties: Mapping[str, str] = {
            "hoodie.mainstem.fsync": str(fsync).lower(),
            "hoodie.mainstem.exclusive": str(exclusive).lower(),
        }

    def create(self, folder: Path) -> None:
        import mainstem

        mainstem.create_table(
            str(folder), SCHEMA, record_key=[KEY], ordering=[ORDERING], buckets=BUCKETS,
            properties=dict(self._properties),
        )  # fmt: skip

    def open(self, folder: Path) -> Writer:
        return _MainstemWriter(str(folder), dict(self._properties))

    def rows(self, folder: Path) -> int:
        import mainstem

        return mainstem.open_table(str(folder)).scan(columns=[KEY]).to_arrow().num_rows


class _MainstemWriter:
    def __init__(self, folder: str, properties: dict[str, str]) -> None:
        import mainstem

        self._table = mainstem.open_table(folder, properties=properties)
        self.held_ms: list[float] = []
        self.bytes: list[int] = []

    def upsert(self, batch: pa.Table) -> None:
        from mainstem.errors import LeaseLost, LockUnavailable, OutcomeUnknown, RolledBack

        try:
            outcome = self._table.upsert(batch)
        except (LeaseLost, LockUnavailable, OutcomeUnknown, RolledBack) as error:
            raise Aborted(str(error)) from error
        self.held_ms.append(outcome.lock_held_ms)
        self.bytes.append(outcome.bytes)

    def reload(self) -> None:
        """Every transaction lists the timeline anew."""


class Delta:
    """delta-rs ``merge`` (copy on write, optimistic; it does not fsync)."""

    name = "delta-rs merge"

    def __init__(self) -> None:
        need("deltalake")

    def create(self, folder: Path) -> None:
        from deltalake import DeltaTable

        DeltaTable.create(str(folder), schema=SCHEMA)

    def open(self, folder: Path) -> Writer:
        return _DeltaWriter(str(folder))

    def rows(self, folder: Path) -> int:
        from deltalake import DeltaTable

        return DeltaTable(str(folder)).to_pyarrow_table(columns=[KEY]).num_rows


class _DeltaWriter:
    def __init__(self, folder: str) -> None:
        from deltalake import DeltaTable

        self._folder = folder
        self._table = DeltaTable(folder)
        self.held_ms: list[float] = []
        self.bytes: list[int] = []

    def upsert(self, batch: pa.Table) -> None:
        from deltalake.exceptions import DeltaError

        merge = self._table.merge(
            batch, predicate=f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t"
        )
        try:
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        except DeltaError as error:
            raise Aborted(str(error)) from error

    def reload(self) -> None:
        from deltalake import DeltaTable

        self._table = DeltaTable(self._folder)


class Iceberg:
    """pyiceberg ``upsert`` with a SQL catalog in SQLite."""

    name = "pyiceberg upsert"

    def __init__(self) -> None:
        need("pyiceberg")
        need("sqlalchemy")

    def create(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        catalog = _catalog(folder)
        catalog.create_namespace("b")
        catalog.create_table("b.t", schema=SCHEMA)

    def open(self, folder: Path) -> Writer:
        return _IcebergWriter(folder)

    def rows(self, folder: Path) -> int:
        return _catalog(folder).load_table("b.t").scan(selected_fields=(KEY,)).to_arrow().num_rows


def _catalog(folder: Path):
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("b", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/data")


class _IcebergWriter:
    def __init__(self, folder: Path) -> None:
        self._catalog = _catalog(folder)
        self._table = self._catalog.load_table("b.t")
        self.held_ms: list[float] = []
        self.bytes: list[int] = []

    def upsert(self, batch: pa.Table) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException
        from sqlalchemy.exc import SQLAlchemyError

        refusals = (CommitFailedException, ValidationException, SQLAlchemyError, ValueError)
        try:
            self._table.upsert(batch, join_cols=[KEY])
        except refusals as error:
            raise Aborted(f"{type(error).__name__}: {error}") from error

    def reload(self) -> None:
        self._table = self._catalog.load_table("b.t")


class Bare:
    """What no writer can avoid: encode the batch, write it to a file of its own, fsync. No table."""

    name = "encode and fsync"

    def create(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def open(self, folder: Path) -> Writer:
        return _BareWriter(folder)

    def rows(self, folder: Path) -> int:
        return 0


class _BareWriter:
    def __init__(self, folder: Path) -> None:
        import os

        from mainstem.formats.avro_schema import arrow_to_avro
        from mainstem.storage.local import LocalStorage

        self._storage = LocalStorage(str(folder))
        self._schema = arrow_to_avro(SCHEMA, table_name="bare", meta_fields=False)
        self._prefix = f"{os.getpid()}-"
        self._count = 0
        self.held_ms: list[float] = []
        self.bytes: list[int] = []

    def upsert(self, batch: pa.Table) -> None:
        from mainstem.formats.avro_columns import encode_records

        self._count += 1
        parts = encode_records(batch, self._schema)
        self._storage.put_new(f"{self._prefix}{self._count}", parts, durable=True)

    def reload(self) -> None:
        """Nothing is shared."""


def _bare_commits() -> BareCommits:
    return BareCommits(Mainstem())


SYSTEMS = {
    "bare": Bare,
    "bare-commit": _bare_commits,
    "unavoidable": lambda: BareCommits(Mainstem(), encodes=True),
    "mainstem": lambda: Mainstem(),
    "mainstem-nosync": lambda: Mainstem(fsync=False),
    "mainstem-exclusive": lambda: Mainstem(exclusive=True),
    "delta": Delta,
    "iceberg": Iceberg,
}


def need(module: str) -> None:
    """Raise ``Missing`` if it is not installed."""
    if importlib.util.find_spec(module) is None:
        raise Missing(f"{module} is not installed (extra 'benchmarks')")
