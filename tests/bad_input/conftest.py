"""A small table with three committed rows."""

from __future__ import annotations

from pathlib import Path

import pytest

import mainstem
from bad_input.common import SCHEMA, rows

FAST = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}


@pytest.fixture
def make(tmp_path):
    """Factory of tables; keyword arguments are those of ``create_table``."""

    def made(name: str = "t", folder: Path | None = None, **arguments) -> mainstem.Table:
        options = {"record_key": "id", "ordering": "ts", "partition_by": "city", "buckets": 2}
        properties = {**FAST, **arguments.pop("properties", {})}
        return mainstem.create_table(
            (folder or tmp_path) / name,
            arguments.pop("schema", SCHEMA),
            **{**options, **arguments},
            properties=properties,
        )

    return made


@pytest.fixture
def table(make):
    """Partitioned by city, two buckets, event time; keys a, b, c are in it."""
    made = make()
    made.upsert(rows("a", "b", "c"))
    return made


@pytest.fixture
def path(table) -> Path:
    return Path(table.path)
