"""One open table, shared by its facets. ``open_table`` and ``create_table`` make it.

It holds storage, clock and lock (``Seams``), the properties as read, and the options that the process gave.
It creates the ``WriterContext`` of transactions and services. Before that, it checks everything that could
make this process place rows differently from other writers: options, bucket count, lock and identity.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mainstem.api.real_seams import check_writable, fence_of, needs_no_lock, note_lock, usual_services
from mainstem.errors import Invalid, MainstemError, TableReplaced, Unavailable, naming
from mainstem.layout.properties import TableConfig, load_config
from mainstem.metadata.metadata_partitions import has_metadata
from mainstem.options import DATA_SKIPPING, METADATA, WriterOptions
from mainstem.options.catalogs import HIVE_SYNC, ICEBERG_CATALOG, ICEBERG_NAME, META_SYNC
from mainstem.options.locks import TABLE_BASE
from mainstem.options.placing import (
    BUCKETS,
    INDEX_TYPE,
    KEY_ENCODING,
    NEW_ENCODING,
    PARTITION_FIELDS,
    PARTITION_OPTION,
    RECORD_KEY_FIELDS,
    RECORD_KEY_OPTION,
)
from mainstem.options.reading import DAMAGED
from mainstem.options.tables import (
    AUTO_UPGRADE,
    CDC_ENABLED,
    CREATE_SCHEMA,
    NATIVE_LOGS_FROM,
    ORDERING_FIELDS,
    ORDERING_OPTION,
    PARTIAL_UPDATES,
    STORAGE_LAYOUT,
    TABLE_NAME,
    TABLE_NAME_OPTION,
    TABLE_VERSION,
    TABLE_VERSION_OPTION,
)
from mainstem.options.writing import CALLBACK_ON, VALIDATORS
from mainstem.publish.table_identity import check_table, note_identity
from mainstem.storage import paths
from mainstem.truetime.seams import Seams

if TYPE_CHECKING:
    from mainstem.iceberg.after_changes import IcebergAfterChanges
    from mainstem.layout.key_index import KeyIndex
    from mainstem.readers.skipping.chooser import Use
    from mainstem.services.after_commit import AfterCommits
    from mainstem.services.progress import Progress
    from mainstem.services.runner import Result
    from mainstem.timeline.active import ActiveTimeline
    from mainstem.timeline.commit_metadata import SliceBefore
    from mainstem.writers.context import WriterContext
    from mainstem.writers.stream_positions import Positions

    AfterCommit = Callable[[ActiveTimeline], None]


class OpenedTable:
    """Storage, clock, lock, properties and options of one open table; shared by all its facets.

    ``identity``: which table was opened (``publish.table_identity``); None until a table of another engine
    gets a note.
    """

    def __init__(
        self, seams: Seams, config: TableConfig, given: Mapping[str, str], identity: str | None
    ) -> None:
        self.seams = seams
        self.config = config
        self.given = dict(given)
        self.identity = identity
        self._writer: WriterContext | None = None

    @property
    def path(self) -> str:
        """Base path."""
        return self.seams.storage.base

    @property
    def damaged(self) -> str:
        """What a read does about a damaged file: ``error`` or ``skip``. Raises ``Invalid`` for others."""
        return DAMAGED.read(self.given).lower()

    @property
    def use(self) -> Use:
        """Whether reads leave files out by indexes, and whether they ask the metadata table."""
        from mainstem.readers.skipping.chooser import Use

        return Use(DATA_SKIPPING.read(self.given), METADATA.read(self.given))

    def writer_context(self) -> WriterContext:
        """What transactions and services of this process share; checks that the table can be written."""
        if self._writer is None:
            self._upgrade_if_asked()
            ctx = self._opened_for_writing(self.config.completed_by(self.given))
            self._arrange_services(ctx)
            self._arrange_callback(ctx)
            self._arrange_validators(ctx)
            self._arrange_iceberg(ctx)
            self._writer = ctx
        return self._writer

    def read_version(self) -> int:
        """The table's version, read now."""
        return load_config(self.seams.storage).version

    def open_again(self) -> None:
        """Go by the table's properties as they are now, from the next call on."""
        self.config, self._writer = load_config(self.seams.storage), None

    def _upgrade_if_asked(self) -> None:
        """Before the first write of a process: upgrade the table to the version of the job, as Hudi's writers
        do (``UpgradeDowngrade.needsUpgrade``)."""
        if TABLE_VERSION_OPTION not in self.given:
            return
        version = TABLE_VERSION.read({TABLE_VERSION: self.given[TABLE_VERSION_OPTION]})
        if version <= self.config.version:
            return
        if not AUTO_UPGRADE.read({**self.config.raw, **self.given}):
            warnings.warn(
                f"{TABLE_VERSION_OPTION}={version}, {AUTO_UPGRADE}=false: the table is written by its version"
                f" {self.config.version}",
                stacklevel=5,
            )
            return
        from mainstem.services.version_change import change_version

        change_version(self.version_context(version), version)
        self.open_again()

    def version_context(self, version: int) -> WriterContext:
        """As ``writer_context``, for giving the table this version: also where it records change data, which
        is written from version 10 on only. It writes no rows."""
        config = self.config.completed_by(self.given)
        upgraded = (config.version, version) == (NATIVE_LOGS_FROM - 1, NATIVE_LOGS_FROM)
        if upgraded and config.change_mode is not None:
            config = replace(config, raw={**config.raw, CDC_ENABLED: "false"})
        return self._opened_for_writing(config)

    def index_context(self) -> WriterContext:
        """As ``writer_context``, also where the table has indexes that mainstem does not maintain."""
        from mainstem.indexing.index_lists import without
        return self._opened_for_writing(without(self.config.completed_by(self.given)))

    def stream_positions(self, source: str) -> Positions:
        """Where a stream that is guarded by its offsets stands (``writers.stream_positions``).

        Raises ``CorruptTable`` for a damaged commit or archive, ``Unavailable``.
        """
        ctx = self.writer_context()
        with naming(self.path, "the positions of a stream cannot be read", "try again"):
            ctx.check_same_table()
            timeline = ctx.timeline()
            ctx.guards.positions.prepare(source, timeline)
            return ctx.guards.positions.newest(source, timeline)

    def _opened_for_writing(self, config: TableConfig) -> WriterContext:
        from mainstem.formats.base_file import BaseFileFormat
        from mainstem.layout.foreign_tables import check_buckets, check_key_index
        from mainstem.layout.key_index import table_index
        from mainstem.merge.rules import merge_rules
        from mainstem.writers.context import open_context

        try:
            options = WriterOptions.from_properties(self.given, self.config.raw)
            BaseFileFormat.from_properties(self.given)
            config.check_writable(self.path)
            merge_rules(config.raw)
            self._check_agreement()
            check_writable(self.seams)
            check_table(self.seams.storage, self.identity)
            index = table_index({**config.raw, **self.given})
            told: Mapping[str, str] = {}
            if index is None:
                told = check_buckets(self.seams.storage, config)
                config = config.completed_by(told)
            else:
                check_key_index(self.seams.storage, config, index, told=INDEX_TYPE in self.config.raw)
            note_lock(self.seams)
            self._identify()
            ctx = open_context(
                self.seams,
                config,
                options,
                buckets=(config.buckets or 0) if index is None else 0,
                given={**self.given, **told},
                identity=self.identity,
                fence=fence_of(self.seams, self.identity, exclusive=config.exclusive),
                lock_free=needs_no_lock(self.seams),
            )
            ctx.slices_now = self._slices_now
            if index is not None:
                self._find_keys(ctx, index)
            return ctx
        except MainstemError as error:
            error.table = error.table or self.path
            raise
        except OSError as error:
            raise Unavailable(
                f"the table cannot be opened for writing: {error}; try again", table=self.path
            ) from error

    def _slices_now(
        self, config: TableConfig, groups: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], SliceBefore]:
        from mainstem.readers.planning.slices_followed import slices_now

        return slices_now(self.seams.storage, config, groups)

    def _find_keys(self, ctx: WriterContext, index: KeyIndex) -> None:
        """Make the transactions of a table without buckets look where their keys live."""
        from mainstem.readers.queries.key_places import KeyPlaces, StoredKeys
        from mainstem.writers.file_sizes import Filling

        stored, filling = StoredKeys(), Filling.by({**self.config.raw, **self.given})
        alone = ctx.only_ours
        ctx.look_for_keys = lambda: KeyPlaces(
            self.seams.storage, ctx.read_properties(), index, stored, filling.small_bytes, filling.log_ratio,
            alone, ctx.look_elsewhere, ctx.recent_rows,
        )

    def _identify(self) -> None:
        """Give a table of another engine or an older release its note, if it is the one that was opened."""
        if self.identity is not None:
            return
        identity = note_identity(self.seams.storage, self.seams.random)
        now = load_config(self.seams.storage)
        changed = self.config.following(now).changed(now)
        if changed or now.create_schema != self.config.create_schema:
            what = "; ".join(changed) or f"{CREATE_SCHEMA} differs"
            raise TableReplaced(
                f"{paths.PROPERTIES} is not what it was when the table was opened ({what}): another table was"
                " made at its path, or this one changed. Nothing was written; open the table again",
                table=self.path,
            )
        self.identity = identity

    def _check_agreement(self) -> None:
        """An option that decides where rows land must not contradict the table."""
        from mainstem.layout.key_generator import named_kind
        from mainstem.layout.properties import DECISIVE

        aliases = {
            RECORD_KEY_OPTION: RECORD_KEY_FIELDS,
            PARTITION_OPTION: PARTITION_FIELDS,
            ORDERING_OPTION: ORDERING_FIELDS,
            TABLE_NAME_OPTION: TABLE_NAME,
            TABLE_VERSION_OPTION: TABLE_VERSION,
        }
        config = self.config
        if STORAGE_LAYOUT.read(self.given).upper() == "LSM_TREE" and not config.sorted_files:
            raise Invalid(
                f"{STORAGE_LAYOUT}=lsm_tree contradicts the table, whose files are not sorted; drop the"
                " option or write to another table",
                table=self.path,
            )
        if config.version > 8 and config.single_field_complex and NEW_ENCODING.read(self.given):
            warnings.warn(
                f"{NEW_ENCODING} has no effect on a table of version {config.version}, as in Hudi: its keys"
                f" are written as {KEY_ENCODING} or, without it, 'field:value'",
                stacklevel=4,
            )
        kind = named_kind(self.given)
        if kind not in (None, self.config.key_generator):
            raise Invalid(
                f"the options name the key generator {kind}, but the table has"
                f" {self.config.key_generator}; drop the option or write to another table",
                table=self.path,
            )
        for key, value in self.given.items():
            name = aliases.get(key, key)
            if name in DECISIVE and name in self.config.raw:
                found = self.config.raw[name].strip()
                given = value.strip()
                if name == BUCKETS and self.config.was_resized_from(given):
                    continue
                if key == TABLE_VERSION_OPTION and given.isdecimal() and int(given) > int(found):
                    continue  # the first write upgrades it, or writes by the table's
                if name == TABLE_VERSION and self.config.was_upgraded_from(given):
                    continue
                # One mode is in capitals or wrong, everything else may be spelt in any case.
                if given != found and (name == PARTIAL_UPDATES or given.upper() != found.upper()):
                    raise Invalid(
                        f"{key}={value!r} contradicts the table, whose {name} is {found!r}; drop the"
                        " option or write to another table",
                        table=self.path,
                    )

    def _arrange_callback(self, ctx: WriterContext) -> None:
        """Make the commits of this process known to whom the options name."""
        properties = {**ctx.config.raw, **ctx.given}
        if CALLBACK_ON.read(properties):
            from mainstem.writers.commit_callback import CommitCallback

            ctx.told = CommitCallback.of(self.seams.storage, properties, ctx.config.name)
        if META_SYNC.read(ctx.given) or HIVE_SYNC.read(ctx.given):
            from mainstem.catalogs.sync_after_commit import SyncAfterCommit

            given = dict(ctx.given)
            ctx.told = SyncAfterCommit.of(self.seams.storage, self.config, given, ctx.written_base, ctx.told)

    def iceberg(self) -> IcebergAfterChanges:
        """Iceberg's metadata beside the table. Raises ``Invalid`` for options that do not parse."""
        from mainstem.iceberg.after_changes import IcebergAfterChanges

        properties = {**self.config.raw, **self.given}
        return IcebergAfterChanges.of(self.seams, properties, TABLE_BASE.read(self.given) or self.path)

    def _arrange_iceberg(self, ctx: WriterContext) -> None:
        """Make Iceberg's metadata follow base files where options ask for it, and never name gone ones."""
        iceberg = self.iceberg()
        ctx.before_removal = iceberg.before_removal
        place = ICEBERG_CATALOG.read(iceberg.given)
        if iceberg.is_asked and place:
            from mainstem.catalogs.iceberg_names import NamedAfterPublications
            from mainstem.catalogs.known import store_of

            name = ICEBERG_NAME.read(iceberg.given) or self.config.name
            iceberg.told = NamedAfterPublications(store_of(place), name)
        if iceberg.is_asked:
            ctx.base_files_changed = iceberg.changed

    def _arrange_validators(self, ctx: WriterContext) -> None:
        """Make commits of this process pass the validators that the options name."""
        properties = {**ctx.config.raw, **ctx.given}
        if VALIDATORS.read(properties):
            from mainstem.services.pre_commit import Validators

            found = Validators.of(properties, self.path)
            if found is not None:
                ctx.validate = partial(found, self.seams.storage, ctx.config)

    def _arrange_services(self, ctx: WriterContext) -> None:
        """Make commits run or wake the services that the options ask for (``services.service_switches``), and
        those of a metadata table that is made while the table is open."""
        from mainstem.services.service_switches import METADATA, RunOptions

        options = RunOptions.from_properties({**usual_services(), **ctx.config.raw, **ctx.given})
        gently: AfterCommit | None = None
        if options.gently:
            from mainstem.services.beside_commits import BesideCommits

            gently = BesideCommits.of(ctx, options.gently, _tend_vectors)

        def arrange() -> AfterCommits:
            from mainstem.services.after_commit import AfterCommits

            asked = AfterCommits(ctx, options, _tend_vectors)
            ctx.after_commit = asked if gently is None else _both(asked, gently)
            return asked

        def look(timeline: ActiveTimeline) -> None:
            if has_metadata(ctx.newest_properties.raw):
                arrange()(timeline)

        if options.at_commits:
            arrange()
        elif METADATA in options.off or METADATA in options.gently:
            ctx.after_commit = gently
        else:
            ctx.after_commit = look if gently is None else _both(look, gently)


def _both(first: AfterCommit, then: AfterCommit) -> AfterCommit:
    def both(timeline: ActiveTimeline) -> None:
        first(timeline)
        then(timeline)

    return both


def _tend_vectors(ctx: WriterContext, if_due: bool, progress: Progress) -> Iterable[Result]:
    from mainstem.vectors.index import lifecycle  # not loaded by writers that never get here

    return lifecycle.tend(ctx, if_due, progress)
