"""What the transactions of one open table share: settings, publisher, heartbeats, guard index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.forks import Mutex
from mainstem.layout.properties import TableConfig, load_config
from mainstem.layout.stored_bucket_rules import check_without_rules, stored_rules
from mainstem.limits import PROPERTIES_BYTES_MAX
from mainstem.lsm_archive.reader import Archive
from mainstem.metadata.commits.expression_rows import check_expressions
from mainstem.metadata.commits.known_groups import KnownGroups
from mainstem.metadata.records.recent_rows import RecentRows
from mainstem.options import FSYNC, WriterOptions
from mainstem.options.locks import TABLE_BASE
from mainstem.options.tables import LOCAL_ZONE, TIMEZONE
from mainstem.publish.fence import Fence
from mainstem.publish.first_note import first_note
from mainstem.publish.publisher import Publisher
from mainstem.publish.table_identity import check_table
from mainstem.storage import paths, spellings
from mainstem.storage.links import has_links
from mainstem.storage.protocol import Storage
from mainstem.storage.renames import has_renames
from mainstem.storage.swaps import has_swaps
from mainstem.storage.unwaited import Unwaited
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import DELTACOMMIT, REPLACECOMMIT, REQUESTED
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.heartbeats import Heartbeats
from mainstem.truetime.instant_times import InstantTimes
from mainstem.truetime.seams import Seams
from mainstem.writers.stream_guard import GuardIndex

if TYPE_CHECKING:
    from mainstem.timeline.commit_metadata import SliceBefore, WriteStat
    from mainstem.writers.placed_rows import KeyPlaces
    from mainstem.writers.write_spec import WriteSpec

_Group = tuple[str, str]


@dataclass
class WriterContext:
    """One table opened for writing by one process; safe to share between threads."""

    seams: Seams
    config: TableConfig
    options: WriterOptions
    buckets: int
    publisher: Publisher
    heartbeats: Heartbeats
    guards: GuardIndex
    #: of the table that was opened (``publish.table_identity``); None: whichever is there
    identity: str | None = None
    #: the caller's options (they complete what the table's properties leave open)
    given: Mapping[str, str] = field(default_factory=dict)
    #: when dead writers were last looked for (monotonic ms), None = never
    last_rollback_check_ms: float | None = None
    mutex: Mutex = field(default_factory=Mutex)
    #: partition -> buckets whose constant file id was seen there (see ``BucketAppender``)
    known_buckets: dict[str, set[int]] = field(default_factory=dict)
    #: partitions whose metafile was seen
    known_partitions: set[str] = field(default_factory=set)
    #: file groups of the indexes, as commits saw them under the lock
    known_groups: KnownGroups = field(default_factory=KnownGroups)
    #: rows that this process wrote to the metadata table
    recent_rows: RecentRows = field(default_factory=RecentRows)
    #: file of this process's latest commit and the schema in it: the next one need not read it again
    own_schema: tuple[str, str] = ("", "")
    #: stored record keys are written as this process writes them (``check_key_encoding``)
    keys_agreed: bool = False
    #: the spec of each operation's latest write, without an instant: the next one is planned by it
    planned: dict[str, WriteSpec] = field(default_factory=dict)
    #: called with the timeline after each commit of this process; must not raise
    after_commit: Callable[[ActiveTimeline], None] | None = None
    #: called with the name of its completed file after each write that this process committed; must not raise
    told: Callable[[str], None] | None = None
    #: called after an instant of this process that changed base files; must not raise
    base_files_changed: Callable[[], None] | None = None
    #: called before data files are deleted that queries of earlier moments read, with what says so of a path
    #: and whether the removal can wait: then it may raise
    before_removal: Callable[[Callable[[str], bool], bool], None] | None = None
    #: called with what a transaction wrote before it is published; raises ``ValidationFailed``
    validate: Callable[[WriteSpec, Sequence[WriteStat]], None] | None = None
    #: on a table without buckets: looks where record keys live now
    look_for_keys: Callable[[], KeyPlaces] | None = None
    #: the slices that queries read now of some file groups, (partition, file id)
    slices_now: Callable[[TableConfig, Sequence[_Group]], dict[_Group, SliceBefore]] | None = None
    #: where a look reads many file groups: by an engine's tasks (``readers.queries.key_places.Elsewhere``)
    look_elsewhere: Callable[..., Any] | None = None
    #: the table's properties as this process read them last, and under which section
    last_read: tuple[object, TableConfig] | None = None
    #: folder of a table -> when its instants may be old enough to archive (monotonic ms)
    archiving_rests_until: dict[str, float] = field(default_factory=dict)
    #: newest compaction of the metadata table, and what a commit adds (``services.metadata.metadata_growth``)
    metadata_growth: tuple[str, float] = ("", 0.0)
    #: what was found to mean the same as ``config``
    agreed: TableConfig | None = None
    #: instants of resizes that came to nothing
    ended_resizes: set[str] = field(default_factory=set)
    #: the listing up to which nobody gave partitions bucket counts of their own
    counts_seen: ActiveTimeline | None = None

    def __post_init__(self) -> None:
        #: what this process removes after its commits
        self.unwaited = Unwaited(self.seams.storage)

    @property
    def base(self) -> str:
        return self.seams.storage.base

    @property
    def written_base(self) -> str:
        """The base path in records: as Java jobs spell it, if we are told, otherwise as the table was opened.

        Java deletes the files of a plan that a dead process left by the paths in it. Raises ``Invalid`` if we
        are told of another place.
        """
        spelt = TABLE_BASE.read(self.given).rstrip("/") or self.base
        if not spellings.same_place(spelt, self.base):
            raise Invalid(f"{TABLE_BASE}={spelt!r} is another place than {self.base}", table=self.base)
        return spelt

    @property
    def services_sync(self) -> bool:
        """Whether services make durable what they write, before they remove what others had made durable.

        A process that gives up durability (``hoodie.mainstem.fsync=false``) does so for its own writes only;
        a table that was created with it does so for all.
        """
        return self.options.fsync or FSYNC.read(self.config.raw)

    def synced(self) -> AbstractContextManager[None]:
        """A block for a service's work: if ``services_sync`` is set, everything written in it is durable."""
        always = getattr(self.seams.storage, "synced", None)  # the simulator's store always syncs
        return always() if always is not None and self.services_sync else nullcontext()

    def timeline(self) -> ActiveTimeline:
        """A listing outside the lock. Raises ``Unavailable`` for trouble with storage."""
        try:
            return self.publisher.timeline()
        except OSError as error:
            raise Unavailable(
                f"the timeline cannot be listed: {error}; nothing was begun, try again", table=self.base
            ) from error

    def own_schema_in(self, timeline: ActiveTimeline) -> str | None:
        """The schema of this process's latest commit, if no completed instant was requested later."""
        name, text = self.own_schema
        return text if name and timeline.newest_completed == name else None

    def others_may_write(self) -> bool:
        """Whether the table is not declared exclusive to mainstem, or another engine was seen anyway."""
        return self.publisher.foreign_seen() or not self.config.exclusive

    def only_ours(self) -> bool:
        """Whether the table is declared exclusive to mainstem, and no other engine was seen."""
        return self.config.exclusive and not self.publisher.foreign_seen()

    def check_same_table(self) -> None:
        """Check, outside the lock, that this is still the table that was opened.

        Call it before relying on something remembered of the table. Raises ``TableReplaced``, ``OSError``.
        """
        check_table(self.seams.storage, self.identity)

    def properties(self, section: object = None) -> TableConfig:
        """``hoodie.properties`` as they are now. In one section under the lock they are read only once."""
        if section is None or self.last_read is None or self.last_read[0] is not section:
            read = getattr(section, "beside", None)
            self.last_read = (section, read if isinstance(read, TableConfig) else self.read_properties())
        return self.last_read[1]

    def read_properties(self) -> TableConfig:
        """``hoodie.properties``, read now: for ``Publisher.publish(beside=...)``."""
        return load_config(self.seams.storage)

    @property
    def newest_properties(self) -> TableConfig:
        """``hoodie.properties`` as read last, for uses that an older state does not harm."""
        return self.config if self.last_read is None else self.last_read[1]

    def follow_resize(self, buckets: int) -> None:
        """Place rows by this bucket count from the next transaction on."""
        self.buckets = buckets
        self.planned.clear()

    def buckets_now(self, found: TableConfig, timeline: ActiveTimeline) -> int:
        """The bucket count of a table with buckets that these properties and this timeline tell, both as seen
        under the lock (``layout.bucket_resizes``)."""
        resize = found.open_resize
        if resize is None or resize.instant in self.ended_resizes:
            return found.completed_by(self.given).buckets or self.buckets
        if timeline.completion_of(resize.instant, DELTACOMMIT) is not None:
            return resize.after
        if timeline.has(f"{resize.instant}.{DELTACOMMIT}.{REQUESTED}"):
            return resize.before
        if Archive.load(self.seams.storage, self.config.history).completion_time(resize.instant) is not None:
            return resize.after
        self.ended_resizes.add(resize.instant)
        return resize.before

    def reread_config(self, section: object = None, *, native_logs: bool | None = None) -> None:
        """Check that the table's properties are still those that the transaction was planned for.

        Called when a write is planned and, with its ``section``, under the lock. The list of indexes may
        change (``writers.publish_with_metadata``), bucket counts of partitions may not. The table may have
        been upgraded to version 10 meanwhile, or brought back to 9: what is planned from now on is of its
        version. ``native_logs``: whether the transaction wrote its log files by version 10. Raises
        ``Unsupported`` or ``Invalid``, naming the changed properties.
        """
        found = self.properties(section)
        self.follow_version(found)
        if native_logs is not None:
            self._check_written(found, native_logs)
        if self.config.bucket_rules is not None:
            stored_rules(self.seams.storage, self.config)
        if found is self.agreed:
            return
        now = found.completed_by(self.given)
        changed = self.config.changed(now)
        if not changed:
            self.agreed = found
            if self.look_for_keys is None and now.buckets is not None and now.buckets != self.buckets:
                self.follow_resize(now.buckets)
            return
        now.check_writable(self.base)
        raise Invalid(
            "the table's properties changed while this transaction was open ("
            + "; ".join(changed)
            + "): nothing was published; open the table again and write the data again",
            table=self.base,
        )

    def follow_version(self, found: TableConfig) -> None:
        """Go by the version in these properties: the table may have another one meanwhile, whose log files
        hold the same otherwise."""
        config = self.config.following(found)
        if config is not self.config:
            config.check_writable(self.base)
            self.config = config
            self.planned.clear()

    def _check_written(self, found: TableConfig, native: bool) -> None:
        """Under the lock: whether readers of the table as it is now read the transaction's log files.

        Those of version 10 also read files of blocks, except in the layout whose files are sorted by key,
        which no table gets by an upgrade. Raises ``Invalid``.
        """
        if found.native_logs if native else not found.sorted_files:
            return
        raise Invalid(
            f"the table has version {found.version} since this transaction began, and readers of that version"
            f" would miss the rows in its log files, which are {'native' if native else 'files of blocks'}."
            " Nothing was published; write the data again",
            table=self.base,
        )

    def check_counts(self, timeline: ActiveTimeline) -> None:
        """Check under the lock that no other engine gave the partitions of this table bucket counts of their
        own, where it was made with one count. Raises ``Invalid``.

        That leaves a file, and an instant that replaces file groups. So the file is looked for after such an
        instant came or went (one that was pending may be archived by now); and at first, and where some may
        have been archived since, unless the table is exclusive.
        """
        if self.look_for_keys is not None or self.config.uses_rings or self.config.bucket_rules is not None:
            return
        seen, self.counts_seen = self.counts_seen, None
        if seen is None or not timeline.has(seen.newest_completed):
            unknown = not self.config.exclusive
        else:
            changed = timeline.since(seen) | seen.since(timeline)
            unknown = any(f".{REPLACECOMMIT}" in name for name in changed)
        if unknown:
            check_without_rules(self.seams.storage)
        self.counts_seen = timeline


def open_context(
    seams: Seams,
    config: TableConfig,
    options: WriterOptions,
    *,
    buckets: int,
    given: Mapping[str, str] | None = None,
    identity: str | None = None,
    fence: Fence,
    lock_free: bool = False,
) -> WriterContext:
    """Put the parts together. ``config`` already includes ``given``; ``identity``: the table's;
    ``lock_free``: see ``Publisher``.

    Raises ``Invalid`` for a LOCAL table without a zone.
    """
    base = seams.storage.base
    config.check_writable(base)
    check_expressions(seams.storage, config)
    if not any(has(seams.storage) for has in (has_links, has_renames, has_swaps)):
        raise Unsupported(
            "the storage has no atomic hard links, no renames that do not overwrite and no conditional puts,"
            " one of which the completion fence needs",
            table=base,
        )
    zone = config.zone(options.zone)
    if zone is None:
        raise Invalid(
            "the table's instants are in the local zone of its writers"
            f" ({TIMEZONE}=LOCAL): give that zone as {LOCAL_ZONE}, for example"
            " Europe/Paris or UTC. A wrong zone would order instants wrongly",
            table=base,
        )
    if not config.is_utc:
        _agree_on_zone(seams.storage, str(options.zone))
    publisher = Publisher(
        seams,
        InstantTimes(zone, options.ahead_ms_max),
        fence,
        skew=ClockSkew(options.skew_ms, lags=config.version >= 9),
        exclusive=config.exclusive,
        lock_free=lock_free,
    )
    heartbeats = heartbeats_of(seams, options)
    return WriterContext(
        seams, config, options, buckets, publisher, heartbeats, GuardIndex(seams.storage, config.history),
        identity=identity, given=dict(given or {}),
    )  # fmt: skip


def _agree_on_zone(storage: Storage, zone: str) -> None:
    """Make all mainstem writers of a LOCAL table use one zone: the first one notes it, others must agree."""
    found = first_note(storage, paths.ZONE_NOTE, zone, max_bytes=PROPERTIES_BYTES_MAX)
    if found != zone:
        raise Invalid(
            f"{LOCAL_ZONE}={zone!r}, but other writers of the table were given {found!r}: with two zones its"
            " instants would be in no order. Give all writers, Java's too, one zone by one name (if that note"
            f" is wrong and no writer is open, delete {paths.ZONE_NOTE})",
            table=storage.base,
        )


def heartbeats_of(
    seams: Seams, options: WriterOptions, path: Callable[[str], str] = paths.heartbeat
) -> Heartbeats:
    """The heartbeats of a process, by its options. ``path``: see ``Heartbeats``."""
    return Heartbeats(
        seams.storage, seams.clock, options.heartbeat_ms, options.heartbeat_misses, path,
        table=options.table_heartbeat,
    )  # fmt: skip
