"""One publication: the base files that a read optimized query reads now become an Iceberg snapshot.

  1. note the newest time on the timeline; then one view of the table: its schema, the newest completed base
     file
     of every file group that is not replaced. A pending restore's view is that after the restore
  2. read the newest version of Iceberg's metadata; end if its note is not older than ours
  3. the schema, with ids that stay; the snapshot's manifests; of new files only, footers
  4. older snapshots that name a file which is not there any more, or is about to go, are expired
  5. create the next version exclusively, and the hint; if another publisher was quicker, from 1 again
  6. remove what no version names any more, after a grace

**What it shows** is what Hudi's read optimized query shows at one moment: of each file group everything up to
its latest compaction (or clustering, bulk insert, overwrite). File groups are compacted at different times,
so it is no snapshot of the table at one completion time, and of one with log files it lags behind.

**A publisher that is late** changes nothing: its note is older. One that read version N and publishes N + 1
after another did so finds the name taken. So the notes in the versions only grow, also over a restore, which
is a new time itself.

**Files that go.** A clean, and a restore, publish before they delete (``leaving``): by then no version names
what they delete. Where Java deletes, a snapshot may name files that are gone until the next publication; its
readers fail then, and see nothing wrong.

**A crash** leaves manifests that no version names (step 6 removes them), or a hint that lags behind.

Read: the Iceberg specification, version 2; ``HadoopTableOperations`` (versions and hint); Apache XTable,
which puts the metadata into the same place.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.manifest import write_manifest_list
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from mainstem.errors import Unavailable, Unsupported, naming
from mainstem.formats.avro_schema import avro_to_arrow
from mainstem.iceberg import SEEN
from mainstem.iceberg.columns import iceberg_schema, name_mapping, same_columns, still_readable
from mainstem.iceberg.data_files import Describer, Footer, NotOneValue, read_footer
from mainstem.iceberg.manifests import NextManifests, removed_in
from mainstem.iceberg.metadata_versions import Version, put_hint, put_next, read_newest, tidy
from mainstem.iceberg.store_io import StoreIO
from mainstem.layout.properties import TableConfig, load_config
from mainstem.layout.slicing import base_slice
from mainstem.options.tables import SCHEMA_ON_READ
from mainstem.readers.planning.file_listing import query_listing
from mainstem.readers.planning.file_presence import check_listed
from mainstem.readers.planning.history import check_nothing_undone
from mainstem.readers.planning.query_schema import table_schema
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from mainstem.storage.side_by_side import side_by_side
from mainstem.timeline.active import load_timeline

if TYPE_CHECKING:
    from mainstem.truetime.seams import Seams

_TRIES = 10
_FOOTERS_AT_ONCE = 256
_NAME_MAPPING = "schema.name-mapping.default"
_PARTITIONS = (
    BooleanType, IntegerType, LongType, StringType, DateType, TimestampType, TimestamptzType
)  # fmt: skip


@dataclass(frozen=True)
class Published:
    """The outcome of a publication. ``metadata``: location of the newest version, which catalogs register;
    ``version``: its number; ``changed``: whether this call made it; ``snapshot``: Iceberg's id of what it
    shows, None while the table has no base file; ``files`` and ``rows``: what the snapshot holds; ``added``
    and ``removed``: files by which it differs from the one before; ``expired``: how many older snapshots
    went; ``seen``: the newest time on the table's timeline that it was made from."""

    metadata: str
    version: int
    changed: bool
    snapshot: int | None
    files: int
    rows: int
    added: int = 0
    removed: int = 0
    expired: int = 0
    seen: str = ""

    def describe(self) -> str:
        """One line for people."""
        if not self.changed:
            return f"{self.metadata} is up to date: {self.files:,} base files with {self.rows:,} rows"
        return (
            f"{self.metadata}: {self.files:,} base files with {self.rows:,} rows, {self.added:,} of them new,"
            f" {self.removed:,} gone"
        )


@dataclass(frozen=True)
class _View:
    """What is to be published. ``files``: location -> partition; ``there``: of all base files."""

    seen: str
    config: TableConfig
    columns: pa.Schema
    files: Mapping[str, str]
    there: frozenset[str]


def _nothing_leaves(path: str) -> bool:
    return False


@dataclass(frozen=True)
class Publisher:
    """Publishes one table. ``base``: the table's place as Iceberg's files name it; ``kept``: how many
    snapshots stay for time travel, as long as their files are there."""

    seams: Seams
    base: str
    kept: int

    def publish(self, leaving: Callable[[str], bool] = _nothing_leaves) -> Published:
        """Brings Iceberg's metadata up to the table. ``leaving``: whether a path is about to be deleted.

        Raises ``Unsupported`` for what Iceberg cannot show as Hudi does (the version before stays),
        ``Invalid`` for an Iceberg table of somebody else, ``CorruptTable``, ``Unavailable``.
        """
        io = StoreIO(self.seams.storage, self.base)
        advice = "the table is as it was, publish again"
        with naming(self.seams.storage.base, "Iceberg's metadata could not be published", advice):
            for _ in range(_TRIES):
                try:
                    found = self._attempt(io, leaving)
                except FileNotFoundError:  # a clean or a restore came in between, or tidying
                    continue
                if found is not None:
                    return found
        raise Unavailable(
            f"others published {_TRIES} times in a row, or files went while they were listed; publish again",
            table=self.seams.storage.base,
        )

    # -- 1, 2 ------------------------------------------------------------------------------------

    def _look(self, io: StoreIO) -> _View:
        storage = self.seams.storage
        seen = load_timeline(storage).newest_time
        config = load_config(storage)
        config.check_readable(storage.base)
        state = TableState.load(storage, config)
        schema = table_schema(state)
        if schema.ids is not None:
            raise Unsupported(
                f"columns have ids of their own ({SCHEMA_ON_READ}): Iceberg would not find renamed ones in"
                " older files",
                table=storage.base,
            )
        replaced = state.replaced(None)
        files: dict[str, str] = {}
        there: set[str] = set()
        for listing in query_listing(state, metadata=True):
            partition = listing.partition
            if partition == paths.ICEBERG or partition.startswith(f"{paths.ICEBERG}/"):
                raise Unsupported(
                    f"the partition {partition!r} lies where Iceberg's metadata goes", table=storage.base
                )
            check_listed(state, partition, set(listing.names), base_only=True, replaced=replaced)
            bases = (n for n in listing.names if paths.parse_base_name(n) is not None)
            there.update(io.location(paths.in_partition(partition, name)) for name in bases)
            for group in state.group(partition, listing.names):
                picked = None if (partition, group.file_id) in replaced else base_slice(group, None)
                if picked is not None and picked.base_file is not None:
                    files[io.location(paths.in_partition(partition, picked.base_file))] = partition
        check_nothing_undone(state)
        return _View(seen, config, avro_to_arrow(schema.text), files, frozenset(there))

    def _attempt(self, io: StoreIO, leaving: Callable[[str], bool]) -> Published | None:
        """None if another publisher was quicker, or a file went meanwhile."""
        view = self._look(io)
        before = read_newest(self.seams.storage)
        if before.metadata is not None and before.metadata.location != self.base:
            before = Version(before.number, None)  # the table was moved, or is spelt otherwise
        if before.metadata is not None and before.seen > view.seen:
            return self._as_it_is(io, before)
        return self._next(io, view, before, lambda place: place not in view.there or leaving(io.path(place)))

    def _as_it_is(self, io: StoreIO, version: Version) -> Published:
        assert version.metadata is not None
        snapshot = version.metadata.current_snapshot()
        told: Any = {} if snapshot is None or snapshot.summary is None else snapshot.summary
        return Published(
            io.location(paths.iceberg_version(version.number)), version.number, False,
            None if snapshot is None else snapshot.snapshot_id, int(told.get("total-data-files") or 0),
            int(told.get("total-records") or 0), seen=version.seen,
        )  # fmt: skip

    # -- 3 to 6 ----------------------------------------------------------------------------------

    def _next(
        self, io: StoreIO, view: _View, before: Version, is_gone: Callable[[str], bool]
    ) -> Published | None:
        seams, old = self.seams, before.metadata
        now = max(seams.clock.now_ms(), 0 if old is None else old.last_updated_ms + 1)
        start = self._new_table(view) if old is None else old
        with_spec, updates, all_anew = _with_schema(start, view)
        snapshot_id = seams.random.getrandbits(62) + 1
        attempt = f"{seams.random.getrandbits(64):016x}"
        current = None if old is None else old.current_snapshot()
        while True:
            made = NextManifests(io, with_spec, current, snapshot_id, attempt)
            try:
                others = self._fill(io, view, with_spec, made, all_anew)
                break
            except NotOneValue:
                made.forget()
                spec = PartitionSpec(spec_id=max(s.spec_id for s in with_spec.partition_specs) + 1)
                new = (AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=spec.spec_id))
                with_spec = update_table_metadata(with_spec, new)
                updates += new
            except BaseException:
                made.forget()
                raise
        metadata, changes = with_spec, made.changes
        mapping = name_mapping(metadata.schema(), start.properties.get(_NAME_MAPPING), others)
        if mapping != start.properties.get(_NAME_MAPPING):
            updates.append(SetPropertiesUpdate(updates={_NAME_MAPPING: mapping}))
        if not changes.nothing or (current is None and changes.whole[0]):
            place = io.location(paths.iceberg_manifest_list(snapshot_id, attempt))
            sequence = metadata.next_sequence_number()
            parent = None if current is None else current.snapshot_id
            target = io.new_output(place)
            with write_manifest_list(2, target, snapshot_id, parent, sequence, "deflate") as out:
                out.add_manifests(made.made)
            snapshot = Snapshot(
                snapshot_id=snapshot_id, parent_snapshot_id=parent, sequence_number=sequence,
                timestamp_ms=now, manifest_list=place, summary=_summary(made, view),
                schema_id=metadata.current_schema_id,
            )  # fmt: skip
            updates += [
                AddSnapshotUpdate(snapshot=snapshot),
                SetSnapshotRefUpdate(
                    ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id
                ),
            ]
        expired = self._expired(io, old, updates, made, is_gone)
        if old is not None and not updates and not expired:
            made.forget()
            return self._as_it_is(io, before)
        if expired:
            updates.append(RemoveSnapshotsUpdate(snapshot_ids=expired))
        updates.append(SetPropertiesUpdate(updates={SEEN: view.seen}))
        previous = None if old is None else io.location(paths.iceberg_version(before.number))
        result = update_table_metadata(start, tuple(updates), metadata_location=previous)
        version = Version(before.number + 1, result)
        if not put_next(seams.storage, version):
            made.forget()
            put_hint(seams.storage, before.number + 1)
            return None
        tidy(io, version)
        done = self._as_it_is(io, version)
        return Published(
            done.metadata, done.version, True, done.snapshot, done.files, done.rows, changes.added[0],
            changes.gone[0], len(expired), version.seen,
        )  # fmt: skip

    def _fill(
        self, io: StoreIO, view: _View, metadata: TableMetadata, made: NextManifests, all_anew: bool
    ) -> dict[str, pa.Field]:
        """All manifests of the next snapshot; returns what new files hold beside the table's columns."""
        own = {field.name for field in metadata.schema().fields}
        others: dict[str, pa.Field] = {}
        storage = self.seams.storage
        describe = Describer(
            metadata.schema(), metadata.spec(), metadata.properties, view.config, view.columns
        )

        def footer(place: str) -> Footer:
            return read_footer(storage, io.path(place), view.files[place])

        missing = sorted(made.without(set(view.files), all_anew=all_anew))
        for at in range(0, len(missing), _FOOTERS_AT_ONCE):
            places = missing[at : at + _FOOTERS_AT_ONCE]
            for place, found in zip(places, side_by_side(storage, footer, places), strict=True):
                others |= {one.name: one for one in found.columns if one.name not in own}
                if found.metadata.num_rows:  # one without rows says nothing
                    made.add(describe.data_file(found, place))
        made.close()
        return others

    def _expired(
        self, io: StoreIO, old: TableMetadata | None, updates: list[TableUpdate], made: NextManifests,
        is_gone: Callable[[str], bool],
    ) -> list[int]:  # fmt: skip
        """Ids of the older snapshots that name files which are gone or go, or are too many.

        A snapshot and the one after it differ by what the latter removed, which its manifests tell.
        """
        if old is None:
            return []
        older = sorted(old.snapshots, key=lambda one: one.sequence_number or 0)
        is_new = any(isinstance(u, AddSnapshotUpdate) for u in updates)
        whole = 0  # from here on
        for number, snapshot in enumerate(older):
            if number and any(is_gone(place) for place in removed_in(io, snapshot)):
                whole = number
        if is_new and any(is_gone(place) for place in made.removed):
            whole = len(older)
        last = len(older) if is_new else len(older) - 1  # the newest one stays
        return [one.snapshot_id for one in older[: max(min(whole, last), last + 1 - self.kept, 0)]]

    def _new_table(self, view: _View) -> TableMetadata:
        """A table without snapshots, partitioned by the columns of whose values paths are made."""
        schema = iceberg_schema(view.columns, None, 0)
        fields: list[PartitionField] = []
        kinds = zip(view.config.partition_fields, view.config.partition_kinds, strict=True)
        for name in (name for name, kind in kinds if kind == "SIMPLE"):
            source = next((field for field in schema.fields if field.name == name), None)
            if source is not None and isinstance(source.field_type, _PARTITIONS):
                number = 1000 + len(fields)
                fields.append(PartitionField(source.field_id, number, IdentityTransform(), name))
        chance = self.seams.random
        return new_table_metadata(
            schema, PartitionSpec(*fields, spec_id=0), UNSORTED_SORT_ORDER, self.base,
            {"gc.enabled": "false", "write.metadata.previous-versions-max": "10"},
            uuid.UUID(int=chance.getrandbits(128), version=4),
        )  # fmt: skip


def _with_schema(old: TableMetadata, view: _View) -> tuple[TableMetadata, list[TableUpdate], bool]:
    """The metadata with the table's columns of now, the updates that make it, and whether files that fitted
    the columns before must be looked at again."""
    before = old.schema()
    schema = iceberg_schema(view.columns, before, old.last_column_id)
    if same_columns(schema, before):
        return old, [], False
    number = max(one.schema_id for one in old.schemas) + 1
    schema = Schema(*schema.fields, schema_id=number)
    updates: list[TableUpdate] = [
        AddSchemaUpdate(schema=schema),
        SetCurrentSchemaUpdate(schema_id=number),
    ]
    return update_table_metadata(old, tuple(updates)), updates, not still_readable(schema, before)


def _summary(made: NextManifests, view: _View) -> Summary:
    changes = made.changes
    told = {
        "added-data-files": changes.added[0], "added-records": changes.added[1],
        "added-files-size": changes.added[2], "deleted-data-files": changes.gone[0],
        "deleted-records": changes.gone[1], "removed-files-size": changes.gone[2],
        "total-data-files": changes.whole[0], "total-records": changes.whole[1],
        "total-files-size": changes.whole[2], "total-delete-files": 0, "total-position-deletes": 0,
        "total-equality-deletes": 0,
    }  # fmt: skip
    operation = Operation.OVERWRITE if changes.gone[0] else Operation.APPEND
    shown = {name: str(count) for name, count in told.items() if count or name.startswith("total-")}
    return Summary(operation=operation, **shown, **{SEEN: view.seen})
