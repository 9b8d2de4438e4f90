"""Goal: imports inside the package go downwards only, and nothing forms a cycle.

Method: every ``import`` statement of every module (nested ones and those under ``TYPE_CHECKING``
too) is read with ``ast`` and checked against the layers of ARCHITECTURE.md, written down here once.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "mainstem"

# Rooms from the ground up. A room may import rooms of lower floors, and nothing else.
FLOORS = (
    ("errors", "lazy"),
    ("limits", "forks"),
    ("options",),
    ("storage", "formats"),
    ("truetime",),
    ("timeline",),
    ("publish", "lsm_archive"),
    ("layout",),
    ("merge",),
    ("metadata",),
    ("filters",),
    ("readers", "writers"),
    ("services",),
    ("indexing",),
    ("vectors",),
    ("api",),
    ("spark", "flink"),
    ("cli",),
    ("__main__",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# The package's front door: lazy (PEP 562), so it names what it hands out but imports nothing.
FRONT_DOOR = "__init__"


def _modules() -> dict[str, Path]:
    """Dotted module name -> file, for the whole package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()


def _targets(name: str, path: Path, *, at_load: bool = False) -> set[str]:
    """Modules of this package that one module imports (``at_load``: without those in functions)."""
    targets: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if at_load else ast.walk(tree):
        if isinstance(node, ast.Import):
            targets |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = name if path.name == "__init__.py" else name.rpartition(".")[0]
                parents = here.split(".")[: len(here.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            targets |= {full if (full := f"{base}.{a.name}") in MODULES else base for a in node.names}
    return {_known(t) for t in targets if t == "mainstem" or t.startswith("mainstem.")}


def _known(dotted: str) -> str:
    while dotted not in MODULES:
        dotted = dotted.rpartition(".")[0]
    return dotted


def _room(dotted: str) -> str:
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else FRONT_DOOR


def _allowed(source: str, target: str) -> bool:
    a, b = _room(source), _room(target)
    if a == b:
        return True
    if a == FRONT_DOOR:
        return FLOOR[b] <= FLOOR["api"]  # the public names, for type checkers
    if b == FRONT_DOOR:  # `from mainstem import limits` is resolved to the room before
        return FLOOR[a] > FLOOR["api"]
    return FLOOR[b] < FLOOR[a]


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_imports_only_what_lies_below_it(name: str) -> None:
    room = _room(name)
    assert room in FLOOR or room == FRONT_DOOR, f"give the room {room} a floor"
    wrong = sorted(t for t in _targets(name, MODULES[name]) if not _allowed(name, t))
    assert not wrong, f"{name} imports upwards or sideways: {wrong}"


def test_modules_form_no_cycle_when_they_are_loaded() -> None:
    edges = {
        name: {t for t in _targets(name, path, at_load=True) if t != name} for name, path in MODULES.items()
    }
    state: dict[str, int] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if state.get(name) == 2:
            return
        assert state.get(name) != 1, "cycle: " + " -> ".join((*trail, name))
        state[name] = 1
        for target in sorted(edges[name]):
            visit(target, (*trail, name))
        state[name] = 2

    for name in sorted(edges):
        visit(name, ())


def test_the_floors_name_no_room_that_is_gone() -> None:
    assert not set(FLOOR) - {_room(name) for name in MODULES}


def test_the_rule_itself_refuses_an_upward_import() -> None:
    assert not _allowed("mainstem.storage.local", "mainstem.timeline.active")
    assert not _allowed("mainstem.readers.planning.snapshot", "mainstem.writers.append")
    assert not _allowed("mainstem.api.table", "mainstem.cli.main")
    assert _allowed("mainstem.api.table", "mainstem.readers.planning.snapshot")
