"""README.md's examples, for tests that run them."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
TABLE = "/tmp/trips"


def example(engine: str, folder: Path) -> str:
    """The code under the bold word ``engine``, with its table and checkpoint in ``folder``."""
    text = README.read_text(encoding="utf-8")
    found = re.search(rf"^\*\*{engine}\*\*[^\n]*\n\n```\w+\n(.*?)```", text, re.MULTILINE | re.DOTALL)
    assert found, f"README.md has no example for {engine}"
    assert TABLE in found[1], f"README.md's example for {engine} is not about {TABLE}"
    return found[1].replace(TABLE, str(folder / "trips"))
