"""Goal: the two cases in which hudi-rs 0.5 gives fewer rows than the table holds are known.

Method: tables whose file groups have no base file yet are read with hudi-rs, once with instants that are
archived and once behind a metadata table; both readers agree as soon as the file groups have base files. A
case that is gone in a newer hudi-rs fails here, so that README.md and docs/interop.md stay true.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from tests.hudi_rs.reading import read

pytest.importorskip("hudi")
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
FAST = {
    "hoodie.mainstem.exclusive": True,
    "hoodie.mainstem.fsync": False,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 6,
    "hoodie.clean.commits.retained": 2,
}


def written(path: Path, commits: int, **properties: object) -> mainstem.Table:
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=2, properties={**FAST, **properties}
    )
    for ts in range(commits):
        table.upsert(pa.table({"id": [f"k{ts}"], "ts": [ts]}, SCHEMA))
    return table


def ids(table: mainstem.Table) -> tuple[list[str], list[str]]:
    """Keys as mainstem reads them, and as hudi-rs does."""
    theirs, error = read(Path(table.path))
    assert theirs is not None, error
    found = theirs.column("id").to_pylist() if "id" in theirs.schema.names else []
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist()), sorted(found)


def test_hudi_rs_lacks_log_files_of_archived_instants_where_a_file_group_has_no_base_file(
    tmp_path: Path,
) -> None:
    table = written(tmp_path / "t", 14)
    everything = sorted(f"k{ts}" for ts in range(14))
    assert ids(table) == (everything, everything)
    table.archive()
    active = [instant.requested for instant in table.timeline()]
    assert len(active) == 5
    assert ids(table) == (everything, sorted(f"k{ts}" for ts in range(9, 14)))
    table.compact()
    assert ids(table) == (everything, everything)


def test_once_a_file_group_has_a_base_file_hudi_rs_reads_archived_instants_too(tmp_path: Path) -> None:
    table = written(tmp_path / "t", 3)
    table.compact()
    for ts in range(3, 14):
        table.upsert(pa.table({"id": [f"k{ts}"], "ts": [ts]}, SCHEMA))
    table.archive()
    assert len(table.timeline()) == 5
    assert ids(table) == (sorted(f"k{ts}" for ts in range(14)),) * 2


def test_hudi_rs_lacks_file_groups_without_base_file_behind_a_metadata_table(tmp_path: Path) -> None:
    table = written(tmp_path / "t", 3, **{"hoodie.metadata.enable": True})
    everything = ["k0", "k1", "k2"]
    assert ids(table) == (everything, [])
    table.compact()
    assert ids(table) == (everything, everything)
    table.upsert(pa.table({"id": ["k0", "more"], "ts": [9, 9]}, SCHEMA))
    assert ids(table) == ([*everything, "more"],) * 2
