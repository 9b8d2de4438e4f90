"""Each engine as the same few functions, and Ray on this machine, started once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mainstem
from mainstem.writers.outcome import Outcome

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("city", pa.string()), ("fare", pa.float64())])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:  # what engines and their libraries say of one another is not ours
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))


def rows(keys: range, ts: int = 1) -> pa.Table:
    cities = ["oslo" if i % 2 else "rome" for i in keys]
    return pa.table([[f"k{i}" for i in keys], [ts] * len(keys), cities, [i / 2 for i in keys]], SCHEMA)


@dataclass(frozen=True)
class Engine:
    """An engine of tasks: rows into its frames (in ``parts`` parts), frames into rows, reads and writes."""

    name: str
    module: Any

    def frame(self, table: pa.Table, parts: int = 3) -> Any:
        if self.name == "ray":
            import ray.data

            return ray.data.from_arrow(table).repartition(parts)
        if self.name == "daft":
            import daft

            return daft.from_arrow(table)
        import dask.dataframe as dd
        import pandas as pd

        return dd.from_pandas(table.to_pandas(types_mapper=pd.ArrowDtype), npartitions=parts)

    def collected(self, frame: Any) -> pa.Table:
        if self.name == "ray":
            import ray

            blocks = [block for block in ray.get(frame.to_arrow_refs()) if block.num_rows]
            return pa.concat_tables(blocks) if blocks else pa.table({})
        if self.name == "daft":
            return frame.to_arrow()
        return pa.Table.from_pandas(frame.compute(), preserve_index=False)

    def keys(self, frame: Any) -> list[str]:
        found = self.collected(frame)
        return sorted(found["id"].to_pylist()) if found.num_columns else []

    def read(self, table: mainstem.Table, **how: Any) -> Any:
        return self.module.read(table, **how)

    def write(self, frame: Any, table: mainstem.Table, *how: Any, **more: Any) -> Outcome:
        return self.module.write(frame, table, *how, **more)


@pytest.fixture(scope="session")
def on_ray() -> Iterator[Any]:
    import ray

    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False,
        logging_level="error",
    )  # fmt: skip
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()


@pytest.fixture(params=["ray", "daft", "dask"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "ray":
        request.getfixturevalue("on_ray")
        import mainstem.ray as module
    elif request.param == "daft":
        import mainstem.daft as module
    else:
        import mainstem.dask as module
    return Engine(request.param, module)


@pytest.fixture
def table(tmp_path) -> mainstem.Table:
    return mainstem.create_table(tmp_path / "trips", SCHEMA, record_key="id", ordering="ts", buckets=3)
