"""The executor of plans, shared by compaction, log compaction and the metadata table's compaction.

  1. [[ lock: the plan, made of what is completed now -> publish t.<planned>.requested ]]    ``publish_plan``
  2. a heartbeat on the plan's time, so that no other live process executes it    ``services.claim.claimed``
  3. remove what a dead attempt of another engine left; t.<planned>.inflight              ``Execution.begin``
  4. for each file: private file, a look at the plan, its place                   ``planned_files.make_file``
  5. [[ lock: is the plan still ours to complete? -> publish t_c.<completed> ]]        ``Execution.complete``
  6. remove the plan's private files and markers

A service defines what it plans, what each file holds, and what must still hold in 5. Cleaning and restoring,
which make no files, use only 1, 2 and 5 (``publish_plan``, ``publish_end``).

**Why any number of processes may do it at once.** The name of a new file follows from plan and file group
alone, and its rows from the plan's files alone. So it does not matter who makes it or how often: the first
one stays, and every other executor finds it. A late executor changes nothing: in 4, once its private file is
whole, it checks that the plan is still pending, and then links the file into place. The process that
completes the plan removes all its private files afterwards (6), so an executor that is suspended between
check and link finds nothing to link when it wakes up (the order of the completion fence,
``publish.link_fence``). The heartbeat only avoids double work.

**After a crash** in 1 there is a plan that any process can execute; in 4, private files, and files of an
instant that is not completed, which no reader shows and the next executor finds; after 5, private files,
which are swept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from mainstem.errors import Unavailable
from mainstem.metadata.commits.action import FileChanges
from mainstem.publish.publisher import Published, Section
from mainstem.publish.staging import create_once, prepared, preparing
from mainstem.services.other_attempts import forget_other_attempt, other_files, sweep_private
from mainstem.services.planned_files import Kind
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import CompactionStat, LogCompactionStat, encode_commit, every_file
from mainstem.timeline.instant import COMMIT, INFLIGHT, REPLACECOMMIT, REQUESTED, RESTORE
from mainstem.timeline.plans import CompactionOperation
from mainstem.writers.context import WriterContext
from mainstem.writers.publish_with_metadata import publish_with_metadata

D = TypeVar("D")
Stat = TypeVar("Stat", CompactionStat, LogCompactionStat)
Done = TypeVar("Done")
#: completed actions after which file groups may have other base files
_OF_BASE_FILES = (COMMIT, REPLACECOMMIT, RESTORE)


# -- publishing ------------------------------------------------------------------------------------


def publish_plan(
    ctx: WriterContext,
    action: str,
    make: Callable[[ActiveTimeline], bytes | None],
    *,
    name: Callable[[str], str] | None = None,
    decide: Callable[[Section], D | None] = lambda section: None,
    before_link: Callable[[str], None] = lambda time: None,
    folder: str = paths.TIMELINE,
    keeps_time: bool = False,
) -> Published[D]:
    """Publish a plan that ``make`` builds under the lock from the timeline; None means nothing to do.

    ``name(time)`` names the requested file, by default ``time.action.requested``. The other arguments and
    errors are those of ``Publisher.publish``.
    """
    with preparing(ctx.seams, action) as prepare:

        def content(timeline: ActiveTimeline) -> str | None:
            plan = make(timeline)
            return None if plan is None else prepare(plan)

        return ctx.publisher.publish(
            name or (lambda time: f"{time}.{action}.{REQUESTED}"),
            prepared=content,
            decide=decide,
            before_link=before_link,
            folder=folder,
            keeps_time=keeps_time,
        )


def publish_end(
    ctx: WriterContext,
    time: str,
    action: str,
    content: bytes,
    decide: Callable[[Section], D | None],
    *,
    changes: FileChanges | None = None,
    owner: str | None = None,
    before_link: Callable[[str], None] = lambda time: None,
    folder: str = paths.TIMELINE,
) -> Published[D]:
    """Publish the completed file of the plan ``time``, unless ``decide`` returns a decision under the lock.

    ``changes``: file changes for the metadata table; None if it does not record such actions. ``owner``:
    prefix of the private file's name, by default ``time``. Raises what ``Publisher.publish`` raises.
    """
    with prepared(ctx.seams, owner or time, content) as private:

        def name(done: str) -> str:
            return f"{time}_{done}.{action}"

        if changes is not None:
            published = publish_with_metadata(ctx, time, changes, name, prepared=private, decide=decide)
        else:
            published = ctx.publisher.publish(
                name, prepared=private, decide=decide, before_link=before_link, folder=folder
            )
    shows = published.time is not None and folder == paths.TIMELINE and action in _OF_BASE_FILES
    if shows and ctx.base_files_changed is not None:
        ctx.base_files_changed()
    return published


@dataclass(frozen=True)
class Execution(ABC, Generic[Stat, Done]):
    """A claimed plan that makes one new file per operation; a plan that has ended has no operations."""

    kind: ClassVar[Kind]

    ctx: WriterContext
    time: str
    operations: tuple[CompactionOperation, ...]

    # -- what a service defines --------------------------------------------------------------------

    #: the schema recorded in the commit
    @property
    @abstractmethod
    def schema(self) -> str: ...

    @abstractmethod
    def file_name(self, number: int) -> str:
        """Name of the new file of the operation with this number, determined by the plan alone."""

    @abstractmethod
    def ended(self, section: Section, stats: Sequence[Stat]) -> Done | None:
        """Under the lock: the plan's outcome, or None if it is still ours to complete with ``stats``."""

    @abstractmethod
    def result(self, completion: str | None, stats: Sequence[Stat]) -> Done:
        """What this execution did."""

    # -- where the plan is, if not on the data table's timeline -------------------------------------

    @property
    def folder(self) -> Storage:
        """Storage of the table that the plan belongs to."""
        return self.ctx.seams.storage

    def outer(self, path: str) -> str:
        """The path of a file in ``folder``, relative to the data table."""
        return path

    def publish(self, content: bytes, stats: Sequence[Stat]) -> Published[Done]:
        """Step 5."""
        return publish_end(
            self.ctx,
            self.time,
            self.kind.completed,
            content,
            lambda section: self.ended(section, stats),
            changes=FileChanges.of_stats(stats, new_keys=False),
        )

    # -- what is the same for all -------------------------------------------------------------------

    def path(self, number: int) -> str:
        """Path of the new file in ``folder``."""
        return paths.in_partition(self.operations[number].partition, self.file_name(number))

    def begin(self) -> None:
        """Step 3. Raises ``Unavailable`` while another engine may be executing the plan."""
        forget_other_attempt(self.ctx, self.time, self.others(), self.kind.what)
        create_once(self.folder, paths.timeline_file(f"{self.time}.{self.kind.planned}.{INFLIGHT}"))

    def files_of(self, number: int, stats: Sequence[Stat] | None) -> list[str]:
        """Paths of the files that the operation with this number has made: ``stats`` says which, None that
        any may be there."""
        return [self.path(number)]

    def others(self, stats: Sequence[Stat] | None = None) -> dict[str, int]:
        """Path -> store time of files left by another engine's execution of the plan.

        They may be truncated, and readers would choose between them and ours, or read both. With ``stats``,
        also those that another execution of ours made and this one did not.
        """
        ours = {path for number in range(len(self.operations)) for path in self.files_of(number, stats)}
        found = other_files(self.folder, self.time, self.operations, ours, self.kind.parse)
        return {self.outer(path): made for path, made in found.items()}

    def check_no_others(self, stats: Sequence[Stat]) -> None:
        """Raise ``Unavailable`` if another engine executes the plan too."""
        if others := self.others(stats):
            raise Unavailable(
                f"another engine executes the {self.kind.what} {self.time} too: {min(others)}; nothing was"
                " published, execute it again when that has ended",
                table=self.ctx.base,
            )

    def check_there(self, stats: Sequence[Stat]) -> None:
        """Raise ``Unavailable`` if a rollback removed one of our files."""
        for stat in every_file(stats):
            path = paths.in_partition(stat.partition, stat.file_name)
            if self.folder.stat(path) is None:
                raise Unavailable(
                    f"the {self.kind.what} {self.time} was rolled back while it ran ({self.outer(path)} is"
                    " gone); nothing was published, its plan stays, execute it again",
                    table=self.ctx.base,
                )

    def complete(self, stats: Sequence[Stat]) -> Done:
        """Steps 5 and 6, unless another process did them or the plan was taken back."""
        storage = self.ctx.seams.storage
        folders = sorted({self.outer(stat.partition) for stat in stats})
        storage.settle([], folders, durable=self.ctx.services_sync)
        content = encode_commit(stats, {"schema": self.schema}, self.kind.operation, compacted=True)
        published = self.publish(content, stats)
        if published.decision is not None:
            return published.decision
        sweep_private(storage, self.time)
        return self.result(published.time, stats)
