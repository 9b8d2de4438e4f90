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

from mainstem.layout.slicing import query_slice
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from mainstem.timeline.commit_metadata import SliceBefore, WriteStat
from mainstem.writers.context import WriterContext


def note_slices_before(ctx: WriterContext, stats: Sequence[WriteStat]) -> None:
    """Set what each log file follows, if the table records change data."""
    logs = [stat for stat in stats if paths.parse_log_name(stat.file_name) is not None]
    if ctx.config.change_mode is None or not logs:
        return
    state = TableState.load(ctx.seams.storage, ctx.config)
    found: dict[tuple[str, str], SliceBefore] = {}
    for partition in sorted({stat.partition for stat in logs}):
        wanted = {stat.file_id for stat in logs if stat.partition == partition}
        names = [n for n in sorted(state.storage.names(partition)) if paths.file_id_of(n) in wanted]
        for group in state.group(partition, names):
            newest = query_slice(group, None)
            if newest is not None:
                before = SliceBefore(newest.base_instant, newest.base_file or "", tuple(newest.log_files))
                found[partition, group.file_id] = before
    for stat in logs:
        stat.follows = found.get((stat.partition, stat.file_id))
