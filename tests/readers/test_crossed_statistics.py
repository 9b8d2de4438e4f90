"""Goal: a filter never loses rows to partition statistics that crossed writers left.

Method: Java's own tables whose statistics do not bound the data (tests/golden/metadata_defects.json) are
asked for rows outside of the stored ranges, with indexes and without; and where writers took turns, the
statistics are used.
"""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.layout.properties import load_config
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.skipping.commit_order import written_in_turn
from tests.golden_tables.tables import unpack
from tests.storage.steps import storage_at

OUTSIDE = (
    ("nbcc_two_writers_mdt.crossed", pc.field("price") > 90),
    ("nbcc_two_writers_mdt.pending", pc.field("ts") > 1025),
)


@pytest.mark.parametrize(("name", "condition"), OUTSIDE, ids=[name for name, _ in OUTSIDE])
def test_rows_that_the_statistics_do_not_know_of_are_found(name, condition, tmp_path):
    path = unpack(name, tmp_path)
    plain = mainstem.open_table(path, properties={"hoodie.metadata.enable": "false"})
    rows = plain.scan(filter=condition).to_arrow()
    assert rows.num_rows > 1
    assert mainstem.open_table(path).scan(filter=condition).to_arrow().num_rows == rows.num_rows


@pytest.mark.parametrize(
    ("name", "expected"),
    [("nbcc_two_writers_mdt.crossed", False), ("nbcc_two_writers_mdt.pending", False), ("cow_basic", True)],
)
def test_writers_that_crossed_are_told_from_those_that_took_turns(name, expected, tmp_path):
    storage = storage_at(unpack(name, tmp_path))
    state = TableState.load(storage, load_config(storage))
    assert {written_in_turn(state, listing.names) for listing in state.partitions()} == {expected}
