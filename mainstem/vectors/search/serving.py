"""Chooses the version of an index that serves the searches of one open table: the newest complete one.

1. The list of indexes is read, and the folder of the column's versions is listed. If both show what they
showed
   before, the version of the last search serves.
2. Otherwise versions are opened, newest first, until one is complete: all of its files exist and match its
manifest.
   Every complete version gives correct answers for every snapshot, so an older one costs time (more rows are
   fresh), never rows.
3. A damaged version is remembered by sizes and times of its manifest and of the damaged file, so the next
search
   checks only these, and a repaired file is noticed. A process warns once about each version. Trouble with
   storage, and a missing library of an engine, may be temporary: they are not remembered. If the library is
   missing, nothing of the version is read.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mainstem.errors import CorruptTable, Invalid, MainstemError, Unsupported
from mainstem.storage import paths
from mainstem.storage.files import file_info
from mainstem.storage.links import has_links
from mainstem.storage.protocol import FileInfo, Storage
from mainstem.vectors.engines import engine
from mainstem.vectors.index.version_manifest import VectorIndex, Version
from mainstem.vectors.index.versions import list_digest, numbers_of, read_indexes, read_version
from mainstem.vectors.search.opened_version import Opened

_ATTEMPTS = 4
# Versions about which this process has warned; above this many, the set is cleared.
_WARNED_MAX = 10_000
_warned: set[tuple[object, ...]] = set()


@dataclass(frozen=True)
class Served:
    """An index that can be searched, or ``why`` there is none. ``lost``: the list of indexes is damaged, so
    the column's metric is unknown. ``passed``: newer versions that cannot be used, and why. ``listed``: the
    list's digest at the time of the look-up."""

    index: VectorIndex | None = None
    opened: Opened | None = None
    why: str = ""
    lost: MainstemError | None = None
    passed: tuple[str, ...] = ()
    listed: str = ""


@dataclass(frozen=True)
class _Damage:
    """A damaged version: why, and how its manifest and the damaged file looked before it was opened."""

    why: str
    signs: dict[str, FileInfo | None]


class Serving:
    """What serves the searches of one open table, by column. Not safe for several threads."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._served: dict[str, Served] = {}
        self._damaged: dict[tuple[str, int], _Damage] = {}
        self._numbers: dict[str, tuple[list[str], list[int]]] = {}

    def of(self, column: str) -> Served:
        """The newest complete version of the column's index, opened.

        Equal version numbers do not prove that it is the last search's version: an index with another metric
        may have the same ones, if the metadata table's folder was removed or the table recreated at its path.
        So the list must be unchanged too.
        """
        known, listed = self._served.get(column), list_digest(self._storage)
        if known is not None and known.listed == listed and self._serves_on(known):
            return known
        for _ in range(_ATTEMPTS):
            try:
                found = self._newest(column, known)
                break
            except FileNotFoundError:  # cleaned since it was listed, so there is a newer one
                found = Served(why="versions of the index were removed while they were opened")
        found = self._served[column] = replace(found, listed=listed)
        return found

    def _serves_on(self, known: Served) -> bool:
        """Whether nothing newer exists that may be complete."""
        if known.index is None or (known.opened is None and not known.passed):
            return False
        numbers = self._listed(known.index.id)
        if known.opened is not None and known.opened.version.number in numbers:
            numbers = numbers[: numbers.index(known.opened.version.number)]
        elif known.opened is not None:
            return False
        return len(numbers) == len(known.passed) and all(
            self._damage(known.index.id, number) is not None for number in numbers
        )

    def _listed(self, column_id: str) -> list[int]:
        """Numbers of the versions listed now, newest first; unchanged names are not parsed again."""
        names = self._storage.names(paths.vector_column(column_id))
        known = self._numbers.get(column_id)
        if known is None or known[0] != names:
            known = self._numbers[column_id] = names, numbers_of(names)
        return known[1]

    def _damage(self, column_id: str, number: int) -> _Damage | None:
        """The remembered damage of a version, if its files look as they did then."""
        found = self._damaged.get((column_id, number))
        if found is None or any(file_info(self._storage, path) != sign for path, sign in found.signs.items()):
            return None
        return found

    def _newest(self, column: str, known: Served | None) -> Served:
        try:
            index = read_indexes(self._storage).of_column(column)
        except CorruptTable as error:
            why = f"the list of indexes cannot be used: {error}"
            warnings.warn(f"vector search of {column!r}: {why}; all vectors are compared", stacklevel=2)
            return Served(why=why, lost=error)
        if index is None:
            return Served(why="the column has no vector index")
        passed: dict[int, str] = {}
        opened = next(self._whole(index, known, passed), None)
        told = tuple(f"version {number} cannot be used: {why}" for number, why in passed.items())
        self._warn(index, opened, passed)
        if opened is not None:
            return Served(index, opened, passed=told)
        why = "the index has no version yet" if not told else f"the index cannot be used: {told[0]}"
        return Served(index, why=why, passed=told)

    def _whole(self, index: VectorIndex, known: Served | None, passed: dict[int, str]) -> Iterator[Opened]:
        """Complete versions, newest first; adds to ``passed`` why others cannot serve."""
        storage = self._storage
        numbers = self._listed(index.id)
        for column_id, number in list(self._damaged):
            if column_id == index.id and number not in numbers:
                del self._damaged[column_id, number]
        for number in numbers:
            damage = self._damage(index.id, number)
            if damage is not None:
                passed[number] = damage.why
                continue
            manifest = paths.vector_manifest(index.id, number)
            signs = {manifest: file_info(storage, manifest)}
            try:
                version = read_version(storage, index.id, number)
                if version is None or version.index != index.token:
                    continue
                if known is not None and known.opened is not None and known.opened.version == version:
                    yield known.opened
                else:
                    if has_links(storage):
                        signs |= {path: file_info(storage, path) for path in map(version.path, version.files)}
                    yield self._opened(version)
            except (CorruptTable, Unsupported) as error:
                bad = getattr(error, "path", "") or manifest
                if bad not in signs and not has_links(storage):  # each look is a request: only at this one
                    signs[bad] = file_info(storage, bad)
                self._damaged[index.id, number] = _Damage(
                    str(error), {path: signs.get(path) for path in (manifest, bad)}
                )
                passed[number] = str(error)
            except Invalid as error:
                passed[number] = str(error)
            except FileNotFoundError:
                raise
            except OSError as error:
                passed[number] = str(error)

    def _opened(self, version: Version) -> Opened:
        """The opened version. ``FileNotFoundError`` if it was cleaned; ``CorruptTable`` if only a file is
        gone, since a cleaner removes the manifest first. ``Invalid`` if the engine's library is missing."""
        engine(version.engine).check(version.options)
        try:
            return Opened.load(self._storage, version)
        except FileNotFoundError as error:
            if read_version(self._storage, version.column_id, version.number) != version:
                raise
            every = map(version.path, version.files)
            path = next((path for path in every if file_info(self._storage, path) is None), "")
            raise CorruptTable(
                "a file of a vector index is missing; searches do without this version, refresh the index to"
                f" build a new one{'' if path else f' ({error})'}",
                path=path,
            ) from None

    def _warn(self, index: VectorIndex, opened: Opened | None, passed: dict[int, str]) -> None:
        instead = "all vectors are compared instead"
        if opened is not None:
            instead = f"version {opened.version.number} is used instead"
        for number, why in passed.items():
            manifest = paths.vector_manifest(index.id, number)
            key = (self._storage.base, manifest, file_info(self._storage, manifest))
            if key in _warned:
                continue
            if len(_warned) >= _WARNED_MAX:
                _warned.clear()
            _warned.add(key)
            warnings.warn(
                f"version {number} of the vector index of {index.column!r} cannot be used, {instead}"
                f" (refresh_index({index.name!r}) makes a new one): {why}",
                stacklevel=2,
            )
