"""Seeded bugs of what SQL's statements write, and of what becomes of their deletes."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from mainstem.formats.log_file import delete_block
from mainstem.readers.rows import last_deletes
from mainstem.services import compaction, kept_deletes, log_merge
from mainstem.services.kept_deletes import DeletesSeen
from mainstem.writers import encode_rows
from mainstem.writers.fit_rows import without_mark
from tests.sim.mutants.mutant import Patch, seeded_bug


def _without_values(*given: Any) -> Any:
    return delete_block(*given[:4], None)


@seeded_bug("deletes of a statement lose the ordering values of their rows", "placed-statements")
def statement_without_ordering_values() -> list[Patch]:
    return [patch.object(encode_rows, "delete_block", _without_values)]


@seeded_bug("rows that a MERGE deletes are written as rows", "statements")
def statement_without_its_marks() -> list[Patch]:
    def unmarked(*given: Any) -> Any:
        return without_mark(*given)[0], None

    return [patch.object(encode_rows, "without_mark", unmarked)]


@seeded_bug("a compaction keeps deletes only where a column marks rows as deletes", "statements")
def kept_by_columns() -> list[Patch]:
    return [patch.object(DeletesSeen, "none", True)]


@seeded_bug("where no column marks deletes, only these are read, and no later row undoes one", "statements")
def kept_of_delete_blocks_alone() -> list[Patch]:
    entries = last_deletes._entries

    def deletes_only(*given: Any, **named: Any) -> Any:
        return entries(*given, **{**named, "only_deletes": True})

    return [patch.object(last_deletes, "_entries", deletes_only)]


@seeded_bug("a statement's deletes are kept below an overwrite that a compaction passed by", "statements")
def kept_below_an_overwrite() -> list[Patch]:
    def nowhere(*_: Any) -> None:
        return None

    return [patch.object(module, "overwritten", nowhere) for module in (kept_deletes, compaction)]


@seeded_bug("a log compaction merges deletes without their ordering values", "statements")
def merged_without_ordering_values() -> list[Patch]:
    return [patch.object(log_merge, "delete_block", _without_values)]
