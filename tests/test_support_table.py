"""Goal: docs/support.md says what tests prove, no more and no less.

Method: the page must be what scripts/support_table.py makes of docs/support.json, which a test run
writes; and every feature in there must still be marked in the tests, every mark be in there.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path

from scripts.support_table import PAGE, REPORT, page
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


def _texts() -> set[str]:
    """Every text written in the tests: marks made in a loop or a parametrisation are no literal marks."""
    return {
        node.value
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _report() -> dict[str, dict[str, list[str]]]:
    return json.loads(REPORT.read_text(encoding="utf-8"))


def test_the_page_is_made_of_the_report() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(_report(), GROUPS) == text, "run: python scripts/support_table.py"


def test_the_page_has_one_line_per_feature() -> None:
    """`|` in a feature would break its row."""
    features = [(group, feature) for group, listed in _report().items() for feature in listed]
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "| `" in line]
    assert len(rows) == len(features)
    assert not [feature for _, feature in features if "|" in feature]


def test_every_mark_is_in_the_report() -> None:
    reported = {(group, feature) for group, features in _report().items() for feature in features}
    assert not _marks() - reported, "run the tests with --support-report docs/support.json"


def test_every_feature_in_the_report_is_still_marked() -> None:
    texts = _texts()
    gone = [feature for features in _report().values() for feature in features if feature not in texts]
    assert not gone, f"proved by no test any more: take them out of {REPORT.name}"


def test_every_file_that_proves_a_feature_is_there() -> None:
    files = {file for features in _report().values() for proofs in features.values() for file in proofs}
    assert sorted(f for f in files if not (TESTS.parent / f).exists()) == []
