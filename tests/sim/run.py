"""``python -m tests.sim.run --seconds 60 --seed N [--runs K] [--body store]``: search seeds for a violation.

Prints what was tried; for a failure the rule, the end of the story, and one line that replays it.
Every hundredth seed is run twice and must make the very same calls.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import random
import sys
import time
from collections import Counter

from tests.sim.archive_world import Archives
from tests.sim.births_world import Births
from tests.sim.bulk_world import BulkInserts
from tests.sim.cleaning_world import Cleanings
from tests.sim.columns_world import Columns
from tests.sim.indexed_world import Compacted, Indexed
from tests.sim.indexes_world import Indexes, IndexesOfFiles
from tests.sim.indexing_world import Indexing
from tests.sim.kept_world import KeptDeletes
from tests.sim.log_compactor import LogCompactions
from tests.sim.long_world import Long
from tests.sim.mixed_world import Mixed
from tests.sim.moved_overwrite_world import MovedOverwrites
from tests.sim.moved_world import Moved, MovedIndexed, MovedServices
from tests.sim.native_world import (
    Native,
    NativeChanges,
    NativeIndexed,
    NativeKept,
    NativeLogs,
    NativeResizes,
    NativeServices,
    NativeTasks,
)
from tests.sim.of_versions import variants
from tests.sim.offsets_world import Offsets
from tests.sim.ordinals_world import Ordinals
from tests.sim.overwrite_world import Overwrites, RestoredOverwrites, ShownOverwrites
from tests.sim.placed_engines_world import PlacedSinks, PlacedTasks
from tests.sim.placed_overwrite_world import PlacedOverwrites
from tests.sim.placed_world import Placed, PlacedAgain, PlacedClustered, PlacedIndexed, PlacedServices
from tests.sim.publishers import Publishers
from tests.sim.resize_world import ResizedMixed, ResizedServices, ResizedSinks, Resizes
from tests.sim.restore_world import Restores
from tests.sim.ringed_world import Ringed, RingedSinks, RingedTasks
from tests.sim.ruled_world import Ruled
from tests.sim.services_world import Services
from tests.sim.simulation import BODIES, Result, Simulation
from tests.sim.sink_world import Sinks
from tests.sim.statements_world import PlacedStatements, Statements
from tests.sim.tables_world import Compactions, Tables
from tests.sim.tasks_world import Tasks
from tests.sim.vectors_world import Vectors
from tests.sim.versions_world import Versions, VersionsIndexed
from tests.sim.watched_world import WatchedLong, WatchedPublishers, WatchedTables
from tests.sim.world import Counts, Faults, Violation

SCENARIOS: dict[str, type[Simulation]] = {
    "archives": Archives,
    "births": Births,
    "bulk": BulkInserts,
    "cleanings": Cleanings,
    "columns": Columns,
    "compacted": Compacted,
    "compactions": Compactions,
    "indexed": Indexed,
    "indexes": Indexes,
    "indexes-of-files": IndexesOfFiles,
    "indexing": Indexing,
    "kept": KeptDeletes,
    "logs": LogCompactions,
    "long": Long,
    "mixed": Mixed,
    "native": Native,
    "native-changes": NativeChanges,
    "native-indexed": NativeIndexed,
    "native-kept": NativeKept,
    "native-logs": NativeLogs,
    "native-resizes": NativeResizes,
    "native-services": NativeServices,
    "native-tasks": NativeTasks,
    "offsets": Offsets,
    "ordinals": Ordinals,
    "overwrites": Overwrites,
    "overwrites_restored": RestoredOverwrites,
    "shown": ShownOverwrites,
    "moved": Moved,
    "moved-indexed": MovedIndexed,
    "moved-overwrites": MovedOverwrites,
    "moved-services": MovedServices,
    "placed": Placed,
    "placed-indexed": PlacedIndexed,
    "placed-again": PlacedAgain,
    "placed-overwrites": PlacedOverwrites,
    "placed-services": PlacedServices,
    "placed-statements": PlacedStatements,
    "placed-sinks": PlacedSinks,
    "placed-tasks": PlacedTasks,
    "placed-clustered": PlacedClustered,
    "publishers": Publishers,
    "resized-mixed": ResizedMixed,
    "resized-services": ResizedServices,
    "resized-sinks": ResizedSinks,
    "resizes": Resizes,
    "restores": Restores,
    "ringed": Ringed,
    "ringed-sinks": RingedSinks,
    "ringed-tasks": RingedTasks,
    "ruled": Ruled,
    "services": Services,
    "sinks": Sinks,
    "statements": Statements,
    "tables": Tables,
    "tasks": Tasks,
    "vectors": Vectors,
    "versions": Versions,
    "versions-indexed": VersionsIndexed,
    "watched": WatchedTables,
    "watched-long": WatchedLong,
    "watched-publishers": WatchedPublishers,
}
SCENARIOS |= variants(SCENARIOS)
REPEAT_EVERY = 100


def scenario_of(seed: int) -> str:
    """Which scenario a seed stands for when none is named: of ten, six are not ``tables``, and eight of those
    beyond the first hundred."""
    others = {1: "services", 3: "sinks", 4: "mixed", 5: "services", 7: "compactions", 9: "publishers"}
    if seed >= 100:
        others |= {2: "columns", 6: "tasks"}
    return others.get(seed % 10, "tables")


def simulate(
    seed: int,
    scenario: str | None = None,
    *,
    log: bool = False,
    faults: Faults | None = None,
    body: str = "disk",
) -> Result:
    """Run one seed; ``faults`` in place of the mixture that the seed draws, ``body``: one of ``BODIES``."""
    return SCENARIOS[scenario or scenario_of(seed)](seed, log=log, faults=faults, body=body).run()


def replay_command(result: Result, faults_of: str | None = None) -> str:
    """The line that runs a seed once more; ``faults_of``: the seeded bug whose mixture of faults it had."""
    mixture = f" --faults-of {faults_of}" if faults_of else ""
    body = "" if result.body == "disk" else f" --body {result.body}"
    return (
        f"python -m tests.sim.run --seed {result.seed} --runs 1"
        f" --scenario {result.scenario}{body}{mixture} --verbose"
    )


def _faults_of(mutant: str) -> Faults | None:
    from tests.sim.mutants.collected import MUTANTS

    if mutant not in MUTANTS:
        raise SystemExit(f"no seeded bug is called {mutant}")
    return MUTANTS[mutant].faults


class Search:
    """Runs seeds one after another and adds up; ``faults_of``: a seeded bug whose mixture of faults they
    have, ``body``: what the tables lie on."""

    def __init__(self, faults_of: str | None = None, body: str = "disk") -> None:
        self.body = body
        self.faults = None if faults_of is None else _faults_of(faults_of)
        self.total = Counts()
        self.runs: Counter[str] = Counter()
        self.repeated = 0
        self.failures: list[Result] = []
        self.began = time.monotonic()
        self.worked = time.process_time()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def one(
        self, seed: int, scenario: str | None, *, log: bool = False, canary: bool = False
    ) -> Result:
        result = simulate(seed, scenario, log=log, faults=self.faults, body=self.body)
        if canary and random.Random(seed).random() < 0.01:
            result.failure = Violation("canary", "this checker fails one seed in a hundred")
        if result.failure is None and seed % REPEAT_EVERY == 0:
            again = simulate(seed, scenario, faults=self.faults, body=self.body)
            self.repeated += 1
            if again.trace != result.trace:
                result.failure = Violation("determinism", "the same seed made other calls")
        self.total.add(result.counts)
        self.runs[result.scenario] += 1
        if result.failure is not None:
            self.failures.append(result)
        return result

    def report(self) -> str:
        count, total = sum(self.runs.values()), self.total
        worked = max(0.001, time.process_time() - self.worked)
        kinds = ", ".join(f"{name} {n}" for name, n in sorted(self.runs.items()))
        return (
            f"{count} runs ({kinds}), {self.repeated} of them twice, in {self.seconds:.1f} s:"
            f" {total.calls} storage, clock and lock calls\n"
            f"{total.calls / worked:,.0f} calls per second and {count / worked * 60:,.0f} runs per minute of"
            f" processor time; {total.virtual_ms / 3.6e6:.1f} virtual hours\n"
            f"{total.commits} commits, {total.rollbacks} rollbacks, {total.reads} reads;"
            f" {total.crashes} crashes, {total.host_crashes} host crashes, {total.pauses} stops,"
            f" {total.errors} I/O errors, {total.late} late requests, {total.interrupts} interrupts,"
            f" {total.lease_losses} lease losses,"
            f" {total.refused} calls refused\n"
            f"{total.compactions} compactions, {total.log_compactions} log compactions,"
            f" {total.clusterings} clusterings,"
            f" {total.cleans} cleans, {total.savepoints} savepoints, {total.restores} restores,"
            f" {total.archived} instants archived, {total.resizes} resizes,"
            f" {total.routed} transactions routed anew\n"
            f"{len(self.failures)} violations"
        )


def _explain(result: Result, lines: int, faults_of: str | None) -> str:
    story = "\n".join(result.story[-lines:])
    return (
        f"{story}\nseed {result.seed} ({result.scenario}) violates {result.failure}\n"
        f"replay: {replay_command(result, faults_of)}"
    )


def _hunt(names: list[str], start: int, seconds: float) -> int:
    """Print, for the mutants named (or all), the first seed that finds each within ``seconds``."""
    from tests.sim.mutants.collected import MUTANTS

    seeds: dict[str, int | None] = {}
    for name in names or MUTANTS:
        mutant = MUTANTS[name]
        until, seed = time.monotonic() + seconds, start
        seeds[name] = None
        with mutant.applied():
            while time.monotonic() < until and seeds[name] is None:
                if simulate(seed, mutant.scenario, faults=mutant.faults, body=mutant.body).failure:
                    seeds[name] = seed
                seed += 1
    print(json.dumps(seeds, indent=1))
    return 1 if None in seeds.values() else 0


def _each(pattern: str, start: int, seconds: float, body: str) -> int:
    """Search each scenario of such a name for some seconds; print what was found, and what replays it."""
    failed = 0
    for scenario in fnmatch.filter(SCENARIOS, pattern):
        search, seed = Search(body=body), start
        while search.seconds < seconds and not search.failures:
            search.one(seed, scenario)
            seed += 1
        runs = f"{scenario}: {seed - start} runs in {search.seconds:.0f} s"
        for result in search.failures:
            failed += 1
            runs += f"\n  violates {result.failure}\n  replay: {replay_command(result)}"
        print(runs, flush=True)
    return 1 if failed else 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to search")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=int, default=None, help="how many seeds at most")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), default=None)
    parser.add_argument("--body", choices=BODIES, default="disk", help="what the tables lie on")
    parser.add_argument("--verbose", action="store_true", help="print every call of a failing run")
    parser.add_argument("--trace", action="store_true", help="print each run's call hash")
    parser.add_argument("--mutants", nargs="*", metavar="NAME", help="find a seed for each seeded bug")
    parser.add_argument(
        "--faults-of", metavar="NAME", help="with the mixture of faults of this seeded bug, without the bug"
    )
    parser.add_argument("--canary", action="store_true", help="one seed in a hundred must fail")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a violation")
    parser.add_argument(
        "--each", nargs="?", const="*", metavar="PATTERN",
        help="every scenario, or those of names such as '*-v10', each for --seconds",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    if given.each:
        return _each(given.each, given.seed, given.seconds, given.body)
    if given.mutants is not None:
        return _hunt(given.mutants, given.seed, given.seconds)
    search, seed = Search(given.faults_of, given.body), given.seed
    while search.seconds < given.seconds and (given.runs is None or seed < given.seed + given.runs):
        result = search.one(seed, given.scenario, log=given.verbose, canary=given.canary)
        if given.trace:
            print(f"seed {seed} trace {result.trace}", flush=True)
        if result.failure is not None:
            lines = 100_000 if given.verbose else 1 if given.keep_going else 40
            print(_explain(result, lines, given.faults_of), flush=True)
            if not given.keep_going:
                break
        seed += 1
    print(search.report())
    return 1 if search.failures else 0


if __name__ == "__main__":
    sys.exit(main())
