"""The systems of the collision behind one small face: create a table, upsert a batch, read it back.

Every batch is one commit, and of two rows of a key the one with the newer ``ts`` stays. How a system is
told so is its own documented way:

  mainstem   event-time ordering is a property of the table; a stream guard commits a batch once
  delta      ``merge`` whose update clause compares ``ts``; on a conflict the table is brought up to date
             and the merge runs again
  iceberg    ``upsert``, which takes every row it is given: so the newer rows are picked by reading the
             same snapshot; after a conflict both are done again. SQL catalog in SQLite
  paimon     a primary key table with ``sequence.field``, as many buckets as ours, file system catalog

``Refused`` means that a commit was given up because of another writer: its work is thrown away, and the
loop waits a random while (longer after each refusal) and does the batch again. Imports of a peer happen
in the peer's own environment, which has neither this project nor the others.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from demos.collision_load import BUCKETS, KEY, ORDERING, SCHEMA


class Refused(Exception):
    """The commit was refused because of another writer's, and nothing of it stands."""


class System(Protocol):
    """One table in one process."""

    #: commits that the library tried again by itself
    repeated: int

    def create(self, rows: pa.Table) -> None:
        """Make the table and write its first rows."""

    def upsert(self, rows: pa.Table, writer: str, batch: int) -> None:
        """Commit one batch; raises ``Refused``."""

    def read(self) -> pa.Table:
        """Columns id and ts of the whole table."""


class Mainstem:
    """Ours; services run beside the writer in its process."""

    def __init__(self, folder: Path) -> None:
        self.repeated = 0
        self._path = str(folder / "table")
        self._table = None

    def create(self, rows: pa.Table) -> None:
        import mainstem

        table = mainstem.create_table(
            self._path,
            SCHEMA,
            record_key=[KEY],
            ordering=[ORDERING],
            buckets=BUCKETS,
        )
        table.upsert(rows)

    def upsert(self, rows: pa.Table, writer: str, batch: int) -> None:
        from mainstem.errors import LeaseLost, LockUnavailable, OutcomeUnknown, RolledBack
        from mainstem.writers.stream_guard import StreamGuard

        try:
            with self._opened(writer).begin("upsert", guard=StreamGuard(writer, batch)) as transaction:
                if not transaction.already_committed:
                    transaction.write(rows)
                transaction.commit()
        except (LeaseLost, LockUnavailable, OutcomeUnknown, RolledBack) as error:
            raise Refused(str(error)) from error

    def _opened(self, writer: str):
        import mainstem

        if self._table is None:
            self._table = mainstem.open_table(self._path, mainstem_options(writer))
            self._table.services_in_background(every_s=2.0).__enter__()
        return self._table

    def read(self) -> pa.Table:
        import mainstem

        return mainstem.open_table(self._path).scan(columns=[KEY, ORDERING]).to_arrow()


def mainstem_options(writer: str) -> dict[str, object]:
    """What all kinds of our writers are told; bounds so small that a short run sees every service."""
    return {
        "hoodie.mainstem.writer.name": writer,
        # A writer that is silent for 2 s x (3 + 1) is dead.
        "hoodie.client.heartbeat.interval_in_ms": 2000,
        "hoodie.client.heartbeat.tolerable.misses": 3,
        "hoodie.compact.inline.max.delta.commits": 10,
        "hoodie.clean.commits.retained": 10,
        "hoodie.keep.min.commits": 20,
        "hoodie.keep.max.commits": 30,
    }


class Delta:
    def __init__(self, folder: Path) -> None:
        self.repeated = 0
        self._path = str(folder / "table")
        self._table = None

    def create(self, rows: pa.Table) -> None:
        from deltalake import DeltaTable, write_deltalake

        DeltaTable.create(self._path, schema=SCHEMA)
        write_deltalake(self._path, rows, mode="append")

    def upsert(self, rows: pa.Table, writer: str, batch: int) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import CommitFailedError

        if self._table is None:
            self._table = DeltaTable(self._path)
        else:
            self._table.update_incremental()
        merge = self._table.merge(
            rows, predicate=f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t"
        ).when_matched_update_all(predicate=f"s.{ORDERING} > t.{ORDERING}")
        try:
            merge.when_not_matched_insert_all().execute()
        except CommitFailedError as error:
            raise Refused(str(error)) from error

    def read(self) -> pa.Table:
        from deltalake import DeltaTable

        return DeltaTable(self._path).to_pyarrow_table(columns=[KEY, ORDERING])


class Iceberg:
    def __init__(self, folder: Path) -> None:
        self.repeated = 0
        self._folder = folder
        self._loaded = None
        _count_warnings("pyiceberg", "retrying", self)

    def _catalog(self):
        from pyiceberg.catalog.sql import SqlCatalog

        self._folder.mkdir(parents=True, exist_ok=True)
        # SQLite lets one process write at a time; the others wait up to a minute, as in a real database.
        uri = f"sqlite:///{self._folder}/catalog.db?timeout=60"
        return SqlCatalog("c", uri=uri, warehouse=f"file://{self._folder}/table")

    def create(self, rows: pa.Table) -> None:
        catalog = self._catalog()
        catalog.create_namespace("d")
        catalog.create_table("d.t", schema=SCHEMA).append(rows)

    def upsert(self, rows: pa.Table, writer: str, batch: int) -> None:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        if self._loaded is None:
            self._loaded = self._catalog().load_table("d.t")
        else:
            self._loaded.refresh()
        newer = _newer(rows, self._loaded)
        if not newer.num_rows:
            return
        try:
            self._loaded.upsert(newer, join_cols=[KEY])
        except (CommitFailedException, ValidationException) as error:
            raise Refused(f"{type(error).__name__}: {error}") from error

    def read(self) -> pa.Table:
        return self._catalog().load_table("d.t").scan(selected_fields=(KEY, ORDERING)).to_arrow()


def _newer(rows: pa.Table, table) -> pa.Table:
    """The rows that are newer than the table's snapshot, or new."""
    import pyarrow.compute as pc

    there = table.scan(selected_fields=(KEY, ORDERING)).to_arrow().rename_columns([KEY, "there"])
    there = there.set_column(0, KEY, there[KEY].cast(pa.string()))
    joined = rows.join(there, KEY, join_type="left outer")
    newer = pc.fill_null(pc.greater(joined[ORDERING], joined["there"]), True)
    return joined.filter(newer).select(SCHEMA.names).cast(SCHEMA)


class Paimon:
    def __init__(self, folder: Path) -> None:
        self.repeated = 0
        self._folder = folder
        _count_warnings("pypaimon", "Atomic commit failed", self)

    def _catalog(self):
        from pypaimon import CatalogFactory

        return CatalogFactory.create({"warehouse": str(self._folder / "table")})

    def create(self, rows: pa.Table) -> None:
        from pypaimon import Schema

        catalog = self._catalog()
        catalog.create_database("d", False)
        options = {"bucket": str(BUCKETS), "sequence.field": ORDERING}
        schema = Schema.from_pyarrow_schema(SCHEMA, primary_keys=[KEY], options=options)
        catalog.create_table("d.t", schema, False)
        self.upsert(rows, "first", 0)

    def upsert(self, rows: pa.Table, writer: str, batch: int) -> None:
        builder = self._catalog().get_table("d.t").new_stream_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        try:
            write.write_arrow(rows)
            try:
                commit.commit(write.prepare_commit(batch), batch)
            except RuntimeError as error:
                if "commit conflicts" not in str(error):
                    raise
                raise Refused(str(error)) from error
        finally:
            write.close()
            commit.close()

    def read(self) -> pa.Table:
        builder = self._catalog().get_table("d.t").new_read_builder().with_projection([KEY, ORDERING])
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())


def _count_warnings(logger: str, text: str, system: System) -> None:
    """Libraries that try again by themselves say so in their logs only."""

    class Counting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            system.repeated += text in str(record.msg)

    logging.getLogger(logger).addHandler(Counting(logging.WARNING))


SYSTEMS = {"mainstem": Mainstem, "delta": Delta, "iceberg": Iceberg, "paimon": Paimon}
#: name -> what the score calls it
PEERS = {"delta": "delta-rs merge", "iceberg": "pyiceberg upsert", "paimon": "pypaimon upsert"}
