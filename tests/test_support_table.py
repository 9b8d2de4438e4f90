"""Goal: README's table of what is supported says what tests prove, no more and no less.

Method: the table must be what scripts/support_table.py makes of docs/support.json, which a test run
writes; and every feature in there must still be marked in the tests, every mark be in there.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

from scripts.support_table import README, REPORT, spliced, table
from tests.conftest import GROUPS

TESTS = Path(__file__).resolve().parent


def _marks() -> set[tuple[str, str]]:
    """Every `supports("group", "feature")` written in the tests."""
    found = set()
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "supports"
                and all(isinstance(a, ast.Constant) for a in node.args)
            ):
                found.add(tuple(a.value for a in node.args))
    return found


def _report() -> dict[str, dict[str, list[str]]]:
    return json.loads(REPORT.read_text(encoding="utf-8"))


def test_the_table_in_the_readme_is_made_of_the_report() -> None:
    text = README.read_text(encoding="utf-8")
    assert spliced(text, table(_report(), GROUPS)) == text, "run: python scripts/support_table.py"


def test_every_feature_in_the_report_is_still_marked_and_every_mark_is_in_the_report() -> None:
    reported = {(group, feature) for group, features in _report().items() for feature in features}
    marked = _marks()
    assert not marked - reported, "run the tests with --support-report docs/support.json"
    # Marks made in a loop or a parametrisation are not literals: the files named must still exist.
    for group, features in _report().items():
        for feature, files in features.items():
            assert (group, feature) in marked or all(
                (TESTS.parent / f).exists() for f in files
            ), f"{feature} is proved by no test any more"
