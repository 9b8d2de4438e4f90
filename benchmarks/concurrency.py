"""1, 2, 4 and 8 processes that upsert the same keys: commits per second, aborts, evenness, latency.

Each race runs for a fixed time from a common start; ours and the peers take turns, medians of the
repeats. A table by default, which another engine may write, is compared with one that is declared exclusive.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable

from benchmarks import FOLDER, Missing, Row, bound, row
from benchmarks.bare_commit import BareCommits
from benchmarks.race import Race, race
from benchmarks.systems import SYSTEMS

WRITERS = (1, 2, 4, 8)
SMALL, LARGE = 100, 50_000
# What is asked for, in commits/s; or 70 % of what encoding, files and fsyncs alone reach (``unavoidable``).
ASKED = {1: 150, 8: 500}
IMPORT_MS_MAX = 200


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    seconds, repeats = (3.0, 3) if reduced else (10.0, 5)
    rows = _small_batches(seconds, repeats, 2.0 if reduced else 10.0)
    rows += _large_batches(2 * seconds, repeats)
    rows += _default(3.0 if reduced else 10.0, repeats)
    rows.append(_import_time())
    return rows


def _middle(races: list[Race], key: Callable[[Race], float]) -> Race:
    return sorted(races, key=key)[len(races) // 2]


def _small_batches(seconds: float, repeats: int, peer_seconds: float) -> list[Row]:
    rows: list[Row] = []
    for writers in WRITERS:
        ours: list[Race] = []
        bare: list[Race] = []
        least: list[Race] = []
        peers: dict[str, list[Race]] = {"delta": [], "iceberg": []}
        missing: dict[str, str] = {}
        for repeat in range(repeats):
            ours.append(race("mainstem", writers, rows=SMALL, seconds=seconds))
            bare.append(race("bare-commit", writers, rows=SMALL, seconds=seconds))
            least.append(race("unavoidable", writers, rows=SMALL, seconds=seconds))
            for name, races in peers.items():
                if repeat and name == "iceberg":
                    continue  # an order of magnitude away: one race is enough
                try:
                    SYSTEMS[name]()
                except Missing as error:
                    missing[name] = str(error)
                    continue
                races.append(race(name, writers, rows=SMALL, seconds=peer_seconds))
        rows += [_bounded(writers, ours, bare, least), *_compared(writers, ours, peers, missing)]
    return rows


def _bounded(writers: int, ours: list[Race], bare: list[Race], least: list[Race]) -> Row:
    own, files, most = (_middle(races, lambda r: r.rate) for races in (ours, bare, least))
    plural = "es" if writers > 1 else ""
    target = min(ASKED[writers] / most.rate, 0.7) if writers in ASKED else None
    return row(
        f"{writers} process{plural}, 100-row upserts, fsync", own.rate, "commits/s",
        against=SYSTEMS["unavoidable"]().name, baseline=most.rate, target=target,
        note=f"{own.cpu_ms:.1f} ms of processor time a commit to {most.cpu_ms:.1f}; {BareCommits.name}:"
        f" {files.rate:.0f} commits/s, {files.cpu_ms:.1f} ms",
    )  # fmt: skip


def _compared(
    writers: int, ours: list[Race], peers: dict[str, list[Race]], missing: dict[str, str]
) -> list[Row]:
    own = _middle(ours, lambda r: r.rate)
    plural = "es" if writers > 1 else ""
    work = f"{writers} process{plural}, same keys, 100-row upserts, fsync"
    rows = [
        row(work, own.rate, "commits/s", against="Java NBCC (200 ms wait)", target=25,
            baseline_id=f"java.commits.{min(writers, 4)}"),
        bound(f"aborts, {writers} process{plural}", sum(r.aborts for r in ours), "aborts", most=0,
              note=own.abort),
        row(f"slowest writer over mean, {writers} process{plural}",
            statistics.median(r.evenness for r in ours), "", against="mean", baseline=1.0,
            target=0.5),
        row(f"commit latency p50, {writers} process{plural}", own.latency_ms(0.5), "ms",
            note=f"p99 {own.latency_ms(0.99):.1f} ms; lock held"
            f" {statistics.median(own.held_ms):.1f} ms per commit"),
    ]  # fmt: skip
    for name, races in peers.items():
        label = {"delta": "delta-rs merge (no fsync)", "iceberg": "pyiceberg upsert"}[name]
        if not races:
            rows.append(row(work, own.rate, "commits/s", against=label, note=missing[name]))
            continue
        peer = _middle(races, lambda r: r.rate)
        commits, tried = sum(peer.commits), sum(peer.commits) + peer.aborts
        note = f"peer: {peer.aborts} of {tried} attempts aborted" if peer.aborts else ""
        if peer.rows != SMALL:
            note += f"; peer left {peer.rows} rows for {SMALL} keys"
        if not commits:
            note += "; peer committed nothing"
        rows.append(row(work, own.rate, "commits/s", against=label, baseline=peer.rate, note=note))
    return rows


def _large_batches(seconds: float, repeats: int) -> list[Row]:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        return [row("two pinned writers, 50,000-row batches", None, "rows/s", note="one core only")]
    one: list[Race] = []
    two: list[Race] = []
    bare: tuple[list[Race], list[Race]] = ([], [])
    for _ in range(repeats):
        bare[0].append(race("bare", 1, rows=LARGE, seconds=seconds / 2, cpus=cpus[:1]))
        bare[1].append(race("bare", 2, rows=LARGE, seconds=seconds / 2, cpus=cpus))
        one.append(race("mainstem", 1, rows=LARGE, seconds=seconds, cpus=cpus[:1]))
        two.append(race("mainstem", 2, rows=LARGE, seconds=seconds, cpus=cpus))
    first, second = _middle(one, lambda r: r.rate), _middle(two, lambda r: r.rate)
    alone, together = (_middle(races, lambda r: r.rate).rate * LARGE for races in bare)
    scale = together / alone
    return [
        row("encode and fsync alone, two processes on a core each (no table, no lock)", together,
            "rows/s", against="one such process", baseline=alone,
            note="what this machine's cores and disk let two writers gain at most"),
        row("two writers on a core each, 50,000-row batches, fsync", second.rate * LARGE, "rows/s",
            against="one writer on one core", baseline=first.rate * LARGE,
            target=min(1.6, 0.7 * scale),
            note=f"lock held {statistics.median(second.held_ms):.1f} ms per commit; asked for 1.6x, or"
            f" 70 % of the {scale:.2f}x that the bare work gains"),
        row("slowest writer over mean, two pinned", second.evenness, "", against="mean",
            baseline=1.0, target=0.5),
        row("peak memory of a writer, 50,000-row batches", second.peak_mib, "MiB"),
    ]  # fmt: skip


def _default(seconds: float, repeats: int) -> list[Row]:
    rows = []
    for writers, many in ((1, SMALL), (2, SMALL), (4, SMALL), (1, LARGE)):
        by_default: list[Race] = []
        exclusive: list[Race] = []
        for _ in range(repeats):
            by_default.append(race("mainstem", writers, rows=many, seconds=seconds))
            exclusive.append(race("mainstem-exclusive", writers, rows=many, seconds=seconds))
        ours, declared = (_middle(races, lambda r: r.rate) for races in (by_default, exclusive))
        work = f"a default table, {writers} process{'es' if writers > 1 else ''}, {many:,}-row upserts, fsync"
        rows.append(
            row(work, ours.rate, "commits/s", against="the same, declared exclusive", baseline=declared.rate,
                target=0.95, note=f"{sum(r.aborts for r in by_default)} aborts, slowest over mean"
                f" {ours.evenness:.2f}, {ours.rate * many:,.0f} rows/s")
        )  # fmt: skip
    return rows


def _import_time() -> Row:
    code = (
        "import time; a = time.perf_counter(); import mainstem;"
        " print(1000 * (time.perf_counter() - a))"
    )
    times = [
        float(
            subprocess.run(
                [sys.executable, "-c", code], cwd=FOLDER.parent, capture_output=True, text=True,
                check=True,
            ).stdout
        )
        for _ in range(5)
    ]  # fmt: skip
    return bound("import mainstem", statistics.median(times), "ms", most=IMPORT_MS_MAX)
