"""Builds a new version of a timeline's archive, from private files to the switch.

These are steps 1, 2, 4 and 7 of ``services.archiving``, which explains their order and what happens if a
process crashes or is suspended between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from mainstem.errors import CorruptTable, LeaseLost, Unavailable
from mainstem.limits import MANIFEST_BYTES_MAX
from mainstem.lsm_archive.data_file import DataFile
from mainstem.lsm_archive.manifest import Manifest, encode_manifest, read_manifest
from mainstem.lsm_archive.names import (
    VERSION_FILE,
    ArchiveFile,
    data_name,
    manifest_name,
    parse_data_name,
    parse_manifest_name,
)
from mainstem.lsm_archive.writer import (
    SCHEMA,
    ArchiveRow,
    LevelOptions,
    Merge,
    next_merge,
    rows_table,
    write_data_file,
)
from mainstem.publish.publisher import Guarded
from mainstem.publish.staging import delete_quietly, prepare, private_name, put
from mainstem.storage import paths
from mainstem.storage.folders import make_folder
from mainstem.timeline.compaction_trigger import INITIAL
from mainstem.truetime.instant_times import instant_text, parse_wall
from mainstem.writers.context import WriterContext

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "archive"


@dataclass(frozen=True)
class Switch:
    """A new version whose data files are in place.

    ``pointer``: private file that holds its number; ``manifest`` and ``content``: its manifest as a private
    file and as bytes; ``new``: names of the new data files.
    """

    version: int
    pointer: str
    manifest: str
    content: bytes
    new: tuple[str, ...]


@dataclass
class NewVersion:
    """A version being built on top of ``manifest``.

    ``folder``: the archive's; ``timeline``: the folder of the instants to archive; ``merges``: number of
    levels merged for it.
    """

    ctx: WriterContext
    folder: str
    timeline: str
    manifest: Manifest
    levels: LevelOptions
    merges: int = 0
    #: ``private``: all private files; ``named``: final name -> private file of each new data file
    private: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)

    def discard(self) -> None:
        """Remove the private files; published data files and manifests keep their public names."""
        for path in self.private:
            delete_quietly(self.ctx.seams.storage, path)

    # -- before the lock -----------------------------------------------------------------------------

    def make(self, rows: Sequence[ArchiveRow]) -> Switch:
        """Put the version's files in place; the version counts only after the switch."""
        storage, manifest = self.ctx.seams.storage, self.manifest
        make_folder(storage, self.folder)
        taken = set(storage.names(self.folder))
        requested = [row.requested for row in rows]
        name = _free_name(min(requested), max(requested), 0, taken)
        files = list(manifest.files)
        made = {name: self._write(name, [rows_table(list(rows))])}
        files.append(made[name])
        level = 0
        while (merge := next_merge(files, level, self.levels)) is not None:
            merged = _free_name(merge.first, merge.last, level + 1, taken | set(made))
            made[merged] = self._write(merged, self._merged(merge))
            files = [f for f in files if f not in merge.sources] + [made[merged]]
            level += 1
            self.merges += 1
        numbers = [n for n in map(parse_manifest_name, taken) if n is not None]
        return self._link(max([manifest.version, *numbers]) + 1, files)

    def _write(self, name: str, tables: Iterable[pa.Table]) -> ArchiveFile:
        """A private file with this content, durable."""
        ctx = self.ctx
        path = private_name(ctx.seams.random, PREFIX)
        sink = ctx.seams.storage.upload(path)
        self.private.append(path)
        try:
            write_data_file(tables, sink)
        finally:
            ctx.seams.storage.settle([sink], [], durable=ctx.services_sync)
        self.named[name] = path
        file = parse_data_name(name, sink.size)
        assert file is not None
        return file

    def _merged(self, merge: Merge) -> Iterator[pa.Table]:
        """Rows of the sources, oldest file first; a source of this round is still private."""
        for source in merge.sources:
            for path in self.private:  # a large merge takes long: others must not sweep these
                self.ctx.seams.storage.renew(path)
            path = self.named.get(source.name) or f"{self.folder}/{source.name}"
            opened = DataFile(self.ctx.seams.storage, path)
            try:
                yield from opened.batches(SCHEMA)
            finally:
                opened.close()

    def _link(self, version: int, files: list[ArchiveFile]) -> Switch:
        """Give the files of the new version their names; the version does not count before the switch."""
        ctx, storage = self.ctx, self.ctx.seams.storage
        content = encode_manifest(files)
        if len(content) > MANIFEST_BYTES_MAX:
            raise CorruptTable(
                f"the archive has {len(files)} files, too many for a manifest", path=self.folder
            )
        pointer = prepare(ctx.seams, PREFIX, str(version).encode())
        self.private.append(pointer)
        manifest = prepare(ctx.seams, PREFIX, content)
        self.private.append(manifest)
        known = {f.name for f in self.manifest.files}
        new = [f.name for f in files if f.name not in known]
        for name in new:
            put(storage, self.named[name], f"{self.folder}/{name}")
        switch = Switch(version, pointer, manifest, content, tuple(new))
        if storage.stat(f"{self.folder}/{VERSION_FILE}") is not None:
            put(storage, manifest, f"{self.folder}/{manifest_name(version)}")
        storage.settle([], [self.timeline, self.folder], durable=True)
        return switch

    # -- under the lock ------------------------------------------------------------------------------

    def switch(self, section: Guarded, switch: Switch) -> bool:
        """Step 4; False if another archiver has taken the manifest's name meanwhile."""
        storage = self.ctx.seams.storage
        target = f"{self.folder}/{VERSION_FILE}"
        manifest = f"{self.folder}/{manifest_name(switch.version)}"
        if storage.stat(target) is None:
            # Then readers take the newest manifest: it appears here, behind the fence, and is the switch.
            if storage.stat(manifest) is not None:
                return False
            section.replace(switch.manifest, manifest)
            storage.settle([], [self.folder], durable=True)
        elif storage.read(manifest, max_bytes=MANIFEST_BYTES_MAX) != switch.content:
            return False
        try:
            section.replace(switch.pointer, target)
        except LeaseLost:
            raise
        except OSError as error:
            # Only we use this number, so reading it back tells whether the rename took effect.
            if storage.read(target, max_bytes=4096) != str(switch.version).encode():
                raise Unavailable(
                    f"the archive's version could not be switched: {error}; nothing was deleted, run"
                    " archiving again",
                    table=storage.base,
                ) from error
        storage.settle([], [self.folder], durable=True)
        return True

    def forget_old(self, section: Guarded, version: int) -> None:
        """Delete manifests older than the retained ones, then data files that no manifest names any more."""
        storage = self.ctx.seams.storage
        names = storage.names(self.folder)
        numbers = sorted(n for n in map(parse_manifest_name, names) if n is not None)
        old = [n for n in numbers if n <= version]
        kept = self.levels.retained + self.merges
        going = old[: max(0, len(old) - kept)]
        if not going:
            return
        section.check()
        for number in going:
            self._delete(f"{self.folder}/{manifest_name(number)}", names)
        needed: set[str] = set()
        for number in numbers[len(going) :]:
            try:
                needed.update(f.name for f in read_manifest(storage, self.folder, number).files)
            except CorruptTable:
                return  # left by an archiver that died; its files are unknown: wait until it is gone
        for name in sorted(names):
            if parse_data_name(name, 0) is not None and name not in needed:
                self._delete(f"{self.folder}/{name}", names)

    def _delete(self, path: str, names: Sequence[str]) -> None:
        storage = self.ctx.seams.storage
        storage.delete(path)
        checksum = paths.checksum_file(path)
        if checksum.rpartition("/")[2] in names:
            storage.delete(checksum)


def _free_name(first: str, last: str, level: int, taken: set[str]) -> str:
    """A name that is not taken.

    Files of a crashed run are neither overwritten nor trusted. The range in a name may be wider than the
    file's content, so the end of the range moves on until the name is free.
    """
    while (name := data_name(first, last, level)) in taken:
        # The first instants of a metadata table are numbers, not times.
        later = None if last.startswith(INITIAL) else parse_wall(last) + timedelta(milliseconds=1)
        last = f"{int(last) + 1:017}" if later is None else instant_text(later)
    return name
