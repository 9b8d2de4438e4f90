"""Versions of Iceberg's metadata, published as Iceberg's own Hadoop tables publish theirs.

``metadata/vN.metadata.json`` is created exclusively: of several publishers one makes version N, the others
look again. ``version-hint.text`` says N to engines that do not list; it may lag behind, never points to a
version that is not there. Old versions and what no version names any more are removed after a grace, for
those who read them.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from mainstem.errors import CorruptTable, Invalid
from mainstem.iceberg import SEEN
from mainstem.iceberg.store_io import StoreIO
from mainstem.limits import ICEBERG_FILE_BYTES_MAX
from mainstem.publish.staging import create_once
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

GRACE_MS = 3_600_000
VERSIONS_KEPT = 10


@dataclass(frozen=True)
class Version:
    """One version of the metadata. ``number``: 0 and ``metadata`` None where there is none yet."""

    number: int
    metadata: TableMetadata | None

    @property
    def seen(self) -> str:
        """The newest time on the table's timeline that it shows; "" without one."""
        return "" if self.metadata is None else self.metadata.properties.get(SEEN, "")


def newest_number(storage: Storage) -> int:
    """Number of the newest version, 0 if there is none."""
    found = (paths.parse_iceberg_version(name) for name in storage.names(paths.ICEBERG))
    return max((number for number in found if number is not None), default=0)


def read_newest(storage: Storage) -> Version:
    """Raises ``CorruptTable`` for a damaged one, ``Invalid`` for one that mainstem did not publish."""
    number = newest_number(storage)
    if not number:
        return Version(0, None)
    path = paths.iceberg_version(number)
    data = storage.read(path, max_bytes=ICEBERG_FILE_BYTES_MAX)
    try:
        metadata = TableMetadataUtil.parse_raw(data.decode())
    except (ValidationError, ValueError) as error:
        told = " ".join(str(error).split())[:200]
        raise CorruptTable(
            f"Iceberg's metadata does not parse ({told}): remove the folder {paths.ICEBERG}"
            " and publish again; it holds no rows",
            path=path,
        ) from error
    if SEEN not in metadata.properties:
        raise Invalid(
            f"{path} is an Iceberg table that mainstem did not publish: move the folder {paths.ICEBERG} away,"
            " or leave Iceberg to who made it",
            table=storage.base,
        )
    return Version(number, metadata)


def put_next(storage: Storage, version: Version) -> bool:
    """Publishes a version; False if there is one of that number. Then the hint follows."""
    assert version.metadata is not None
    data = version.metadata.model_dump_json().encode()
    if not create_once(storage, paths.iceberg_version(version.number), data, durable=True):
        return False
    storage.settle([], [paths.ICEBERG], durable=True)
    put_hint(storage, version.number)
    return True


def put_hint(storage: Storage, number: int) -> None:
    """Lets the hint say the newest version, also where another publisher was quicker."""
    while True:
        storage.put(paths.ICEBERG_HINT, str(number).encode(), durable=True)
        newest = newest_number(storage)
        if newest <= number:
            return
        number = newest


def tidy(io: StoreIO, version: Version) -> int:
    """Removes files that no kept version names and that are older than the grace; how many."""
    assert version.metadata is not None
    storage = io.storage
    entries = storage.entries(paths.ICEBERG)
    now = max((e.mtime_ms for e in entries), default=0)
    old = [e.name for e in entries if now - e.mtime_ms > GRACE_MS]
    numbered = ((name, paths.parse_iceberg_version(name)) for name in old)
    versions = [name for name, number in numbered if number and number <= version.number - VERSIONS_KEPT]
    manifests = {name for name in old if paths.is_iceberg_manifest(name)}
    if manifests:
        for snapshot in version.metadata.snapshots:
            manifests.discard(snapshot.manifest_list.rpartition("/")[2])
            for manifest in snapshot.manifests(io):
                manifests.discard(manifest.manifest_path.rpartition("/")[2])
    gone = sorted([*versions, *manifests])
    with suppress(OSError):  # the next publication finds them again
        storage.delete_all(f"{paths.ICEBERG}/{name}" for name in gone)
    return len(gone)
