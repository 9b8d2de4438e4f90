"""Goal: README.md fits on a page, and no page of ours points nowhere.

Method: words are counted as `wc -w` counts them; links and anchors of all Markdown files are followed; the
first steps in plain Python are run. README's own examples are run by test_package.py (Python),
spark/test_spark_readme.py and flink/test_flink_readme.py.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.readme import README

ROOT = README.parent
ROOMS = ("docs", "benchmarks", "tests")
PAGES = sorted([*ROOT.glob("*.md"), *(page for room in ROOMS for page in (ROOT / room).rglob("*.md"))])
LINK = re.compile(r"\]\(([^)\s]+)\)")
MOST_WORDS = 900


def _prose(page: Path) -> str:
    """The page without its code, in which brackets are no links."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "code", text)


@cache
def _anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub and MkDocs make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def _leads_somewhere(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or anchor in _anchors(target))


def test_the_readme_is_at_most_900_words() -> None:
    assert len(README.read_text(encoding="utf-8").split()) <= MOST_WORDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    links = LINK.findall(_prose(page))
    assert [link for link in links if not _leads_somewhere(page, link)] == []


def test_the_readmes_commands_are_targets_of_make() -> None:
    asked = set(re.findall(r"`?\bmake ([a-z-]+)", README.read_text(encoding="utf-8")))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"setup", "demo"} <= asked <= targets


def test_the_first_steps_in_plain_python_run(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
    steps = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    plain = [code for code in steps if "pyspark" not in code and "pyflink" not in code]
    assert len(plain) == 3, "a table, its indexes, vectors"
    exec("".join(plain).replace("/tmp/", f"{tmp_path}/"), {})
