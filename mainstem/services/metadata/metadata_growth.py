"""A compaction of the metadata table waits until it is worth its cost.

A compaction writes every row of every file group anew, those of the record index too, however few rows
the commits since the one before added. So one that is due by the number of commits (Hudi's trigger) waits
until the rows of these commits are ``hoodie.mainstem.metadata.compact.growth.percent`` of the rows below
them, but not for more than ``PATIENCE`` times the number of commits, since every reader opens the log files
of all of them. Where somebody set the number of commits, that number alone decides, as in Hudi. Java's
readers and archivers go by the newest compaction, whenever it was.

How many rows a commit adds is taken from the newest compaction's own record: rows and log files that it
merged. It is read once per compaction and process. Nothing depends on the estimate but the time of a
compaction, so a record that cannot be read, or that another engine filled in otherwise, means: do not wait.
"""

from __future__ import annotations

from mainstem.errors import CorruptTable
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.metadata.metadata_compaction_plan import MetadataCompactionOptions
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import CommitMetadata, decode_commit
from mainstem.timeline.compaction_trigger import commits_since, is_due, last_compaction
from mainstem.timeline.instant import COMMIT
from mainstem.writers.context import WriterContext

#: times the number of commits that makes a compaction due
PATIENCE = 4


def is_worth_it(ctx: WriterContext, own: ActiveTimeline, options: MetadataCompactionOptions) -> bool:
    """Whether a compaction is due by Hudi's trigger and need not wait; ``own``: the metadata table's
    timeline."""
    if not is_due(own, options, ctx.publisher.now()):
        return False
    if not options.growth_percent:
        return True
    commits = commits_since(own, last_compaction(own, requested=False))
    return commits >= min(_enough(ctx, own, options), PATIENCE * options.delta_commits)


def _enough(ctx: WriterContext, own: ActiveTimeline, options: MetadataCompactionOptions) -> float:
    """After so many commits the metadata table has grown enough."""
    newest = max((i for i in own.completed if i.action == COMMIT), default=None, key=lambda i: i.requested)
    if newest is None:
        return 0
    name = newest.file_name
    known, per_commit = ctx.metadata_growth
    if known != name:
        path = f"{paths.METADATA_TIMELINE}/{name}"
        try:
            data = ctx.seams.storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
            per_commit = _percent_per_commit(decode_commit(data, path=path))
        except (OSError, CorruptTable):
            per_commit = float("inf")
        ctx.metadata_growth = name, per_commit
    return options.growth_percent / per_commit if per_commit else float("inf")


def _percent_per_commit(done: CommitMetadata) -> float:
    """Rows that a commit adds, in percent of the rows below; without limit if the record does not say."""
    rows = added = commits = 0
    for stats in done.stats.values():
        for stat in stats:
            found = [stat.get(n) for n in ("numWrites", "totalLogRecords", "totalLogFilesCompacted")]
            counts = [count for count in found if isinstance(count, int) and count >= 0]
            if len(counts) < len(found):
                return float("inf")
            rows, added, commits = rows + counts[0], added + counts[1], max(commits, counts[2])
    return 100 * added / commits / rows if rows and commits else float("inf")
