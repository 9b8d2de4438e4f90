"""How far the simulator reaches: which lines and branches of the protocol code its seeds run, and which pairs
of actions they interleave.

    python -m tests.sim.reach --seconds 600 --seed 0 --json reach.json

Runs the scenarios in turn, each from the seed given on, under the library ``coverage`` (which follows
greenlets), and prints two tables in Markdown. Of a module, code within functions counts: what runs at import
says nothing. Under the tracer a run takes some three times as long as otherwise.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.interleavings import Interleavings

# Nothing of the protocol may be imported here: what is imported before the tracer is not traced.

PACKAGE = Path(__file__).resolve().parents[2] / "mainstem"
#: the code that decides what is lost and what is doubled, as patterns below the package
PROTOCOL = (
    "publish/*.py",
    "writers/*.py",
    "timeline/*.py",
    "truetime/heartbeats.py",
    "truetime/instant_times.py",
    "lsm_archive/*.py",
    "services/*.py",
    "services/metadata/*.py",
    "metadata/commits/*.py",
    "metadata/creation.py",
    "metadata/records/widening.py",
    *(f"indexing/{name}.py" for name in ("index_build", "dropping", "index_plan", "creating", "dead_builds")),
    "indexing/first_*.py",
    *(f"readers/planning/{name}.py" for name in ("table_state", "history", "file_presence", "file_listing")),
    "readers/changes/incremental.py",
    "readers/changes/commit_range.py",
)


@dataclass
class Module:
    """What was met of one module; ``never``: function -> lines of it that no run met."""

    lines: int = 0
    lines_met: int = 0
    branches: int = 0
    branches_met: int = 0
    never: dict[str, list[int]] = field(default_factory=dict)
    half: list[int] = field(default_factory=list)  # lines of which one way out was never taken


@dataclass
class Reach:
    """The result of a measurement."""

    first_seed: int
    seconds: float
    runs: dict[str, int]
    calls: int
    failures: list[str]
    modules: dict[str, Module]


def modules() -> list[Path]:
    """The files of the protocol."""
    found = {path for pattern in PROTOCOL for path in PACKAGE.glob(pattern)}
    return sorted(path for path in found if path.name != "__init__.py")


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")


def _bodies(path: Path) -> dict[int, str]:
    """Line -> function whose body it is of (a nested one counts to the one around it)."""
    inside = {}
    for name, node in _functions(ast.parse(path.read_text(encoding="utf-8"))):
        for line in range(node.body[0].lineno, node.end_lineno + 1):
            inside[line] = name
    return inside


def _measured(tracer: Any, path: Path) -> Module:
    inside = _bodies(path)
    _, statements, _, missing, _ = tracer.analysis2(str(path))
    module = Module()
    module.lines = sum(line in inside for line in statements)
    for line in missing:
        if line in inside:
            module.never.setdefault(inside[line], []).append(line)
    module.lines_met = module.lines - sum(map(len, module.never.values()))
    for line, (ways, taken) in tracer.branch_stats(str(path)).items():
        if line in inside:
            module.branches += ways
            module.branches_met += taken
            if 0 < taken < ways:
                module.half.append(line)
    return module


def _tracer() -> Any:
    try:
        import coverage
    except ImportError:
        raise SystemExit(
            "the library coverage is missing, which traces lines and branches: make setup-dev, or"
            " pip install 'coverage>=7.7'"
        ) from None
    files = [str(path) for path in modules()]
    return coverage.Coverage(
        data_file=None, branch=True, concurrency=["greenlet"], include=files, config_file=False
    )


def measure(
    seconds: float, seed: int = 0, scenarios: list[str] | None = None, runs: int | None = None
) -> tuple[Reach, Interleavings]:
    """Run seeds for so long (or so many ``runs``), the scenarios in turn."""
    tracer = _tracer()
    tracer.start()
    try:
        from tests.sim.interleavings import Interleavings
        from tests.sim.run import SCENARIOS, replay_command, simulate

        met, names, began = Interleavings(), scenarios or sorted(SCENARIOS), time.monotonic()
        failures, calls, made, number = [], 0, Counter[str](), 0
        with met.watching():
            while time.monotonic() - began < seconds and (runs is None or number < runs):
                result = simulate(seed + number // len(names), names[number % len(names)])
                number += 1
                made[result.scenario] += 1
                calls += result.counts.calls
                if result.failure is not None:
                    failures.append(f"{result.failure}"[:200] + f" ({replay_command(result)})")
    finally:
        tracer.stop()
    measured = {path.relative_to(PACKAGE).as_posix(): _measured(tracer, path) for path in modules()}
    return Reach(seed, round(time.monotonic() - began), dict(made), calls, failures, measured), met


def table(reach: Reach) -> str:
    """Lines and branches by module, in Markdown."""
    rows = ["| module | lines | met | branches | met |", "|---|---:|---:|---:|---:|"]
    for name, module in reach.modules.items():
        rows.append(_row(name, module))
    whole = Module()
    for name in ("lines", "lines_met", "branches", "branches_met"):
        setattr(whole, name, sum(getattr(module, name) for module in reach.modules.values()))
    rows.append(_row("**all**", whole))
    return "\n".join(rows)


def _row(name: str, module: Module) -> str:
    return (
        f"| {name} | {module.lines} | {_share(module.lines_met, module.lines)}"
        f" | {module.branches} | {_share(module.branches_met, module.branches)} |"
    )


def _share(part: int, whole: int) -> str:
    return "-" if whole == 0 else f"{100 * part / whole:.1f} %"


def never(reach: Reach) -> str:
    """Functions with lines that no run met, and how many."""
    return "\n".join(
        f"- {name} {function}: {', '.join(map(str, lines))}"
        for name, module in reach.modules.items()
        for function, lines in module.never.items()
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.reach", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to run seeds")
    parser.add_argument("--seed", type=int, default=0, help="the first seed of each scenario")
    parser.add_argument("--runs", type=int, default=None, help="how many runs at most")
    parser.add_argument("--scenario", action="append", help="only these; all otherwise, in turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    parser.add_argument("--lines", action="store_true", help="print the lines that were never met")
    given = parser.parse_args(arguments)
    worked = time.process_time()
    reach, met = measure(given.seconds, given.seed, given.scenario, given.runs)
    from tests.sim.interleavings import matrix

    runs = sum(reach.runs.values())
    seeds = f"{reach.first_seed} to {reach.first_seed + max(reach.runs.values(), default=1) - 1}"
    print(
        f"{runs} runs of {len(reach.runs)} scenarios, seeds {seeds}, {reach.calls} calls,"
        f" {reach.seconds:.0f} s ({time.process_time() - worked:.0f} s of processor time)\n"
    )
    print(f"{table(reach)}\n\n{matrix(met)}")
    if given.lines:
        print(f"\n{never(reach)}")
    for failure in reach.failures:
        print(f"VIOLATION {failure}")
    if given.json:
        pairs = {" | ".join(kinds): [pair.times, pair.struck] for kinds, pair in met.pairs.items()}
        whole = {**asdict(reach), "actions": dict(met.actions), "pairs": pairs}
        given.json.write_text(json.dumps(whole, indent=1))
    return 1 if reach.failures else 0


if __name__ == "__main__":
    sys.exit(main())
