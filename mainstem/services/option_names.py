"""The names of all options of table services, for those who refuse what nobody reads."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping

from mainstem.errors import Invalid
from mainstem.lsm_archive import writer
from mainstem.metadata import compaction_rows
from mainstem.options import FAILED_WRITES, FAILED_WRITES_OLD
from mainstem.services import archive_plan, clean_plan, compaction_plan, log_compaction_plan
from mainstem.services.run_options import RUN_KEYS, SERVICE_PREFIXES, RunOptions

SERVICE_KEYS = frozenset(
    (
        *RUN_KEYS,
        compaction_plan.TRIGGER, compaction_plan.DELTA_COMMITS, compaction_plan.DELTA_SECONDS,
        compaction_plan.STRATEGY, compaction_plan.TARGET_IO, compaction_plan.SIZE_THRESHOLD,
        compaction_plan.COUNT_THRESHOLD, compaction_plan.MEMORY, compaction_plan.MERGE_MEMORY,
        log_compaction_plan.THRESHOLD, log_compaction_plan.BESIDE_WRITERS,
        clean_plan.POLICY, clean_plan.COMMITS_RETAINED, clean_plan.VERSIONS_RETAINED,
        clean_plan.HOURS_RETAINED, clean_plan.TRIGGER, clean_plan.MAX_COMMITS, clean_plan.INCREMENTAL,
        clean_plan.METADATA_DERIVED,
        *clean_plan.OLD_NAMES.values(),
        archive_plan.MIN_COMMITS, archive_plan.MAX_COMMITS, archive_plan.BEYOND_SAVEPOINT,
        archive_plan.BLOCK_ON_CLEAN,
        compaction_rows.DELTA_COMMITS, compaction_rows.DELTA_SECONDS, compaction_rows.TRIGGER,
        writer.BATCH_SIZE, writer.TARGET_BYTES, writer.RETAINED,
    )
)  # fmt: skip

#: Flink's names of options that have another name everywhere else
FLINK_KEYS = {
    "compaction.trigger.strategy": compaction_plan.TRIGGER,
    "compaction.delta_commits": compaction_plan.DELTA_COMMITS,
    "compaction.delta_seconds": compaction_plan.DELTA_SECONDS,
    "compaction.target_io": compaction_plan.TARGET_IO,
    "clean.policy": clean_plan.POLICY,
    "clean.retain_commits": clean_plan.COMMITS_RETAINED,
    "clean.retain_hours": clean_plan.HOURS_RETAINED,
    "clean.retain_file_versions": clean_plan.VERSIONS_RETAINED,
    "archive.min_commits": archive_plan.MIN_COMMITS,
    "archive.max_commits": archive_plan.MAX_COMMITS,
}

#: begin like options of services, and are read elsewhere
_ELSEWHERE = frozenset((FAILED_WRITES, FAILED_WRITES_OLD, "hoodie.compaction.payload.class"))


def name_meant(name: str) -> str | None:
    """The service's option of which an unknown name is a typing error, or which Flink calls so."""
    if name.startswith("hoodie.clustering."):
        return None  # Hudi's own, of the one service that is not here
    near = difflib.get_close_matches(name, sorted(SERVICE_KEYS), n=1, cutoff=0.85)
    return FLINK_KEYS.get(name) or (near[0] if near else None)


def check_service_names(names: Iterable[str]) -> None:
    """No option of a table service is ignored silently.

    Raises ``Invalid`` for a typing error and for names that only Flink has, with the name meant; warns of
    Hudi's other options of services, which have no effect here. Options of other things are not looked at.
    """
    idle = []
    for name in sorted(names):
        if name in SERVICE_KEYS or name in _ELSEWHERE:
            continue
        if name in FLINK_KEYS:
            raise Invalid(f"option {name!r} is Flink's name; here it is {FLINK_KEYS[name]!r}")
        if not name.startswith(SERVICE_PREFIXES):
            continue
        meant = name_meant(name)
        if meant or not name.startswith("hoodie."):
            hint = f"; did you mean {meant!r}?" if meant else ""
            raise Invalid(f"unknown option {name!r}{hint}")
        idle.append(name)
    if idle:
        warnings.warn(f"these options have no effect in mainstem: {', '.join(idle)}", stacklevel=4)


def check_service_values(properties: Mapping[str, str]) -> None:
    """Every option of a service has a value that it takes, whether or not the service runs.

    Raises ``Invalid`` for one that does not parse and for bounds that cannot hold together, ``Unsupported``
    for a strategy of compaction that is not there.
    """
    RunOptions.from_properties(properties)
    log_compaction_plan.LogCompactionOptions.from_properties(properties)
    compaction_rows.MetadataCompactionOptions.from_properties(properties)
    clean_plan.CleanOptions.of_metadata_table(properties)
    archive_plan.ArchiveOptions.from_properties(properties)  # compaction's and cleaning's among them
