"""Writes and reads plans of clusterings: which file slices become which number of new file groups.

Hudi: ``HoodieRequestedReplaceMetadata`` with a ``HoodieClusteringPlan``, the content of a
``clustering.requested``. Paths in it are absolute; only the names of files are believed, and each must belong
to the partition beside it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mainstem.errors import CorruptTable
from mainstem.formats.avro_container import OUR_MARK, decode_container, encode_container, part
from mainstem.limits import CLUSTERING_OUTPUTS_MAX, TIMELINE_FILE_BYTES_MAX
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.storage.spellings import as_url
from mainstem.timeline.commit_metadata import VERSION_MARK, schema_text
from mainstem.timeline.instant import CLUSTERING, REQUESTED
from mainstem.timeline.plans import name_in_plan

CLUSTER = "CLUSTER"
#: Hudi's default for Spark: sorts the rows of a group, and cuts them into files by size
SORT_AND_SIZE = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
#: its class for consistent hashing: splits and merges file groups
SPLIT_AND_MERGE = (
    "org.apache.hudi.client.clustering.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
)


@dataclass(frozen=True)
class ClusteredSlice:
    """A file slice that is replaced; names are bare file names."""

    partition: str
    file_id: str
    base_file: str | None
    log_files: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[str, str]:
        """Partition and file id."""
        return self.partition, self.file_id

    @property
    def files(self) -> tuple[str, ...]:
        """Its base file, then its log files."""
        return (*([self.base_file] if self.base_file else []), *self.log_files)


@dataclass(frozen=True)
class ClusteringGroup:
    """Slices of one partition whose rows become ``outputs`` new file groups. ``notes``: texts for whoever
    executes it."""

    slices: tuple[ClusteredSlice, ...]
    outputs: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def partition(self) -> str:
        """The partition of all its slices."""
        return self.slices[0].partition


@dataclass(frozen=True)
class ClusteringPlan:
    """What a clustering replaces, and by what.

    ``strategy``: the class of Hudi's that executes it, ``params`` what that is told; ``notes``: texts for
    whoever executes it; ``keeps_meta``: rows keep their commit times; ``ours``: mainstem made the plan.
    """

    groups: tuple[ClusteringGroup, ...]
    strategy: str = SORT_AND_SIZE
    params: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    keeps_meta: bool = True
    ours: bool = True

    @cached_property
    def taken(self) -> frozenset[tuple[str, str]]:
        """(partition, file id) of the file groups that it replaces."""
        return frozenset(found.place for group in self.groups for found in group.slices)

    @property
    def replaced(self) -> dict[str, list[str]]:
        """Partition -> file ids, as its commit names them."""
        found: dict[str, list[str]] = {}
        for group in self.groups:
            found.setdefault(group.partition, []).extend(one.file_id for one in group.slices)
        return found


def encode_clustering_plan(plan: ClusteringPlan, base: str) -> bytes:
    """Bytes of a ``clustering.requested``, with absolute paths that carry a scheme, as Java expects them."""

    def absolute(partition: str, name: str) -> str:
        return posixpath.join(as_url(base), paths.in_partition(partition, name))

    groups = [
        {
            "slices": [
                {
                    "dataFilePath": absolute(one.partition, one.base_file) if one.base_file else "",
                    "deltaFilePaths": [absolute(one.partition, name) for name in one.log_files],
                    "fileId": one.file_id,
                    "partitionPath": one.partition,
                    "bootstrapFilePath": "",
                    "version": 1,
                }
                for one in group.slices
            ],
            "metrics": dict(group.metrics),
            "numOutputFileGroups": group.outputs,
            "extraMetadata": dict(group.notes) or None,
            "version": 1,
        }
        for group in plan.groups
    ]
    record = {
        "operationType": CLUSTER,
        "clusteringPlan": {
            "inputGroups": groups,
            "strategy": {
                "strategyClassName": plan.strategy,
                "strategyParams": dict(plan.params),
                "version": 1,
            },
            "extraMetadata": dict(plan.notes),
            "version": 1,
            "preserveHoodieMetadata": plan.keeps_meta,
            "missingSchedulePartitions": [],
        },
        "extraMetadata": {},
        "version": 1,
    }
    return encode_container(schema_text("HoodieRequestedReplaceMetadata"), record, VERSION_MARK)


def load_clustering_plan(storage: Storage, requested: str) -> ClusteringPlan | None:
    """The plan of the clustering requested at ``requested``; None for an empty one, whose planner died.

    Raises ``FileNotFoundError`` if it is gone, ``CorruptTable`` if it does not read or names other files.
    """
    path = paths.timeline_file(f"{requested}.{CLUSTERING}.{REQUESTED}")
    data = storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
    return decode_clustering_plan(data, path=path) if data else None


def decode_clustering_plan(data: bytes, *, path: str) -> ClusteringPlan:
    """The plan in these bytes. Raises as ``load_clustering_plan``."""
    record, header = decode_container(data, path=path)
    plan = part(record.get("clusteringPlan"), dict, path)
    strategy = part(plan.get("strategy"), dict, path)
    keeps = plan.get("preserveHoodieMetadata")
    return ClusteringPlan(
        tuple(_group(part(raw, dict, path), path) for raw in part(plan.get("inputGroups"), list, path)),
        part(strategy.get("strategyClassName"), str, path),
        _texts(strategy.get("strategyParams"), path),
        _texts(plan.get("extraMetadata"), path),
        keeps is None or bool(keeps),
        OUR_MARK in header,
    )


def _texts(found: Any, path: str) -> dict[str, str]:
    return {str(k): str(v) for k, v in part(found, dict, path).items() if v is not None}


def _group(raw: dict[str, Any], path: str) -> ClusteringGroup:
    slices = tuple(_slice(part(one, dict, path), path) for one in part(raw.get("slices"), list, path))
    outputs = raw.get("numOutputFileGroups")
    if not slices or len({one.partition for one in slices}) > 1:
        raise CorruptTable("a group of the clustering plan has no partition, or several", path=path)
    if not isinstance(outputs, int) or not 1 <= outputs <= CLUSTERING_OUTPUTS_MAX:
        raise CorruptTable(
            f"a group of the clustering plan becomes {outputs!r} file groups, expected 1 to"
            f" {CLUSTERING_OUTPUTS_MAX:,}",
            path=path,
        )
    notes = raw.get("extraMetadata")
    return ClusteringGroup(slices, outputs, notes={} if notes is None else _texts(notes, path))


def _slice(raw: dict[str, Any], path: str) -> ClusteredSlice:
    partition = part(raw.get("partitionPath"), str, path)
    if partition:
        paths.inside(partition, source=path)
    file_id = part(raw.get("fileId"), str, path)
    given = part(raw.get("dataFilePath"), str, path)
    base = name_in_plan(given, partition, path) if given else None
    named = [str(found) for found in part(raw.get("deltaFilePaths"), list, path)]
    logs = tuple(name_in_plan(found, partition, path) for found in named)
    if base is not None and paths.parse_base_name(base) is None:
        raise CorruptTable(f"the clustering plan names {base!r}, no base file", path=path)
    for name in logs:
        if paths.parse_log_name(name) is None:
            raise CorruptTable(f"the clustering plan names {name!r}, no log file", path=path)
    found = ClusteredSlice(partition, file_id, base, logs)
    for name in found.files:
        if paths.file_id_of(name) != file_id:
            raise CorruptTable(
                f"the clustering plan names {name!r} for the file group {file_id!r}", path=path
            )
    if not found.files or len(set(found.files)) < len(found.files):
        raise CorruptTable(
            f"the clustering plan names no file of {file_id!r}, or one twice", path=path
        )
    return found
