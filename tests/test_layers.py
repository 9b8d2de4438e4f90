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
    ("publish", "lsm_archive", "merge"),
    ("layout",),
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
# Sub-rooms from the ground up; a module that lies in none of them may be met from any.
SUB_ROOMS = {
    "readers": (("rows", "planning"), ("skipping",), ("queries",), ("changes",)),
    "metadata": (("records",), ("derive",), ("commits",)),
    "vectors": (("engines",), ("index",), ("search",)),
}
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


def _targets(name: str, path: Path) -> set[str]:
    """Modules of this package that one module imports, in functions and for type checkers too."""
    targets: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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


def _sub_floor(dotted: str) -> int | None:
    """Number of the floor of a module's sub-room; None for one that lies in none."""
    room, _, rest = dotted.removeprefix("mainstem.").partition(".")
    sub_room = rest.split(".")[0]
    floors = enumerate(SUB_ROOMS.get(room, ()))
    return next((number for number, names in floors if sub_room in names), None)


def _allowed_inside(source: str, target: str) -> bool:
    """Of two modules of one room: downwards, or within one sub-room."""
    a, b = _sub_floor(source), _sub_floor(target)
    if a is None or b is None or source.split(".")[2] == target.split(".")[2]:
        return True
    return b < a


@pytest.mark.parametrize("room", sorted(SUB_ROOMS))
def test_inside_a_room_imports_go_down_its_sub_rooms(room: str) -> None:
    wrong = [
        f"{name} imports {target}"
        for name, path in MODULES.items()
        if _room(name) == room
        for target in sorted(_targets(name, path))
        if _room(target) == room and not _allowed_inside(name, target)
    ]
    assert not wrong, f"upwards or sideways inside {room}: {wrong}"


@pytest.mark.parametrize("room", sorted(SUB_ROOMS))
def test_every_sub_room_has_its_floor(room: str) -> None:
    found = {path.parent.name for path in (PACKAGE / room).glob("*/__init__.py")}
    assert found == {name for names in SUB_ROOMS[room] for name in names}


def test_modules_form_no_cycle() -> None:
    """Imports in functions and under ``TYPE_CHECKING`` count: two modules that know each other are one."""
    edges = {
        name: {t for t in _targets(name, path) if t != name} for name, path in MODULES.items()
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
    assert not _allowed("mainstem.readers.queries.snapshot", "mainstem.writers.append")
    assert not _allowed("mainstem.api.table", "mainstem.cli.main")
    assert _allowed("mainstem.api.table", "mainstem.readers.queries.snapshot")
    assert not _allowed_inside("mainstem.readers.rows.split", "mainstem.readers.queries.snapshot")
    assert not _allowed_inside("mainstem.readers.rows.split", "mainstem.readers.planning.history")
    assert _allowed_inside("mainstem.readers.skipping.chooser", "mainstem.readers.rows.path_values")
