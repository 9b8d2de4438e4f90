"""Goal: the documentation site is whole: every page is in it, every public name is in its reference.

Method: mkdocs.yml and the pages are read as text, for mkdocs is not installed where tests run; `make docs`
builds the site and fails at any warning. Links are followed by test_readme.py.
"""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _documented() -> list[str]:
    """Dotted names of which the reference shows signature and docstring."""
    texts = [page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md"))]
    return [name for text in texts for name in re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE)]


@pytest.mark.parametrize(
    "package", ["mainstem", "mainstem.spark", "mainstem.flink", "mainstem.aio", "mainstem.polars"]
)
def test_every_public_name_is_in_the_reference_once(package: str) -> None:
    names = importlib.import_module(package).__all__
    documented = _documented()
    counts = {name: documented.count(f"{package}.{name}") for name in names if name != "__version__"}
    assert {name: count for name, count in counts.items() if count != 1} == {}


def test_the_reference_tells_the_version() -> None:
    assert "`mainstem.__version__`" in (REFERENCE / "python.md").read_text(encoding="utf-8")


def _has_docstring(name: str) -> bool:
    """Whether a module, or a class or function in one, has a docstring; nothing is imported."""
    module, _, attribute = name.rpartition(".")
    whole, part = (ROOT / f"{dotted.replace('.', '/')}.py" for dotted in (name, module))
    if whole.exists():
        return ast.get_docstring(ast.parse(whole.read_text(encoding="utf-8"))) is not None
    nodes = ast.parse(part.read_text(encoding="utf-8")).body if part.exists() else []
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [n for n in nodes if isinstance(n, kinds) and n.name == attribute]
    return any(ast.get_docstring(node) for node in found)


def test_what_else_the_reference_shows_is_where_it_says() -> None:
    public = re.compile(r"mainstem\.(spark\.|flink\.|aio\.)?\w+")
    others = [name for name in _documented() if not public.fullmatch(name)]
    assert others
    assert [name for name in others if not _has_docstring(name)] == []


def test_every_page_is_in_the_navigation_once() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- [^:]+: (\S+\.md)$", settings, re.MULTILINE)
    assert sorted(listed) == sorted(map(_name, PAGES))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_lists_and_tables_follow_an_empty_line(page: Path) -> None:
    """GitHub takes them without one; Python-Markdown runs them into the paragraph above."""
    text = re.sub(r"^```.*?^```", "```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    begins = re.compile(r"([-*+]|\d+\.) |\|")
    wrong = [
        line
        for before, line in zip(["", *text.splitlines()], text.splitlines(), strict=False)
        if begins.match(line) and before.strip() and not begins.match(before) and not before.startswith("  ")
    ]
    assert wrong == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "PROTOCOL.md", "docs/avro.md"])
def test_modules_that_are_named_are_there(page: str) -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.(?:py|json))", (ROOT / page).read_text(encoding="utf-8"))
    places = (ROOT, ROOT / "mainstem")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []
