"""Writes and reads index actions: plan (HoodieIndexPlan) and metadata (HoodieIndexCommitMetadata).

Both hold the same list: the partitions of the metadata table to build, and the last instant of the
contiguous completed timeline at planning. Partition names become folder names, so a name that Hudi could not
have chosen is refused (``HoodieIndexer``, RFC-45).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mainstem.errors import CorruptTable
from mainstem.formats.avro_container import decode_container, encode_container, part
from mainstem.limits import FILE_NAME_BYTES_MAX, TIMELINE_FILE_BYTES_MAX
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import VERSION_MARK, schema_text
from mainstem.timeline.instant import INDEXING, REQUESTED

_PARTITION = re.compile(r"^[^\x00-\x20/\\.,\x7f][^\x00-\x20/\\,\x7f]*\Z")
_VERSION = 1


@dataclass(frozen=True)
class IndexBuild:
    """One partition of the metadata table that an index action builds.

    ``upto``: the last instant of the contiguous completed timeline at planning; ``extra``: whatever the
    planner adds (Java: nothing).
    """

    partition: str
    upto: str
    extra: Mapping[str, str] = field(default_factory=dict)


def encode_index_plan(builds: Sequence[IndexBuild]) -> bytes:
    """Bytes of ``.indexing.requested``."""
    record = {"version": _VERSION, "indexPartitionInfos": [_info(b) for b in builds]}
    return encode_container(schema_text("HoodieIndexPlan"), record, VERSION_MARK)


def encode_index_metadata(builds: Sequence[IndexBuild]) -> bytes:
    """Bytes of a completed ``.indexing``; Java repeats the plan's list in it."""
    record = {
        "version": _VERSION,
        "operationType": None,
        "indexPartitionInfos": [_info(b) for b in builds],
    }
    return encode_container(schema_text("HoodieIndexCommitMetadata"), record, VERSION_MARK)


def _info(build: IndexBuild) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "metadataPartitionPath": build.partition,
        "indexUptoInstant": build.upto,
        "extraMetadata": dict(build.extra),
    }


def decode_index_builds(data: bytes, *, path: str) -> list[IndexBuild]:
    """The builds in a plan or in the metadata of a completed action; [] for an empty file.

    Raises ``CorruptTable`` for damage, and for invalid partition names or instant times.
    """
    if not data:
        return []
    record, _ = decode_container(data, path=path)
    builds = []
    for raw in part(record.get("indexPartitionInfos"), list, path):
        info = part(raw, dict, path)
        name = part(info.get("metadataPartitionPath"), str, path)
        if not is_partition_name(name):
            raise CorruptTable(f"an index action of the partition {name[:80]!r}, which is no name", path=path)
        upto = part(info.get("indexUptoInstant"), str, path)
        if upto and not (upto.isascii() and upto.isdigit() and 14 <= len(upto) <= 20):
            raise CorruptTable(f"an index up to {upto[:80]!r}, expected an instant time", path=path)
        extra = part(info.get("extraMetadata"), dict, path)
        builds.append(IndexBuild(name, upto, {str(k): part(v, str, path) for k, v in extra.items()}))
    return builds


def is_partition_name(name: str) -> bool:
    """Whether this may name a partition of the metadata table.

    It must be one folder name without a leading dot, and without commas and blanks: ``hoodie.properties``
    lists the partitions separated by commas.
    """
    return bool(_PARTITION.match(name)) and len(name.encode("utf-8", "surrogatepass")) <= FILE_NAME_BYTES_MAX


def load_index_plan(storage: Storage, requested: str) -> list[IndexBuild] | None:
    """The plan of the index action requested at ``requested``; None if the file is gone."""
    path = paths.timeline_file(f"{requested}.{INDEXING}.{REQUESTED}")
    try:
        data = storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    return decode_index_builds(data, path=path)


def pending_index_actions(timeline: ActiveTimeline) -> list[str]:
    """Requested times of index actions that are planned but not completed, oldest first."""
    return [i.requested for i in timeline.pending_services if i.action == INDEXING]
