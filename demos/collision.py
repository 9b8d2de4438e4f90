"""The collision: eight writers on the same 100,000 keys, one of them killed every few seconds.

    python -m demos.collision [--keys 100000] [--batches 20] [--seconds 240] [--peers delta,iceberg,paimon]

Plain Python processes, Spark streaming queries and Flink SQL jobs write one mainstem table at once; in their
processes table services compact, clean and archive it all the while. Then eight
Python processes do the same work with each peer, every peer in an environment of its own (made on demand).
All writers of a system begin at one moment, when the last one is ready.
Each writer is killed with -9 up to three times, and started again at once. What is done, and what is right,
stands in ``collision_load``; how each peer is used, in ``collision_systems``. Peers run without table
maintenance, which would add to their conflicts.

Ours must lose nothing, double nothing and abort nothing, else this fails. Of the peers it only tells.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq

from demos.collision_load import GATE, Load, Verdict
from demos.collision_systems import PEERS
from demos.services_done import services_done
from demos.supervise import Process, WriterFailed
from demos.timeline_picture import overlapping_pairs, read_picture

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "collision"
OURS = "mainstem"
#: kind of our writers -> the package that it needs
KINDS = {"python": "mainstem", "spark": "pyspark", "flink": "pyflink"}
PYTHON = "python"
READY_MOST_S = 180.0
PROGRESS_EVERY_S = 10.0
DEATHS_MAX = 30
KILLS_MOST = 3


@dataclass
class Progress:
    """What a writer's processes said so far."""

    done: int = 0
    refused: int = 0
    repeated: int = 0
    ready: bool = False
    came_up: bool = False
    ended: bool = False
    why: str = ""

    def note(self, what: dict[str, object]) -> None:
        self.repeated += int(str(what.get("repeated", 0)))
        if "in" in what:
            self.came_up = True
            self.done = max(self.done, int(str(what["in"])) + 1)
        elif "refused" in what:
            self.came_up = True
            self.refused += 1
            self.why = self.why or str(what["why"])
        elif "ended" in what:
            self.ended = True
        elif "ready" in what:
            self.ready = True


class Contender(Process):
    """One of the eight; ``died``: how often it ended with an error of its own, ``kills``: by ours."""

    said: Progress

    def __init__(self, kind: str, base: Sequence[str], log: Path) -> None:
        super().__init__(base, log, Progress())
        self.kind = kind
        self.died = self.kills = 0
        self._base = list(base)

    def start(self) -> None:
        """Go on with the batch after the last one that it is known to have committed."""
        self.said.came_up = False
        self.command = [*self._base, str(self.said.done)]
        super().start()


@dataclass
class Score:
    """What became of one system."""

    name: str
    batches: int
    done: int = 0
    rows: int = 0
    refused: int = 0
    repeated: int = 0
    kills: int = 0
    died: int = 0
    seconds: float = 0.0
    verdict: Verdict | None = None
    notes: list[str] = field(default_factory=list)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=100_000, help="at most 8 million")
    parser.add_argument("--batches", type=int, default=20, help="of each writer; together they hold all keys")
    parser.add_argument(
        "--seconds", type=float, default=240, help="a system that is not done then is stopped"
    )
    parser.add_argument("--kill-every", type=float, default=5, help="seconds")
    parser.add_argument("--kinds", default="", help="of our writers, in turn; default: python,spark,flink")
    parser.add_argument("--peers", default=",".join(PEERS), help="those to compare with; '' for none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="is deleted first")
    given = parser.parse_args(arguments)
    peers = [name for name in given.peers.split(",") if name]
    if unknown := set(peers) - set(PEERS):
        parser.error(f"unknown peers {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    shutil.rmtree(given.folder, ignore_errors=True)
    load = Load(given.keys, 8, given.batches, given.seed)
    kinds = given.kinds.split(",") if given.kinds else _installed()
    ours = collide(OURS, load, given, [kinds[i % len(kinds)] for i in range(load.writers)], sys.executable)
    tell_of_table(given.folder.resolve() / OURS / "table")
    scores = [ours]
    for name in peers:
        python = environment(name)
        if python is None:
            continue
        scores.append(collide(name, load, given, [PYTHON] * load.writers, python))
    print("\n" + table(scores))
    for score in scores:
        for note in score.notes:
            print(f"{score.name}: {note}")
    right = ours.verdict is not None and ours.verdict.right and ours.done == ours.batches
    if not right or ours.refused or ours.died:
        print(
            "\nFAILED: mainstem lost, doubled or aborted something, or was not done in time", file=sys.stderr
        )
        return 1
    return 0


def _installed() -> list[str]:
    kinds = [kind for kind, package in KINDS.items() if find_spec(package) is not None]
    for kind in KINDS.keys() - set(kinds):
        print(f"{KINDS[kind]} is not installed: no {kind} writers")
    return kinds


def environment(peer: str) -> str | None:
    """The Python of the peer's own environment, which is made if need be."""
    script = [sys.executable, str(ROOT / "scripts" / "environment.py"), "install", peer]
    if subprocess.run(script, cwd=ROOT, check=False).returncode:
        print(f"{PEERS[peer]}: its environment could not be made; left out")
        return None
    return str(ROOT / f".venv-{peer}" / "bin" / "python")


# ---------------------------------------------------------------- one system


def collide(system: str, load: Load, given: argparse.Namespace, kinds: Sequence[str], python: str) -> Score:
    """Create the system's table, let eight writers loose on it, and judge what is left."""
    folder = given.folder.resolve() / system
    folder.mkdir(parents=True)
    name = PEERS.get(system, system)
    told = ", ".join(f"{list(kinds).count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    print(
        f"\n{name}: {load.writers} writers ({told}), {load.batches} batches each, {load.keys:,} keys",
        flush=True,
    )
    _run(python, "create", system, folder, load.to_json())
    writers = [_contender(system, kind, number, folder, load, python) for number, kind in enumerate(kinds)]
    score = Score(name, load.writers * load.batches)
    try:
        for writer in writers:
            writer.start()
        _wait_until_ready(writers)
        (folder / GATE).touch()
        started = time.monotonic()
        _kill_and_restart(writers, score, given, peer=system != OURS)
    finally:
        for writer in writers:
            writer.kill()
    score.seconds = time.monotonic() - started
    for writer in writers:
        score.done += writer.said.done
        score.refused += writer.said.refused
        score.repeated += writer.said.repeated
        score.died += writer.died
    score.rows = load.keys * score.done // load.batches
    whys = [writer.said.why for writer in writers if writer.said.why]
    score.notes += [f"the first refusal: {whys[0]}"] if whys else []
    _run(python, "read", system, folder, str(folder / "found.parquet"))
    found = pq.read_table(folder / "found.parquet")
    score.verdict = load.judge(found, [writer.said.done for writer in writers])
    print(f"{score.seconds:4.0f} s  {_line(score)}", flush=True)
    return score


def _contender(system: str, kind: str, number: int, folder: Path, load: Load, python: str) -> Contender:
    if kind == PYTHON:
        base = [python, "-W", "ignore", "-m", "demos.collision_writer", "write", system]
    else:
        base = [python, "-W", "ignore", "-m", f"demos.collision_{kind}"]
    base += [str(folder), load.to_json(), str(number)]
    return Contender(kind, base, folder / "logs" / f"writer-{number}-{kind}.log")


def _wait_until_ready(writers: Sequence[Contender]) -> None:
    until = time.monotonic() + READY_MOST_S
    while not all(writer.said.ready for writer in writers):
        for writer in writers:
            writer.check()
        if time.monotonic() > until:
            raise WriterFailed(f"a writer was not ready after {READY_MOST_S:.0f} s")
        time.sleep(0.05)


def _kill_and_restart(
    writers: Sequence[Contender], score: Score, given: argparse.Namespace, *, peer: bool
) -> None:
    """Until all are done or the time is over: every few seconds one writer, at random, gets -9."""
    chance = random.Random(given.seed)
    started = time.monotonic()
    next_kill, next_line = started + given.kill_every, started + PROGRESS_EVERY_S
    while not all(writer.said.ended for writer in writers):
        now = time.monotonic()
        if now > started + given.seconds:
            score.notes.append(f"stopped after {given.seconds:.0f} s")
            return
        if now >= next_kill:
            # Nobody is killed again before it came up: else an engine that starts slowly would never write.
            alive = [w for w in writers if w.said.came_up and not w.said.ended and w.kills < KILLS_MOST]
            if alive:
                victim = chance.choice(alive)
                victim.kill()
                victim.start()
                victim.kills += 1
                score.kills += 1
            next_kill += given.kill_every
        if now >= next_line:
            done = " ".join(f"{w.kind} {w.said.done}/{given.batches}" for w in writers)
            print(f"{now - started:4.0f} s  {done}; {score.kills} kills", flush=True)
            next_line += PROGRESS_EVERY_S
        for writer in writers:
            if writer.failed and not writer.said.ended:
                if not peer or writer.died >= DEATHS_MAX:
                    writer.check()
                writer.died += 1
                writer.start()
        time.sleep(0.05)


def _run(python: str, what: str, system: str, folder: Path, *rest: str) -> None:
    command = [python, "-W", "ignore", "-m", "demos.collision_writer", what, system, str(folder), *rest]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WriterFailed(f"{what} {system} ended with code {done.returncode}:\n{done.stderr[-2000:]}")


# ---------------------------------------------------------------- telling


def tell_of_table(path: Path) -> None:
    """What services did beside our writers, and how many transactions overlapped."""
    picture = read_picture(path)
    pairs = overlapping_pairs(picture.spans).total()
    print(f"  services beside them: {services_done(path).describe()}")
    print(f"  {pairs} pairs of transactions overlapped: each would be a conflict under optimistic control")


def table(scores: Sequence[Score]) -> str:
    """The score, a line per system."""
    head = ("", "batches in", "rows/s", "aborts", "retries", "kills", "duplicates", "lost rows", "wall time")
    lines = [head, *(_cells(score) for score in scores)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    )


def _cells(score: Score) -> tuple[str, ...]:
    verdict = score.verdict
    assert verdict is not None
    return (
        score.name,
        f"{score.done} of {score.batches}",
        f"{score.rows / score.seconds:,.0f}",
        str(score.refused),
        str(score.repeated),
        str(score.kills),
        f"{verdict.duplicates:,}",
        f"{verdict.lost + verdict.foreign:,}",
        f"{score.seconds:.0f} s",
    )


def _line(score: Score) -> str:
    _, done, rate, aborts, retries, kills, duplicates, lost, _ = _cells(score)
    died = f", {score.died} ended with an error" if score.died else ""
    return (
        f"{done} batches, {rate} rows/s, {aborts} aborts, {retries} retries in the library,"
        f" {kills} kills{died}; {duplicates} duplicates, {lost} lost rows"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
