"""``files`` of the metadata table equals the listing, at every moment, for every reader that follows Hudi's
rules.

Written from the rules, not from the production code: which log blocks count (format: 4.3), how file slices
are cut (by completion time), and how entries of one partition merge. Only the bytes of a file are decoded
with production code, which has golden tables of its own.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from mainstem.formats.hfile import open_hfile
from mainstem.formats.log_file import BlockKind, read_blocks
from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.records.flat_rows import decode
from tests.sim import plain_format as plain
from tests.sim.ledger import Ledger
from tests.sim.plain_format import TIMELINE, TimelineName
from tests.sim.sim_storage import Disk, Inode
from tests.sim.world import Violation, World

METADATA = ".hoodie/metadata"
METADATA_TIMELINE = f"{METADATA}/.hoodie/timeline"
FILES = f"{METADATA}/files"
PROPERTIES = ".hoodie/hoodie.properties"
_INITIAL = "00000000000000"

#: key -> name -> whether it is a tombstone
Entries = dict[str, dict[str, bool]]


class MetadataRules:
    """Watches the disk; ``ledger`` knows which commits stand."""

    def __init__(self, world: World, disk: Disk, ledger: Ledger) -> None:
        self._world = world
        self._disk = disk
        self._ledger = ledger
        self._read: dict[int, tuple[Inode, Entries]] = {}
        disk.watchers.append(self._event)

    def _event(self, event: str, path: str, source: str) -> None:
        folder = path.rpartition("/")[0]
        if event == "listed" or folder not in (TIMELINE, METADATA_TIMELINE):
            return
        try:
            self.check()
        except Violation as violation:
            self._world.fail(violation)
        except Exception as error:  # not to be taken for trouble of the actor that wrote
            self._world.fail(Violation("metadata table", "".join(traceback.format_exception(error))))

    def check(self) -> None:
        """Raises ``Violation`` if a reader of the metadata table would see other files than there are.

        None reads it while the table does not list it: it was set aside by a restore.
        """
        properties = bytes(self._disk.need(PROPERTIES).data).decode()
        if "\nhoodie.table.metadata.partitions=\n" in properties:
            return
        listed = self.listing()
        held = {p for c in self._ledger.commits.values() if self._ledger.stands(c.requested) for p in c.paths}
        there = {path for path in held if self._disk.exists(path)}
        if missing := there - listed:
            raise Violation("files equals listing", f"{min(missing)} is not in the metadata table")
        ghosts = listed - there - self._being_cleaned()
        going = self._being_restored()
        if ghosts := {path for path in ghosts if not any(time in path for time in going)}:
            raise Violation("files equals listing", f"the metadata table has {min(ghosts)}")

    def listing(self) -> set[str]:
        """Paths of the data files that a reader of the metadata table sees."""
        merged = self._merged()
        return {
            name if key == "." else f"{key}/{name}"
            for key, entries in merged.items()
            for name, gone in entries.items()
            if key != "__all_partitions__" and not gone
        }

    def _merged(self) -> Entries:
        done = {n.requested: n for n in self._names(METADATA_TIMELINE) if n.completion is not None}
        for row in plain.archived(self._disk, f"{METADATA_TIMELINE}/history"):
            name = TimelineName(row.requested, row.action, "completed", row.completion)
            done.setdefault(row.requested, name)
        bases = sorted(self._bases(done))
        since, base = bases[-1] if bases else ("", None)
        merged: Entries = {}
        for _, inode in sorted(self._logs(done, since), key=lambda found: found[0]):
            _merge(merged, self._entries(inode, log=True))
        if base is None:
            return merged
        whole = {key: dict(entries) for key, entries in self._entries(base, log=False).items()}
        _merge(whole, merged)
        return whole

    def _bases(self, done: dict[str, TimelineName]) -> Iterator[tuple[str, Inode]]:
        for name, inode in self._disk.folders.get(FILES, {}).items():
            instant = name.removesuffix(".hfile").rsplit("_", 1)[-1]
            if name.endswith(".hfile") and inode is not None and instant in done:
                yield instant, inode

    def _logs(self, done: dict[str, TimelineName], since: str) -> Iterator[tuple[tuple, Inode]]:
        """Log files of the newest slice whose blocks count."""
        valid = self._valid(done)
        for name, inode in self._disk.folders.get(FILES, {}).items():
            log = plain.log_file(name)
            if log is None or inode is None or log.instant not in done:
                continue  # no reader shows a log file that is not completed in the metadata table
            if log.instant in valid and (done[log.instant].completion or "") >= since:
                yield log.order, inode

    def _valid(self, done: dict[str, TimelineName]) -> set[str]:
        data = self._names(TIMELINE)
        completed = {n.requested for n in data if n.completion is not None}
        pending = {n.requested for n in data} - completed
        counted = {t for t, n in done.items() if n.action == "deltacommit" and t not in pending}
        return completed | counted | {t for t in done if t.startswith(_INITIAL)}

    def _names(self, folder: str) -> list[TimelineName]:
        names = map(plain.timeline_name, self._disk.folders.get(folder, {}))
        return [name for name in names if name is not None]

    def _entries(self, inode: Inode, *, log: bool) -> Entries:
        known = self._read.get(id(inode))
        if known is None:
            known = self._read[id(inode)] = (inode, _decoded(bytes(inode.data), log))
        return known[1]

    def _being_restored(self) -> set[str]:
        """Instants that pending restores and rollbacks take back: still completed, or just gone, and the
        metadata table not yet set aside. One that never was completed was never to be seen."""
        found: set[str] = set()
        for time, action in plain.pending(self._disk).items():
            if action == "restore":
                plan = plain.container(bytes(self._disk.need(f"{TIMELINE}/{time}.restore.requested").data))
                found |= {str(going["commitTime"]) for going in plan["instantsToRollback"]}
            elif action == "rollback":
                requested = self._disk.get(f"{TIMELINE}/{time}.rollback.requested")
                if requested is None:
                    continue  # others ended and archived it; one that stood still made its file since
                plan = plain.container(bytes(requested.data))
                found.add(str(plan["instantToRollback"]["commitTime"]))
        return found & set(self._ledger.commits)

    def _being_cleaned(self) -> set[str]:
        """Files of pending cleans: gone, and not yet taken from the metadata table."""
        found: set[str] = set()
        for time, action in plain.pending(self._disk).items():
            if action == "clean":
                plan = plain.container(bytes(self._disk.need(f"{TIMELINE}/{time}.clean.requested").data))
                for partition, files in (plan["filePathsToBeDeletedPerPartition"] or {}).items():
                    names = (str(f["filePath"]).rpartition("/")[2] for f in files)
                    found |= {f"{partition}/{name}" if partition else name for name in names}
        return found


def _decoded(data: bytes, log: bool) -> Entries:
    if log and data.startswith(b"#HUDI#"):
        blocks = [b for b in read_blocks(memoryview(data), path="log") if b.kind == BlockKind.HFILE_DATA]
        files = [block.hfile() for block in blocks]
    else:
        files = [open_hfile(memoryview(data), path="base")]
    entries: Entries = {}
    for file in files:
        keys, values = file.rows()
        for row in decode(Content.FILES, keys, values, file.info["schema"].decode()).to_pylist():
            names = entries.setdefault(row["key"], {})
            if row["name"] is not None:
                names[row["name"]] = row["deleted"]
    return entries


def _merge(older: Entries, newer: Entries) -> None:
    for key, entries in newer.items():
        names = older.setdefault(key, {})
        for name, gone in entries.items():
            if gone and names.get(name) is False:
                del names[name]  # the tombstone too
            else:
                names[name] = gone
