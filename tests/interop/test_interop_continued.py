"""Goal: Java reads what mainstem made of the tables that Java wrote.

Method: every golden table that mainstem may write is gone on with (updates, deletes, a compaction, more
of both); Java's snapshot must be the rows of a model in plain Python, and Java and mainstem must read
the same base files.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from java_hudi import JavaHudi

from tests.golden_tables.continued import TABLES, Continued, open_as_its_writers, refusal, shown
from tests.golden_tables.tables import expectations


def _is_known_to_java(name: str) -> bool:
    """Java 1.2.0 reads no table of version 10; test_interop_version_10.py asks the one that does."""
    return int(expectations(name)["table_config"]["hoodie.table.version"]) < 10


WRITTEN = [name for name in TABLES if refusal(name) is None and _is_known_to_java(name)]
# Java's snapshot shows rows of an instant that never completed (SAFETY.md), so it cannot be the model's.
SHOWS_UNCOMMITTED = ("orphan_resurrected",)


@pytest.mark.parametrize("name", WRITTEN)
def test_java_reads_its_own_table_after_we_went_on_with_it(
    name: str, java: JavaHudi, tmp_path: Path
) -> None:
    continued = Continued(open_as_its_writers(name, tmp_path))
    continued.go_on()
    table = continued.table
    if name not in SHOWS_UNCOMMITTED:
        assert shown(java.read(table.path)) == continued.expected()
    if table.config.metadata_partitions:
        through = java.read(table.path, {"hoodie.metadata.enable": "true"})
        assert shown(through) == continued.expected()
    optimized = table.scan(mode="read_optimized").to_arrow()
    assert shown(java.read_optimized(table.path)) == shown(optimized)
