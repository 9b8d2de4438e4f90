"""The programs and files of docs/engines.md, as they are written there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "engines.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(section: str) -> dict[str, str]:
    """The code blocks of a section whose first line is a comment with a file's name, by that name."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")
    text = rest.partition("\n## ")[0]
    found = {}
    for _, block in _BLOCK.findall(text):
        name = re.match(r"(?:#|--) (\S+)\n", block)
        if name:
            found[name[1]] = block
    return found


def programs(section: str) -> str:
    """The Python blocks of a section that have no name, one after another."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {section}\n")
    text = rest.partition("\n## ")[0]
    return "\n".join(b for kind, b in _BLOCK.findall(text) if kind == "python" and not b.startswith("# "))
