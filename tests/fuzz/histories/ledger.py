"""What was answered for which time. Asked again after any later action, the answer is the same, or a refusal.

A refusal is right only where files may be gone: after a clean, a rollback or a restore that ran since.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

Answer = tuple[tuple[tuple[str, str], ...], Counter]


@dataclass
class _Noted:
    answer: Any
    removals: int


@dataclass
class Answers:
    """By query and its times."""

    noted: dict[tuple[str, tuple[str, ...]], _Noted] = field(default_factory=dict)
    #: how many actions have run that remove files
    removals: int = 0

    def note(self, query: str, times: tuple[str, ...], answer: Any) -> None:
        """Remember an answer; one that was given before stays."""
        self.noted.setdefault((query, times), _Noted(answer, self.removals))

    def may_refuse(self, query: str, times: tuple[str, ...]) -> bool:
        """Whether files may have gone since."""
        return self.noted[query, times].removals < self.removals

    def forget(self, *queries: str) -> None:
        """Forget the answers of these queries."""
        self.noted = {key: noted for key, noted in self.noted.items() if key[0] not in queries}


def answer_of(table: pa.Table) -> Answer:
    """Columns, types and rows, in a form that compares."""
    from tests.fuzz.histories.world import bag

    return tuple((f.name, str(f.type)) for f in table.schema), bag(table)
