"""What lies in a table's folders, found without mainstem's readers: names, and Avro through fastavro."""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fastavro
import pyarrow.parquet as pq

_INSTANT = re.compile(r"^(\d{17})(?:_(\d{17}))?\.([a-z]+)(?:\.(requested|inflight))?$")
_LOG = re.compile(r"^\.[^._/]+_(\d{17})\.log\.\d+_[\d-]+$")
_BASE = re.compile(r"^[\w-]+_[\d-]+_(\d{17})\.parquet$")
_NATIVE = re.compile(r"^[\w-]+_\d+-\d+-\d+_\d{17}_\d+\.(?:log|deletes)\.parquet$")
_ARCHIVE = re.compile(r"^manifest_(\d+)$")
METADATA_TIMELINE = ".hoodie/metadata/.hoodie/timeline"
_COMPLETES_AS = {
    "compaction": "commit", "logcompaction": "deltacommit", "clustering": "replacecommit",
}  # fmt: skip
#: files that a quiet table has in .hoodie/.mainstem, the one current epoch marker aside
_PERMANENT = {
    "clock", "fence/made-here", "keys-move", "keys-unique-in", "lock-identity", "locks/removal",
    "table-identity", "vector-index.properties",
}  # fmt: skip
#: of the fence and the lock of a store that renames
_MOVED_ASIDE = ("fence/swept-", "locks/wait-")
#: of the lock in an object store
_LOCK_RECORD = ".hoodie/.locks/table_lock.json"
#: and notes: of streams' batches, and of a time that left the timeline
_NOTES = ("streams/", "fence/newest-", "fence/table-")


@dataclass(frozen=True)
class Commit:
    """A completed delta commit, compaction or clustering, from its file's name and content."""

    requested: str
    completion: str
    guard: tuple[str, int, int] | None
    files: frozenset[str]
    operation: str = ""


def timeline(base: Path) -> list[tuple[str, str | None, str]]:
    """(requested, completion, action) of every timeline file; completion None while pending."""
    found = []
    for name in os.listdir(base / ".hoodie/timeline"):
        match = _INSTANT.match(name)
        if match:
            found.append((match[1], match[2], match[3]))
        else:
            assert name == "history", f"no instant's name: {name}"
    return sorted(found, key=lambda i: (i[0], i[1] or ""))


def completion_times(base: Path) -> set[str]:
    """Completion times of all instants that are visible now."""
    return {completion for _, completion, _ in timeline(base) if completion}


def metadata_timeline(base: Path) -> tuple[dict[str, str], set[str]]:
    """Of the metadata table: requested -> completion time of what is completed, and what is pending."""
    folder = base / METADATA_TIMELINE
    matches = filter(None, map(_INSTANT.match, _names(folder)))
    found = [(match[1], match[2]) for match in matches]
    done = {requested: completion for requested, completion in found if completion}
    return done, {requested for requested, _ in found} - done.keys()


def pending(base: Path) -> list[tuple[str, str]]:
    """(requested, action) of instants that are not completed."""
    files = timeline(base)
    done = {(requested, action) for requested, completion, action in files if completion}
    return sorted({(r, a) for r, c, a in files if c is None and (r, _COMPLETES_AS.get(a, a)) not in done})


def archived(base: Path) -> list[tuple[str, str, str, bytes]]:
    """(requested, completion, action, metadata) of every row of the archive's current version."""
    folder = base / ".hoodie/timeline/history"
    if not folder.is_dir():
        return []
    numbers = [int(m[1]) for m in map(_ARCHIVE.match, os.listdir(folder)) if m]
    if (folder / "_version_").exists():
        numbers = [int((folder / "_version_").read_text())]
    if not numbers:
        return []
    manifest = json.loads((folder / f"manifest_{max(numbers)}").read_text())
    columns = ["instantTime", "completionTime", "action", "metadata"]
    found = []
    for entry in manifest["files"]:
        table = pq.read_table(folder / entry["fileName"], columns=columns)
        found += zip(*table.to_pydict().values(), strict=True)
    return found


def completed(base: Path) -> dict[tuple[str, str, str], dict]:
    """(requested, completion, action) -> record of everything completed, active or archived."""
    found = {row[:3]: row[3] for row in archived(base)}
    for requested, completion, action in timeline(base):
        if completion is not None:
            path = base / f".hoodie/timeline/{requested}_{completion}.{action}"
            found[requested, completion, action] = path.read_bytes()
    return {key: next(fastavro.reader(io.BytesIO(data))) for key, data in found.items() if data}


def commits(base: Path) -> list[Commit]:
    """Completed delta commits, compactions and clusterings by requested time, active or archived."""
    found = []
    for (requested, completion, action), record in sorted(completed(base).items()):
        if action in ("deltacommit", "commit", "replacecommit"):
            guard = record["extraMetadata"].get("mainstem.stream.guard")
            stats = record["partitionToWriteStats"].values()
            files = frozenset(stat["path"] for part in stats for stat in part)
            batch = tuple(json.loads(guard)) if guard else None
            found.append(Commit(requested, completion, batch, files, record.get("operationType") or ""))
    return found


def cleaned(base: Path) -> set[str]:
    """Files that completed cleans say they removed."""
    found = set()
    for (_, _, action), record in completed(base).items():
        if action == "clean":
            for partition, done in record["partitionMetadata"].items():
                names = (path.rsplit("/", 1)[-1] for path in done["deletePathPatterns"])
                found.update(f"{partition}/{name}" if partition else name for name in names)
    return found


def _files(folder: Path) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        for name in names:
            yield os.path.relpath(os.path.join(parent, name), folder)


def own_files(base: Path) -> set[str]:
    """Files below .hoodie/.mainstem."""
    return set(_files(base / ".hoodie/.mainstem"))


def data_files(base: Path) -> set[str]:
    """Data files of all partitions, relative to the table; other files must be partition metafiles."""
    found = set()
    for path in _files(base):
        folder, _, name = path.rpartition("/")
        if path.startswith(".hoodie/"):
            continue
        if name == ".hoodie_partition_metadata":
            text = (base / path).read_text("utf-8")
            depth = len(folder.split("/")) if folder else 0
            assert f"partitionDepth={depth}\n" in text, f"half-written {path}: {text!r}"
        else:
            known = _LOG.match(name) or _NATIVE.match(name) or _BASE.match(name)
            assert known, f"no data file of the table: {path}"
            found.add(path)
    return found


def age(base: Path) -> None:
    """Make heartbeats, private files and savepoints that were begun an hour old, as if everybody who left
    them were long dead; of a store's objects what waits for a day."""
    past = time.time() - 3_600
    for tried in (base / ".hoodie/.mainstem").glob("probe-*"):
        os.utime(tried, (past - 86_400, past - 86_400))
    for begun in (base / ".hoodie/timeline").glob("*.savepoint.inflight"):
        os.utime(begun, (past, past))
    for waiting in (base / METADATA_TIMELINE).glob("*.*.*"):
        os.utime(waiting, (past, past))
    builders = "metadata/vector_index/.builders"
    for folder in (".heartbeat", ".mainstem/locks", ".mainstem/prepared", builders):
        for name in _files(base / ".hoodie" / folder):
            os.utime(base / ".hoodie" / folder / name, (past, past))
    for displaced in (base / ".hoodie/.mainstem/locks").glob("gone-*"):  # where files move, swept after a day
        os.utime(displaced, (past - 86_400, past - 86_400))
    if (base / ".hoodie/lock").exists():
        os.utime(base / ".hoodie/lock", (past, past))
    record = base / _LOCK_RECORD
    if record.exists():
        record.write_text(json.dumps({**json.loads(record.read_text()), "validUntil": int(past * 1000)}))


def _is_blank(base: Path, name: str) -> bool:
    path = base / ".hoodie/.mainstem" / name
    return path.parent.name == "committables" and not path.read_bytes().strip()


def leftovers(base: Path, *, renames: bool = False) -> list[str]:
    """What a table whose writers have all ended, and were cleaned up after, must not hold. ``renames``: of a
    store whose fence moves its files, where what nobody comes back for waits for a day."""
    found = [f"pending {instant}" for instant in pending(base)]
    found += [f"pending in the metadata table {t}" for t in metadata_timeline(base)[1]]
    named = [path for commit in commits(base) for path in commit.files]
    found += [f"named twice {p}" for p in set(named) if named.count(p) > 1]
    on_disk = data_files(base)
    found += [f"orphan {p}" for p in on_disk - set(named)]
    found += [f"missing {p}" for p in set(named) - on_disk - cleaned(base)]
    rows = [row[:3] for row in archived(base)]
    found += [f"archived twice {r}" for r in set(rows) if rows.count(r) > 1]
    found += [f"archived and active {r}" for r in set(rows) & set(timeline(base))]
    found += [f"heartbeat {n}" for n in _names(base / ".hoodie/.heartbeat")]
    found += [f"markers {n}" for n in _names(base / ".hoodie/.temp")]
    found += ["the lock file"] if _is_locked(base) else []
    own = {name for name in own_files(base) - _PERMANENT if not name.startswith(_NOTES)}
    markers = {name for name in own if name.startswith("fence/epoch-") or name == "gate.json"}
    if renames:
        own = {name for name in own if not name.startswith(_MOVED_ASIDE)}
    if "gate.json" in markers:  # in an object store parts of a sink's newest batch stay, without rows
        own = {name for name in own if not _is_blank(base, name)}
    own = {name for name in own if not _is_a_living_ones(base, name)}
    found += [f"own file {n}" for n in own - markers]
    if len(markers) != 1 and not renames:
        found.append(f"epoch markers {sorted(markers)}")
    return sorted(found)


def _is_a_living_ones(base: Path, name: str) -> bool:
    """Whether it is the file with which a process that lives takes the lock, between two turns."""
    if not name.startswith("locks/idle-"):
        return False
    try:
        with open(base / ".hoodie/.mainstem" / name, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # it has its OS lock, or was removed meanwhile
        return True
    return False


def _is_locked(base: Path) -> bool:
    if not (base / _LOCK_RECORD).exists():
        return (base / ".hoodie/lock").exists()
    record = json.loads((base / _LOCK_RECORD).read_text())
    return not record["expired"] and record["validUntil"] > time.time() * 1000


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []
