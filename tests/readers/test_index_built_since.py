"""Goal: a query that began before an index was built anew does not ask it: of a row that was deleted in
between the new index knows nothing, and the query shows the table as it was before.

Method: between a query's listing of the timeline and its look at the metadata table a row is deleted and the
index rebuilt.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.layout import properties
from mainstem.metadata import metadata_table as metadata
from tests.services.city_table import QUICK, SCHEMA, rows


@pytest.mark.supports("Indexes", "secondary index: maintained and built beside writers")
def test_a_row_that_is_deleted_while_the_index_is_rebuilt_is_shown_by_an_earlier_query(
    tmp_path: Path, monkeypatch
) -> None:
    kinds = frozenset({*properties.MAINTAINED, "record_index", "secondary_index"})
    monkeypatch.setattr(properties, "MAINTAINED", kinds)
    given = {**QUICK, "hoodie.mainstem.exclusive": "true"}
    mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=2, properties=given
    )
    table = mainstem.open_table(tmp_path / "t", properties=QUICK)
    table.upsert(rows(range(10), 1))
    table.create_index("record_index")
    table.create_index("secondary_index", ["value"], name="by_value")
    real, done = metadata.open_metadata, []

    def late(*args, **options):
        if not done:
            done.append(True)
            other = mainstem.open_table(tmp_path / "t", properties=QUICK)
            other.delete(rows([3], 5))
            other.reindex("by_value")
        return real(*args, **options)

    wanted = pc.field("value") == "v3"
    assert table.scan(filter=wanted).to_arrow().num_rows == 1
    table = mainstem.open_table(tmp_path / "t", properties=QUICK)  # it has not opened the indexes yet
    plan = table.scan(filter=wanted)
    monkeypatch.setattr(metadata, "open_metadata", late)
    assert plan.to_arrow()["id"].to_pylist() == ["k03"] and done
    assert table.scan(filter=wanted).to_arrow().num_rows == 0
