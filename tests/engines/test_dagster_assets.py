"""Goal: assets of Dagster are tables: made again they are replaced, whole or by partition, in one commit.

Method: Dagster materializes assets in this process; what they are given and what they left is looked at.
"""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import mainstem
from tests.engines.conftest import rows
from tests.engines.documented import programs

dagster = pytest.importorskip("dagster")


@pytest.mark.supports("Engines", "Dagster: assets as tables, whole or by partition")
def test_the_program_of_the_page_makes_assets_that_are_tables(tmp_path) -> None:
    known: dict[str, object] = {}
    exec(programs("Dagster").replace("/lake", str(tmp_path)), known)
    trips = mainstem.open_table(tmp_path / "trips")
    assert trips.config.record_key == ("id",) and trips.scan().count_rows() == 4
    fares = mainstem.open_table(tmp_path / "city_fares").scan(columns=["city", "fare"]).to_pandas()
    assert dict(zip(fares["city"], fares["fare"], strict=True)) == {"oslo": 30.0, "rome": 12.0}


def test_a_partition_that_is_made_again_replaces_its_rows_only(tmp_path) -> None:
    from mainstem.dagster import MainstemIOManager

    left = {"count": 6}
    cities = dagster.StaticPartitionsDefinition(["oslo", "rome"])
    kind = {"record_key": "id", "ordering": "ts", "partition_by": "city"}

    @dagster.asset(partitions_def=cities, metadata=kind)
    def trips(context) -> pa.Table:
        every = rows(range(left["count"]))
        city = left.get("stray") or context.partition_key
        return every.set_column(2, "city", pa.array([city] * every.num_rows))

    @dagster.asset(partitions_def=cities)
    def counted(context, trips: pd.DataFrame) -> None:
        assert set(trips["city"]) <= {context.partition_key} and len(trips) == left["count"]

    @dagster.asset
    def seen(trips: ds.Dataset) -> pd.DataFrame:
        return pd.DataFrame({"rows": [trips.count_rows()]})

    manager = {"io_manager": MainstemIOManager(root=str(tmp_path))}

    def make(*assets, key=None, **how):
        return dagster.materialize([trips, counted, seen], resources=manager, selection=list(assets),
                                   partition_key=key, raise_on_error=False, **how)  # fmt: skip

    assert all(make(trips, counted, key=key).success for key in ("oslo", "rome"))
    table = mainstem.open_table(tmp_path / "trips")
    assert table.scan().count_rows() == 12 and make(seen).success
    left["count"] = 2
    assert make(trips, counted, key="rome").success
    assert sorted(table.to_pandas()["city"]) == ["oslo"] * 6 + ["rome"] * 2
    assert mainstem.open_table(tmp_path / "seen").to_pandas()["rows"].tolist() == [12]
    left["stray"] = "oslo"
    refused = make(trips, key="rome")
    assert not refused.success and "it returned rows with city = 'oslo'" in str(refused.all_node_events)
    assert table.scan().count_rows() == 8
    left.update(count=0, stray=None)
    assert make(trips, key="rome").success and set(table.to_pandas()["city"]) == {"oslo"}


def test_an_input_without_a_table_is_told(tmp_path) -> None:
    from mainstem.dagster import MainstemIOManager

    @dagster.asset
    def reader(trips: pa.Table) -> None: ...

    manager = {"io_manager": MainstemIOManager(root=str(tmp_path))}
    made = dagster.materialize(
        [reader, dagster.SourceAsset("trips")], resources=manager, raise_on_error=False
    )
    assert not made.success and "materialize it first" in str(made.all_node_events)
