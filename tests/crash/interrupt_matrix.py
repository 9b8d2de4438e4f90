"""``python -m tests.crash.interrupt_matrix``: every action interrupted at every call, and done again.

The rule: what ran past the publishing link is never undone by its own process; what was not published may be.
Each action of ``crash_matrix`` (and the making of a table, and the actions on vector indexes) runs in this
process on a copy of a table, and an exception that is no ``OSError`` is raised before or after one of its
calls of storage, clock or lock (``interrupts``). At once the table shows the state before the action or the
one after it; nothing of it goes on beating, and the lock is free. Then the same process does the action
again, which must work or say that it was done; in the end, after everybody else came, it is done once and
nothing is left over.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import mainstem
from mainstem.errors import Invalid, MainstemError, Unavailable
from mainstem.flink.committer import Committer
from mainstem.writers.write_task import write_task
from tests.crash import crash_matrix, crash_worker, vector_matrix
from tests.crash.crash_matrix import Broken, Content, Run, content, expected, templates, worker
from tests.crash.crash_worker import PROPERTIES
from tests.crash.interrupts import KINDS, Interrupter, beating, heartbeats_made, interrupted
from tests.multiprocess import table_files

#: An interrupted holder of the lock must give it back: nobody waits for long to see that it did not.
IMPATIENT = {"hoodie.write.lock.wait_time_ms": "2000", "hoodie.write.lock.client.num_retries": "0"}


@dataclass(frozen=True)
class Action:
    """What is interrupted, the table on which it has something to do, and what must hold."""

    work: Callable[[str], object]
    make: Callable[[Path], object]
    #: the state that a table shows, to be compared
    state: Callable[[Path], object]
    #: of the states before and after, the one that this table must show
    meant: Callable[[Path, object, object], object]
    #: long after, everybody comes
    settle: Callable[[Path, object], None]


def _refused_as_done(error: MainstemError) -> bool:
    """Whether who repeats the action is told that it was done, or is under way, and not that it is broken."""
    said = str(error)
    known = ("there already", "exists", "being built", "no savepoint", "no index", "nothing to", "already")
    return isinstance(error, Invalid) and any(word in said for word in known)


def actions(run: Run) -> dict[str, Action]:
    """Every public action that changes a table."""
    found: dict[str, Action] = {}
    for name, (action, make) in templates(run).items():
        found[name] = Action(
            crash_worker.ACTIONS[action], make, content, expected, crash_matrix.settle
        )
    found["flink_commit"] = Action(
        crash_worker.flink_commit, _staged, content, _committed, _settle_sink
    )
    found["tasks"] = Action(_write_by_tasks, crash_matrix._written, content, expected, crash_matrix.settle)
    for name, make in vector_matrix.ACTIONS.items():
        found[name] = Action(
            _tend if name == "tend_vector_indexes" else crash_worker.ACTIONS[name], make,
            _is_indexed if name == "create_vector_index" else vector_matrix.in_use,
            lambda path, before, after: (before, after),
            lambda path, meant: vector_matrix.settle(path),
        )  # fmt: skip
    found["create"] = Action(
        crash_worker.create, lambda path: path.mkdir(), _is_table,
        lambda path, before, after: (before, after), lambda path, meant: crash_matrix.settle(path, {}),
    )  # fmt: skip
    return found


def _tend(path: str) -> None:
    """A round of services goes on after whatever one of them raised, and says so."""
    for run in crash_worker.serviced(path).run_services("vectors"):
        if run.error is not None:
            raise Unavailable(f"{run.service}: {run.error}")


def _is_indexed(path: Path) -> bool:
    """Versions that were begun have numbers, too."""
    return vector_matrix.in_use(path) > 0


def _is_table(path: Path) -> bool:
    try:
        return content(path) == {}
    except MainstemError:
        return False


def _write_by_tasks(path: str) -> None:
    """As a Spark driver and its workers write: by tasks, whose results the transaction takes over."""
    table = mainstem.open_table(path, properties=PROPERTIES)
    with table.begin("upsert", guard=crash_worker.GUARD) as txn:
        if not txn.already_committed:
            spec = txn.task_spec()
            for number, keys in enumerate(("02468", "13579")):
                rows = crash_worker.rows("new", 9, keys)
                result = write_task(spec, rows.to_batches(), task_partition=number, stage=0, attempt=0)
                txn.add_task_result(result)
        txn.commit()


def _staged(path: Path) -> None:
    crash_matrix._written(path)
    crash_worker.stage(str(path))


def _committed(path: Path, before: Content, after: Content) -> object:
    """Checkpoints are committed one by one, or several at once."""
    numbers = [c.guard[1] for c in table_files.commits(path) if c.guard]
    if sorted(set(numbers)) != sorted(numbers):
        raise Broken(f"batches of the sink were committed twice: {numbers}")
    return after if content(path) == after else content(path) if numbers else before


def _settle_sink(path: Path, meant: object) -> None:
    crash_worker.flink_commit(str(path))
    table_files.age(path)
    crash_worker.recover(str(path))
    # Cut off while it removed staged files, a committer leaves them to the sweep: of any age, here.
    Committer(crash_worker.serviced(str(path)), crash_worker.SINK).sweep(age_ms=-1)
    if left := table_files.leftovers(path):
        raise Broken(f"left over: {left}")


class Interrupts:
    """Cells of the matrix, one after the other."""

    def __init__(self, run: Run, folder: Path, chance: random.Random) -> None:
        self.known = actions(run)
        self.folder, self.chance = folder, chance
        self.cells = 0
        self.broken: list[str] = []

    def action(self, name: str, every: int = 1, settle_every: int = 1) -> int:
        """Interrupt one action at each ``every``-th call; how many calls it makes."""
        action = self.known[name]
        template, whole = self.folder / "template", self.folder / "whole"
        action.make(template)
        shutil.copytree(template, whole)
        before = action.state(template)
        with interrupted(Interrupter(None)) as calls:
            action.work(str(whole))
        after = action.state(whole)
        for at in range(self.chance.randrange(every), calls.count, every):
            for late in (False, True) if every == 1 else (self.chance.random() < 0.5,):
                kind = self.chance.choice(KINDS)
                path = self.folder / f"cell-{self.cells}"
                shutil.copytree(template, path)
                try:
                    self._cell(action, path, Interrupter(at, after=late, kind=kind), before, after,
                               self.cells % settle_every == 0)  # fmt: skip
                except (Broken, AssertionError, MainstemError, OSError, Warning) as error:
                    when = "after" if late else "before"
                    which = f"{kind.__name__} {when} call {at} of {calls.count}"
                    self.broken.append(f"{name}, {which}: {error!r}")
                self.cells += 1
                shutil.rmtree(path)
        shutil.rmtree(template)
        shutil.rmtree(whole)
        return calls.count

    def _cell(
        self,
        action: Action,
        path: Path,
        interrupter: Interrupter,
        before: object,
        after: object,
        settle: bool,
    ) -> None:
        with heartbeats_made() as made, patch.dict(PROPERTIES, IMPATIENT):
            acknowledged = self._interrupt(action, path, interrupter)
            try:
                meant = action.meant(path, before, after)
                self._shows(action, path, meant)
                if acknowledged:
                    self._shows(action, path, after)
                if left := beating(made):
                    raise Broken(f"{left} goes on beating")
                self._again(action, path)
                self._shows(action, path, after)
                if left := beating(made):
                    raise Broken(f"{left} goes on beating after it was done again")
                if settle:
                    action.settle(path, after)
            except (Broken, AssertionError, MainstemError, OSError, Warning) as error:
                raise Broken(f"{interrupter.where}: {error!r}") from error

    @staticmethod
    def _shows(action: Action, path: Path, meant: object) -> None:
        found = action.state(path)
        if found != meant and not (isinstance(meant, tuple) and found in meant):
            raise Broken(f"shows {found}, expected {meant}")

    @staticmethod
    def _interrupt(action: Action, path: Path, interrupter: Interrupter) -> bool:
        """Whether the action was acknowledged all the same: what was raised came from tidying."""
        try:
            with interrupted(interrupter):
                action.work(str(path))
        except interrupter.kind:
            return False
        except MainstemError:  # says what the exception means: the outcome is unknown
            return False
        return True

    @staticmethod
    def _again(action: Action, path: Path) -> None:
        try:
            action.work(str(path))
        except MainstemError as error:
            if not _refused_as_done(error):
                raise


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.interrupt_matrix", description=__doc__)
    parser.add_argument("--actions", nargs="*", default=None, help="these actions only")
    parser.add_argument("--every", type=int, default=1, help="only each n-th call of an action")
    parser.add_argument("--settle-every", type=int, default=3, help="everybody comes in each n-th cell only")
    parser.add_argument("--seed", type=int, default=0, help="of what is raised")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # that locks of the dead were taken over
    began = time.monotonic()
    with worker() as run, tempfile.TemporaryDirectory() as folder:
        matrix = Interrupts(run, Path(folder), random.Random(given.seed))
        for name in given.actions or matrix.known:
            failed = len(matrix.broken)
            calls = matrix.action(name, given.every, given.settle_every)
            for line in matrix.broken[failed:]:
                print(line)
            seconds = time.monotonic() - began
            print(f"{name}: {calls} calls, {matrix.cells} cells so far, {seconds:.0f} s", flush=True)
    print(f"{matrix.cells} cells, {len(matrix.broken)} of them broken")
    return 1 if matrix.broken else 0


if __name__ == "__main__":
    sys.exit(main())
