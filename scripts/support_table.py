"""README's table of what is supported, made of what tests prove.

    python -m pytest tests --support-report docs/support.json     which tests passed
    python scripts/support_table.py                               README's table from it

Tests carry the mark `supports(group, feature)`; a feature is listed when all its tests passed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "support.json"
README = ROOT / "README.md"
BEGIN, END = "<!-- support table: begin -->", "<!-- support table: end -->"


def table(report: dict[str, dict[str, list[str]]], groups: tuple[str, ...]) -> str:
    """The lines between the two marks in README."""
    lines = ["| | supported, each line proved by tests |", "|---|---|"]
    for group in groups:
        features = sorted(report.get(group, {}), key=str.lower)
        if features:
            lines.append(f"| **{group}** | {'; '.join(features)} |")
    return "\n".join(lines)


def spliced(text: str, middle: str) -> str:
    """README with its table replaced."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{middle}\n{END}{after}"


def main() -> int:
    """Rewrite README's table from the report."""
    sys.path.insert(0, str(ROOT))
    from tests.conftest import GROUPS

    text = README.read_text(encoding="utf-8")
    README.write_text(spliced(text, table(json.loads(REPORT.read_text()), GROUPS)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
