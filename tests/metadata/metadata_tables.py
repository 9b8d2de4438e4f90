"""Java's tables with a metadata table: opened, and what the json says about them."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from mainstem.layout.properties import load_config
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.readers.planning.table_state import TableState
from mainstem.storage.protocol import Storage
from tests.golden_tables.tables import GOLDEN, NAMES, expectations
from tests.storage.steps import storage_at


def _has_metadata(name: str) -> bool:
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        return any(".hoodie/metadata/.hoodie/timeline/" in entry for entry in archive.namelist())


WITH_METADATA = [name for name in NAMES if _has_metadata(name)]
#: those of which the json has the records (Flink's tables have none: Spark did not look at them)
WITH_RECORDS = [name for name in WITH_METADATA if expectations(name).get("mdt_records")]


def state_of(path: Path, storage: Storage | None = None) -> TableState:
    """The table's newest state."""
    storage = storage or storage_at(path)
    return TableState.load(storage, load_config(storage))


def metadata_of(path: Path, storage: Storage | None = None) -> MetadataTable:
    """Its metadata table."""
    found = state_of(path, storage).metadata_table
    assert found is not None
    return found


def java_records(name: str) -> Counter[str]:
    """``mdt_records`` as texts; the order of names in a listing does not count."""
    found: Counter[str] = Counter()
    for records in expectations(name)["mdt_records"].values():
        for record in records:
            found[record_text(record)] += 1
    return found


def record_text(record: dict[str, Any]) -> str:
    """A record as text that compares."""
    if "filesystemMetadata" in record:
        record = {**record, "filesystemMetadata": sorted(record["filesystemMetadata"])}
    return json.dumps(record, sort_keys=True)
