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

# Room -> its layer. A room may import rooms of lower layers, and what SIDEWAYS names.
LAYERS = {
    "errors": 0, "forks": 0, "lazy": 0, "limits": 0, "options": 0,
    "storage": 1, "formats": 1,
    "truetime": 2, "seams": 2,
    "timeline": 3, "lsm_archive": 3,
    "table": 4, "merge": 4, "metadata": 4,
    "readers": 5, "writers": 5, "services": 6, "indexing": 6, "index_methods": 6,
    "vectors": 6, "vector_methods": 6,
    "opening": 6, "service_methods": 6, "client": 6, "create": 6, "engines": 6,
    "hoodie_options": 6,
    "spark": 7, "flink": 7, "cli_rows": 7, "cli_rounds": 7, "cli_services": 7, "cli_flink": 7, "cli": 7,
    "cli_index": 7, "cli_search": 7, "cli_metadata": 7, "__main__": 7,
}  # fmt: skip
SIDEWAYS = {
    ("limits", "errors"), ("forks", "errors"), ("options", "errors"), ("options", "limits"),
    ("seams", "truetime"),  # the seams name the clock's and the lock's protocols
    ("truetime", "seams"),  # and the fence is given its randomness through them
    ("lsm_archive", "timeline"),
    ("merge", "table"), ("metadata", "table"), ("metadata", "merge"),
    ("service_methods", "services"), ("service_methods", "indexing"),
    ("client", "service_methods"), ("client", "opening"),
    ("index_methods", "indexing"), ("client", "index_methods"), ("client", "indexing"),
    ("client", "vector_methods"), ("vector_methods", "vectors"),
    ("vectors", "indexing"), ("vectors", "services"), ("index_methods", "vectors"), ("client", "vectors"),
    ("service_methods", "vectors"),
    ("indexing", "services"), ("index_methods", "services"),
    ("create", "opening"), ("create", "client"), ("create", "hoodie_options"),
    ("client", "hoodie_options"), ("hoodie_options", "services"),
    ("engines", "client"), ("engines", "create"), ("engines", "services"), ("engines", "hoodie_options"),
    ("engines", "opening"), ("engines", "indexing"),
    ("cli", "cli_rows"), ("cli", "cli_services"), ("cli_services", "cli_rows"),
    ("cli", "cli_search"), ("cli_search", "cli_rows"),
    ("cli", "cli_index"), ("cli_index", "cli_services"), ("cli_index", "cli_rounds"),
    ("cli", "cli_metadata"), ("cli_metadata", "cli_rows"),
    ("cli", "cli_flink"), ("cli_flink", "cli_rounds"), ("cli_flink", "cli_rows"), ("cli_flink", "flink"),
    ("cli_services", "cli_rounds"), ("cli_rounds", "cli_rows"), ("__main__", "cli"),
}  # fmt: skip
# The package's front door: lazy (PEP 562), so it names what it hands out but imports nothing.
FRONT_DOOR = "__init__"
TESTING = "testing"


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
    if a in (b, TESTING):
        return True
    if a == FRONT_DOOR:
        return LAYERS[b] <= LAYERS["client"]  # the public names, for type checkers
    if b == FRONT_DOOR:  # `from mainstem import limits` is resolved to the room before
        return a in ("cli", "spark", "flink", "__main__")
    if b == TESTING:
        return False
    return LAYERS[b] < LAYERS[a] or (a, b) in SIDEWAYS


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_module_imports_only_what_lies_below_it(name: str) -> None:
    room = _room(name)
    assert room in LAYERS or room in (FRONT_DOOR, TESTING), f"give the room {room} a layer"
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


def test_the_layers_name_no_room_that_is_gone() -> None:
    rooms = {_room(name) for name in MODULES}
    optional = {"options", "__main__"}
    assert not set(LAYERS) - rooms - optional


def test_the_rule_itself_refuses_an_upward_import() -> None:
    assert not _allowed("mainstem.storage.local", "mainstem.timeline.active")
    assert not _allowed("mainstem.readers.snapshot", "mainstem.writers.append")
    assert not _allowed("mainstem.writers.append", "mainstem.testing.world")
    assert not _allowed("mainstem.client", "mainstem.cli")
    assert _allowed("mainstem.client", "mainstem.readers.snapshot")
