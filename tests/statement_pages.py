"""Pages of SQL in docs, whose statements run as they stand, or are refused as they say."""

from __future__ import annotations

import re
from pathlib import Path

_DOCS = Path(__file__).resolve().parents[1] / "docs"


def sections_of(page: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """(heading, [(statement, what its refusal says or "")]) of a page of this name."""
    found = []
    for part in re.split(r"^## ", (_DOCS / page).read_text(), flags=re.M):
        statements = []
        for block in re.findall(r"^```sql\n(.*?)^```", part, re.M | re.S):
            for text in re.split(r";\s*\n", block):
                if text.strip():
                    refused = re.match(r"\s*-- refused: (.*)\n", text)
                    statements.append((text.strip(), refused.group(1) if refused else ""))
        found.append((part.partition("\n")[0], statements))
    return [section for section in found if section[1]]
