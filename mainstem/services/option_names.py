"""The names of all options of table services, for those who refuse what nobody reads."""

from __future__ import annotations

from mainstem.lsm_archive import writer
from mainstem.services import archive_plan, clean_plan, compaction_plan, log_compaction_plan
from mainstem.services.run_options import RUN_KEYS

SERVICE_KEYS = frozenset(
    (
        *RUN_KEYS,
        compaction_plan.TRIGGER, compaction_plan.DELTA_COMMITS, compaction_plan.DELTA_SECONDS,
        compaction_plan.STRATEGY, compaction_plan.TARGET_IO, compaction_plan.SIZE_THRESHOLD,
        compaction_plan.COUNT_THRESHOLD,
        log_compaction_plan.THRESHOLD, log_compaction_plan.BESIDE_WRITERS,
        clean_plan.POLICY, clean_plan.COMMITS_RETAINED, clean_plan.VERSIONS_RETAINED,
        clean_plan.HOURS_RETAINED, clean_plan.TRIGGER, clean_plan.MAX_COMMITS, clean_plan.INCREMENTAL,
        *clean_plan.OLD_NAMES.values(),
        archive_plan.MIN_COMMITS, archive_plan.MAX_COMMITS, archive_plan.BEYOND_SAVEPOINT,
        archive_plan.BLOCK_ON_CLEAN, writer.BATCH_SIZE, writer.TARGET_BYTES, writer.RETAINED,
    )
)  # fmt: skip
