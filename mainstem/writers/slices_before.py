"""What a write's log files follow, where the table records change data: its commit tells it.

Nobody looks for the rows that an append changes. A query of change data compares them with the file slice
before, and Java's takes that from the write stat: ``baseFile``, and ``logFiles`` beside the stat's own
(``HoodieAppendHandle.populateWriteStatAndFetchFileSlice``, ``HoodieCDCExtractor``). There it is the slice as
the writer saw it first; here that of just before the commit is published, so that of non-blocking writers
the later one follows the earlier one, unless both are published within a moment. Our queries go by
completion times, whatever the stat says.
"""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.storage import paths
from mainstem.timeline.commit_metadata import WriteStat
from mainstem.writers.context import WriterContext


def note_slices_before(ctx: WriterContext, stats: Sequence[WriteStat]) -> None:
    """Set what each log file follows, if the table records change data."""
    logs = [stat for stat in stats if paths.parse_log_name(stat.file_name) is not None]
    if ctx.config.change_mode is None or not logs:
        return
    assert ctx.slices_now is not None, "who opens a table for writing gives its writers a look at it"
    found = ctx.slices_now(ctx.config, sorted({(stat.partition, stat.file_id) for stat in logs}))
    for stat in logs:
        stat.follows = found.get((stat.partition, stat.file_id))
