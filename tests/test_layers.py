"""Goal: imports inside the package go downwards only, nothing forms a cycle, and ARCHITECTURE.md shows it so.

Method: every ``import`` statement of every module (nested ones and those under ``TYPE_CHECKING``
too) is read with ``ast`` and checked against the layers of ARCHITECTURE.md, written down here once.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "mainstem"

# Rooms from the ground up. A room may import rooms of lower floors, and nothing else.
FLOORS = (
    ("errors", "lazy"),
    ("limits", "forks"),
    ("options",),
    ("telemetry",),
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
    ("doctor",),
    ("iceberg",),
    ("catalogs",),
    ("api",),
    ("engines",),
    ("spark", "flink", "ingestion", "aio", "polars", "ui", "ray", "daft", "dask", "dbt", "dagster"),
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
        return FLOOR[b] <= FLOOR["api"] or b == "ingestion"  # the public names, for type checkers
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


ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def _drawn_floors() -> list[list[str]]:
    """Rooms and sub-rooms as ARCHITECTURE.md draws them, floor by floor."""
    drawing = ARCHITECTURE.partition("## Rooms")[2].split("```")[1]
    return [[line.split()[0] for line in floor.splitlines()] for floor in drawing.strip().split("\n\n")]


def test_architecture_draws_the_floors_as_they_are() -> None:
    drawn = [tuple(room for room in floor if "/" not in room) for floor in _drawn_floors()]
    assert [set(rooms) for rooms in drawn] == [set(rooms) for rooms in FLOORS]
    assert all(len(line.split(maxsplit=1)) == 2 for line in _rooms_with_words()), "say what each room is"


def _rooms_with_words() -> list[str]:
    return [line for line in ARCHITECTURE.partition("## Rooms")[2].split("```")[1].splitlines() if line]


def test_architecture_names_every_room_and_sub_room_and_none_that_is_gone() -> None:
    folders = {
        path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py")
    } - {"."}
    single = {path.stem for path in PACKAGE.glob("*.py")} - {FRONT_DOOR}
    drawn = [room for floor in _drawn_floors() for room in floor]
    assert sorted(drawn) == sorted(folders | single)
    for floor in _drawn_floors():
        for room in floor:
            assert room.split("/")[0] in floor, f"{room} stands on another floor than its room"


def test_architecture_names_no_module_that_is_gone() -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)", ARCHITECTURE)
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    there |= {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    gone = [name for name in named if name not in there and not _beside(name, there)]
    assert named and not gone


def _beside(name: str, there: set[str]) -> bool:
    """A bare file name, in a sentence that has named its folder."""
    return "/" not in name and any(path.endswith(f"/{name}") for path in there)


# A file name that several rooms have means the same thing in each.
SHARED_NAMES = {
    "__init__": "what lives in the room and what may not",
    "options": "the options of this room, checked and read into values",
    "protocol": "what every implementation in this room must do",
    "services": "table services",
    "indexes": "indexes of a table",
    "vectors": "vectors and vector indexes",
    "metadata": "the metadata table",
    "source": "tables read by an engine",
    "types": "an engine's types and Arrow's",
}


def test_rooms_share_a_file_name_only_where_it_means_the_same() -> None:
    rooms: dict[str, set[Path]] = {}
    for path in PACKAGE.rglob("*.py"):
        rooms.setdefault(path.stem, set()).add(path.parent)
    shared = {name for name, folders in rooms.items() if len(folders) > 1}
    assert shared - set(SHARED_NAMES) == set(), "rename one, or say what the name means"
    assert set(SHARED_NAMES) - shared == set(), "no longer shared"
