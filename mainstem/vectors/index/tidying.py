"""Removes what vector indexes no longer need: old versions, dropped indexes, and remains of dead builders.

Any number of processes do this at once, without a lock:

  1. list the names in every version's folder, and the tokens in them. A token without a fresh heartbeat is
  dead;
     remove its heartbeat
  2. then read the manifest: what it names belongs to a version
  3. remove the manifest of a version that is not needed, which ends the version; for a dropped index only if
  the
     list, read again, does not name the manifest's index
  4. remove, by name, the files of dead tokens that no version names (any more), and folders that are empty

**What is kept** of a listed index: the two newest versions, and every version that is the newest one for a
moment that the data table's cleaner retains. An older version never gives other answers, only slower ones. So
nothing is lost if a query's version is removed: the query continues with the files it has open, or searches
exactly.

**A builder that resumes** with a dead token finds its heartbeat gone after it has linked its manifest
(``building``), and removes the manifest. **A cleaner that resumes** removes names of dead tokens, which are
never reused, and manifests of versions that were superseded or whose index is gone for good. A version number
is not reused: the next index on a column continues the numbers of the dropped one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mainstem.errors import CorruptTable, MainstemError, Unavailable
from mainstem.services.claim import store_now_ms
from mainstem.services.clean_plan import CleanOptions, boundary
from mainstem.storage import paths
from mainstem.truetime.heartbeats import Heartbeats
from mainstem.vectors.index.building import builder_heartbeats
from mainstem.vectors.index.version_manifest import VectorIndex, Version
from mainstem.vectors.index.versions import read_indexes, read_version, version_numbers, versions
from mainstem.writers.context import WriterContext

_KEPT = 2
_OWNER = "vectors"


@dataclass(frozen=True)
class Tidied:
    """What ``tidy`` removed: versions, and files of any kind."""

    versions: int
    files: int

    def describe(self) -> str:
        """One line for people."""
        return f"vector indexes: {self.versions} old versions removed, {self.files:,} files"


def tidy(ctx: WriterContext) -> Tidied | None:
    """Remove what is no longer needed; None if nothing was. ``Unavailable`` for trouble with storage."""
    try:
        return _Tidying(ctx).run()
    except OSError as error:
        raise Unavailable(
            f"old files of vector indexes could not be removed: {error}; nothing needs them, the next round"
            " of services tries again",
            table=ctx.base,
        ) from error


class _Tidying:
    def __init__(self, ctx: WriterContext) -> None:
        self._ctx, self._storage = ctx, ctx.seams.storage
        self._beats: Heartbeats = builder_heartbeats(ctx)
        self._now_ms: int | None = None
        self._dead: dict[str, bool] = {}
        self._versions = self._files = 0

    def run(self) -> Tidied | None:
        storage = self._storage
        folders = map(paths.parse_vector_column, sorted(storage.names(paths.VECTOR_FILES)))
        for column_id in (found for found in folders if found is not None):
            index = next((i for i in read_indexes(storage).found if i.id == column_id), None)
            kept = set() if index is None else self._kept(index)
            for number in version_numbers(storage, column_id):
                self._folder(column_id, number, kept, newest=max(kept, default=0))
            if index is None and not storage.names(paths.vector_column(column_id)):
                storage.delete_tree(paths.vector_column(column_id))
        for token in sorted(storage.names(paths.VECTOR_BUILDERS)):
            self._is_dead(token)
        return Tidied(self._versions, self._files) if self._versions or self._files else None

    def _kept(self, index: VectorIndex) -> set[int]:
        """Numbers of the versions to keep."""
        found = versions(self._storage, index, [])
        return {version.number for version in retained(self._ctx, found)}

    def _folder(self, column_id: str, number: int, kept: Collection[int], newest: int) -> None:
        storage, folder = self._storage, paths.vector_version(column_id, number)
        names = storage.names(folder)
        parsed = {name: found for name in names if (found := paths.parse_vector_name(name)) is not None}
        dead = {token for token in sorted({found[0] for found in parsed.values()}) if self._is_dead(token)}
        damaged = False
        try:
            version = read_version(storage, column_id, number)
        except CorruptTable:
            version, damaged = None, True
        except MainstemError:  # a manifest of a later release
            return
        if damaged and number >= newest and column_id in {i.id for i in read_indexes(storage).found}:
            return  # restoring the file brings the version back; a refresh builds a newer one
        if damaged or (version is not None and self._may_go(version, kept)):
            storage.delete(paths.vector_manifest(column_id, number))
            self._versions += 1
            version = None
        named = set() if version is None else {file.name for file in version.files}
        for name, (token, _) in sorted(parsed.items()):
            if name not in named and token in dead:
                self._files += storage.delete(f"{folder}/{name}")
        if version is None and not storage.names(folder):
            storage.delete_tree(folder)

    def _may_go(self, version: Version, kept: Collection[int]) -> bool:
        """Whether a version is not needed, judged *after* its manifest was read: an index that is not listed
        by then will never be listed again."""
        listed = {index.token for index in read_indexes(self._storage).found}
        if version.index not in listed:
            return True
        return version.number not in kept and version.number < max(kept, default=0)

    def _is_dead(self, token: str) -> bool:
        """Whether a token's builder has ended or died; if so, its heartbeat is gone."""
        if token not in self._dead:
            if self._storage.stat(paths.vector_builder(token)) is None:
                self._dead[token] = True
            else:
                if self._now_ms is None:
                    self._now_ms = store_now_ms(self._ctx, _OWNER)
                self._dead[token] = self._beats.expired(token, self._now_ms)
                if self._dead[token]:
                    self._storage.delete(paths.vector_builder(token))
        return self._dead[token]


def retained(ctx: WriterContext, found: list[Version]) -> Iterator[Version]:
    """Those versions of an index (given newest first) that a retained query may use.

    The cleaner's rule decides: all versions while it retains everything, as many as it retains file versions,
    or those that were the newest at any moment since the oldest retained commit.
    """
    options = CleanOptions.from_properties({**ctx.config.raw, **ctx.given})
    limit = boundary(ctx.timeline(), options, ctx.publisher.now())
    for place, version in enumerate(found):
        if options.by_versions:
            wanted = place < options.versions
        else:
            wanted = limit is None or place == 0 or found[place - 1].view >= limit.moment
        if wanted or place < _KEPT:
            yield version
