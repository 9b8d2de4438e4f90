"""Sets the metadata table aside when what instants left in it cannot be taken back one by one.

A compaction of the metadata table holds rows of many instants, and a built index those of all instants before
it. So if *completed* instants are taken back (by a restore, or the rollback of a commit), the metadata table
is not rolled back but rebuilt, as in Hudi where it cannot roll back far enough.

  [[ 1. no index is being built, else this is tried again later
     2. all partitions leave both lists of ``hoodie.properties``, in one step; a property of mainstem's
     remembers
        them. From here on the table has no metadata table
     3. pending plans on the metadata table's timeline are removed, and the files there of the instants being
        taken back ]]
  4. the instants are taken back from the data table
  5. each index that the property names is rebuilt, after its old files are removed; once it is complete, it
  is
     taken off the property (``indexing.creating``)

**When.** After the instants have left the data table's timeline, durably, and before any of their files is
removed. An index built from then on cannot take their files for completed ones; an index built before is
either finished, and set aside, or waited for.

**A crash** after 2 leaves a table without a metadata table, which everyone may read and write. The rollback
or restore resumes from its plan. The indexes stay on the property until they are rebuilt: when that is
resumed, by the next round of services, or by a Java writer, which builds those of its own options.

**A process that stalls and resumes** does nothing in 2 (its ticket was swept). In 3 it removes names with
times of instants that are gone, which are never reused.

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
    """Partitions that were set aside and have not been rebuilt since."""
    names = config.raw.get(REBUILD, "").split(",")
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def without_rebuild(config: TableConfig, partitions: Collection[str]) -> dict[str, str | None]:
    """The change of properties that takes these partitions off the list."""
    known = to_rebuild(config)
    left = [name for name in known if name not in partitions]
    return {} if len(left) == len(known) else {REBUILD: ",".join(left) or None}


def set_aside(seams: Seams, section: Guarded, instants: Collection[str]) -> None:
    """Steps 1 to 3, under the lock. ``instants``: requested times of the instants being taken back.

    Raises ``Unavailable`` while an index is being built.
    """
    storage = section.storage
    for instant in section.timeline.pending:
        if instant.action == INDEXING:
            raise Unavailable(
                f"the indexing action {instant.requested} is not finished, and its index may include instants"
                " that are being rolled back: wait for it, or drop the index, then try again",
                table=storage.base,
                instant=instant.requested,
            )
    when = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(seams.clock.now_ms() / 1000))
    change_properties(section, seams.random, _nothing_listed, when)
    own = load_timeline(storage, paths.METADATA_TIMELINE)
    plans = {i.requested for i in own.pending if i.action in _PLANS}
    section.check()
    # Completed files first: the rest of an instant must not look completed.
    for name in sorted(own.names, key=lambda name: ("_" not in name, name)):
        found = parse_instant(name)
        if found is None:
            continue
        if found.requested in instants or (found.requested in plans and found.action in _PLANS):
            storage.delete(f"{paths.METADATA_TIMELINE}/{name}")
            storage.delete(paths.checksum_file(f"{paths.METADATA_TIMELINE}/{name}"))
    for name in sorted(storage.names(paths.PREPARED)):
        if name.partition("-")[0] in plans:  # executors' private files: they can no longer be linked
            storage.delete(f"{paths.PREPARED}/{name}")


def has_metadata_table(storage: Storage) -> bool:
    """Whether there is anything to set aside: listed partitions, or remains of an earlier attempt."""
    return bool(load_config(storage).metadata_partitions) or storage.stat(paths.METADATA_TIMELINE) is not None


def _nothing_listed(config: TableConfig) -> dict[str, str | None]:
    listed = config.metadata_partitions
    if not listed:
        return {}
    names = ",".join(dict.fromkeys([*to_rebuild(config), *listed]))
    return {PARTITIONS: "", PARTITIONS_INFLIGHT: "", REBUILD: names}
