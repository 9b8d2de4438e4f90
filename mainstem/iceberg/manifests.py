"""Manifests of the next snapshot: those of the one before, less the files that went, plus those that came.

A manifest none of whose files went is taken over as it is. Others are written anew without them, with a note
of what went; new files get manifests of their own. While there are many small manifests they are put
together. One manifest is in memory at a time, of a bounded number of entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from mainstem.errors import CorruptTable, MainstemError
from mainstem.iceberg.store_io import StoreIO
from mainstem.limits import ICEBERG_MANIFEST_ENTRIES
from mainstem.storage import paths

SMALL, MANY = ICEBERG_MANIFEST_ENTRIES // 10, 50


@dataclass
class Changes:
    """What a snapshot changes, and what it holds then: files, rows, bytes."""

    added: list[int] = field(default_factory=lambda: [0, 0, 0])
    gone: list[int] = field(default_factory=lambda: [0, 0, 0])
    whole: list[int] = field(default_factory=lambda: [0, 0, 0])

    @property
    def nothing(self) -> bool:
        """Whether the snapshot is the one before."""
        return not self.added[0] and not self.gone[0]


def _count(where: list[int], file: DataFile) -> None:
    where[0] += 1
    where[1] += file.record_count
    where[2] += file.file_size_in_bytes


class NextManifests:
    """The manifests of the snapshot ``snapshot_id``, which follows ``before``. ``attempt``: see ``paths``."""

    def __init__(
        self, io: StoreIO, metadata: TableMetadata, before: Snapshot | None, snapshot_id: int, attempt: str
    ) -> None:
        self._io, self._metadata, self._before = io, metadata, before
        self._snapshot_id, self._attempt = snapshot_id, attempt
        self._writers: dict[int, tuple[ManifestWriter, int]] = {}
        self.made: list[ManifestFile] = []
        self.changes = Changes()
        #: locations of the files that went
        self.removed: list[str] = []
        self._numbers = 0

    def without(self, wanted: set[str], *, all_anew: bool = False) -> set[str]:
        """Takes over what stays of the snapshot before; returns the locations in ``wanted`` that it lacks.

        ``all_anew``: nothing of it stays, though the same file may come again.
        """
        missing = set(wanted)
        with _named("a list of manifests"):
            manifests = [] if self._before is None else self._before.manifests(self._io)
        small = [m for m in manifests if _live(m) < SMALL]
        merged = {m.manifest_path for m in small} if len(small) > MANY else set()
        for manifest in manifests:
            if not _live(manifest):
                continue  # it told what the snapshot before had lost
            with _named(manifest.manifest_path):
                entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
            stays = [not all_anew and e.data_file.file_path in missing for e in entries]
            missing.difference_update(e.data_file.file_path for e in entries if not all_anew)
            if all(stays) and manifest.manifest_path not in merged:
                self.made.append(manifest)
            else:
                self._put(entries, stays, manifest.partition_spec_id)
            for entry, kept in zip(entries, stays, strict=True):
                _count(self.changes.whole if kept else self.changes.gone, entry.data_file)
                if not kept:
                    self.removed.append(entry.data_file.file_path)
        return missing

    def _put(self, entries: Iterable[ManifestEntry], stays: Iterable[bool], spec: int) -> None:
        for entry, kept in zip(entries, stays, strict=True):
            writer = self._writer(spec)
            if kept:
                writer.existing(entry)
            else:
                writer.delete(entry)

    def add(self, file: DataFile) -> None:
        """A new file."""
        entry = ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, sequence_number=None,
            file_sequence_number=None, data_file=file,
        )  # fmt: skip
        self._writer(file.spec_id).add_entry(entry)
        _count(self.changes.added, file)
        _count(self.changes.whole, file)

    def _writer(self, spec: int) -> ManifestWriter:
        found = self._writers.pop(spec, None)
        if found is not None and found[1] >= ICEBERG_MANIFEST_ENTRIES:
            self._close(found[0])
            found = None
        writer, count = found or (self._new(self._metadata.specs()[spec], self._metadata.schema()), 0)
        self._writers[spec] = writer, count + 1
        return writer

    def _new(self, spec: PartitionSpec, schema: Schema) -> ManifestWriter:
        place = self._io.location(paths.iceberg_manifest(self._attempt, self._numbers))
        self._numbers += 1
        writer = write_manifest(2, spec, schema, self._io.new_output(place), self._snapshot_id, "deflate")
        return writer.__enter__()

    def _close(self, writer: ManifestWriter) -> None:
        writer.__exit__(None, None, None)
        self.made.append(writer.to_manifest_file())

    def close(self) -> None:
        """All manifests are whole."""
        for _, (writer, _count) in sorted(self._writers.items()):
            self._close(writer)
        self._writers.clear()

    def forget(self) -> None:
        """Removes what was written: nobody will name it. What stays behind is swept later."""
        for number in range(self._numbers):
            with suppress(OSError):
                self._io.storage.delete(paths.iceberg_manifest(self._attempt, number))
        with suppress(OSError):
            self._io.storage.delete(paths.iceberg_manifest_list(self._snapshot_id, self._attempt))


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Whatever a damaged or missing manifest makes of its reader is ``CorruptTable``."""
    try:
        yield
    except MainstemError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise
        told = " ".join(str(error).split())[:200]
        raise CorruptTable(
            f"Iceberg's metadata cannot be read ({told}): remove the folder {paths.ICEBERG} and publish"
            " again; it holds no rows",
            path=path,
        ) from error


def _live(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def removed_in(io: FileIO, snapshot: Snapshot) -> Iterator[str]:
    """Locations of the files that a snapshot removed from the one before it."""
    with _named(snapshot.manifest_list):
        manifests = snapshot.manifests(io)
    for manifest in manifests:
        if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.deleted_files_count:
            with _named(manifest.manifest_path):
                entries = manifest.fetch_manifest_entry(io, discard_deleted=False)
            for entry in entries:
                if entry.status == ManifestEntryStatus.DELETED:
                    yield entry.data_file.file_path
