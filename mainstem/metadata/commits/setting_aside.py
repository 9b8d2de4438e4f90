"""Setting the metadata table aside: what instants that are taken back left in it cannot be told apart.

A compaction of the metadata table holds the rows of many instants, and an index that was built holds those of
all before it. So where *completed* instants are taken back (a restore, the rollback of a commit), the
metadata table is not rolled back but built anew, as Hudi does where it cannot roll back far enough.

  [[ 1. nobody is building an index, else this is tried again
     2. all partitions leave both lists of ``hoodie.properties``, in one step, in which a property of ours
        remembers them: from here on the table has no metadata table
     3. plans that are pending on the metadata table's timeline go, and the files there of the instants that
        are taken back ]]
  4. the instants are taken back from the data table
  5. each index that the property names is built anew, its old files go; being whole takes it off the
     property (``indexing.creating``)

**When.** After the instants left the data table's timeline, durably, before any of their files goes. Nobody
who builds an index from there on can take their files for completed ones, and whoever built one before was
done, and is set aside, or is waited for.

**A crash** after 2 leaves a table without a metadata table, which everybody may read and write. What is taken
back goes on from its plan; the indexes stay on the property until they are built: by whoever goes on with
that, by the next round of services, or by a Java writer, which makes those of its own options.

**A process that was stopped and wakes up** does nothing in 2 (its ticket was swept) and removes names in 3
that hold times of instants that are gone, which are never given again.

Hudi: ``BaseHoodieWriteClient.restoreToSavepoint`` (deletes the metadata table), ``deleteMetadataTable``.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from mainstem.errors import Unavailable
from mainstem.layout.properties import TableConfig, load_config
from mainstem.layout.property_change import change_properties
from mainstem.options import REBUILD
from mainstem.options.metadata import PARTITIONS, PARTITIONS_INFLIGHT
from mainstem.publish.publisher import Guarded
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import load_timeline
from mainstem.timeline.instant import CLEAN, COMPACTION, INDEXING, LOGCOMPACTION, parse_instant
from mainstem.truetime.seams import Seams

_PLANS = (COMPACTION, LOGCOMPACTION, CLEAN)


def to_rebuild(config: TableConfig) -> tuple[str, ...]:
    """Partitions that were set aside and not built since."""
    names = config.raw.get(REBUILD, "").split(",")
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def without_rebuild(config: TableConfig, partitions: Collection[str]) -> dict[str, str | None]:
    """The change of properties that takes these off the list."""
    known = to_rebuild(config)
    left = [name for name in known if name not in partitions]
    return {} if len(left) == len(known) else {REBUILD: ",".join(left) or None}


def set_aside(seams: Seams, section: Guarded, instants: Collection[str]) -> None:
    """Steps 1 to 3, under the lock. ``instants``: requested times of what is taken back.

    Raises ``Unavailable`` while an index is being built.
    """
    storage = section.storage
    for instant in section.timeline.pending:
        if instant.action == INDEXING:
            raise Unavailable(
                f"the index action {instant.requested} is not finished, and what is taken back may be in its"
                " index: wait for it, or drop the index, then go on",
                table=storage.base,
                instant=instant.requested,
            )
    when = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(seams.clock.now_ms() / 1000))
    change_properties(section, seams.random, _nothing_listed, when)
    own = load_timeline(storage, paths.METADATA_TIMELINE)
    plans = {i.requested for i in own.pending if i.action in _PLANS}
    section.check()
    # Completed files first: what is left of an instant must not look completed.
    for name in sorted(own.names, key=lambda name: ("_" not in name, name)):
        found = parse_instant(name)
        if found is None:
            continue
        if found.requested in instants or (found.requested in plans and found.action in _PLANS):
            storage.delete(f"{paths.METADATA_TIMELINE}/{name}")
            storage.delete(paths.checksum_file(f"{paths.METADATA_TIMELINE}/{name}"))
    for name in sorted(storage.names(paths.PREPARED)):
        if name.partition("-")[0] in plans:  # of executors: their links find nothing any more
            storage.delete(f"{paths.PREPARED}/{name}")


def has_metadata_table(storage: Storage) -> bool:
    """Whether there is anything to set aside: partitions that are listed, or what is left of an attempt."""
    return bool(load_config(storage).metadata_partitions) or storage.stat(paths.METADATA_TIMELINE) is not None


def _nothing_listed(config: TableConfig) -> dict[str, str | None]:
    listed = config.metadata_partitions
    if not listed:
        return {}
    names = ",".join(dict.fromkeys([*to_rebuild(config), *listed]))
    return {PARTITIONS: "", PARTITIONS_INFLIGHT: "", REBUILD: names}
