"""docs/support.md: what is supported, made of what tests prove.

    python -m pytest tests --support-report docs/support.json     which tests passed
    python scripts/support_table.py                               the page from it

Tests carry the mark `supports(group, feature)`; a feature is listed when all its tests passed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "support.json"
PAGE = ROOT / "docs" / "support.md"
SHOWN = 2
HEAD = """# What is supported

<!-- Made by scripts/support_table.py from docs/support.json: do not edit. -->

Tests prove each line; `make support` runs them and writes this page. *Read* and *write* in brackets: the line
is about reading or writing alone. What mainstem does not do, and the way round: [limits.md](limits.md).
"""


def page(report: dict[str, dict[str, list[str]]], groups: tuple[str, ...]) -> str:
    """The whole page: a table for each of ``groups`` that has features, one line per feature."""
    told = [group for group in groups if report.get(group)]
    index = " · ".join(f"[{group}](#{group.lower().replace(' ', '-')})" for group in told)
    return "\n".join([HEAD, index, *(line for group in told for line in _table(group, report[group]))]) + "\n"


def _table(group: str, features: dict[str, list[str]]) -> list[str]:
    lines = ["", f"## {group}", "", "| feature | proved by |", "|---|---|"]
    for feature in sorted(features, key=str.lower):
        files = [f"`{file.removeprefix('tests/')}`" for file in features[feature]]
        more = f" and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
        lines.append(f"| {feature} | {', '.join(files[:SHOWN])}{more} |")
    return lines


def main() -> int:
    """Write the page anew from the report."""
    sys.path.insert(0, str(ROOT))
    from tests.conftest import GROUPS

    PAGE.write_text(page(json.loads(REPORT.read_text(encoding="utf-8")), GROUPS), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
