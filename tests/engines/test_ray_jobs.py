"""Goal: what Ray pushes down reaches the files, and workers that die lose and double nothing.

Method: plans are read from the tasks of the source; tasks kill their own process while it stages rows; a
ledger of keys decides.
"""

from __future__ import annotations

import glob
import os
import pickle
import signal
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.engines.pinned import ReadTask
from mainstem.errors import Invalid
from tests.engines.conftest import SCHEMA, rows


def test_columns_and_expressions_reach_the_files(on_ray, table) -> None:
    from ray.data.expressions import col

    import mainstem.ray as mr

    table.upsert(rows(range(100)))
    source = mr.MainstemDatasource(table, columns=["id", "city", "fare"])
    filtered = source.apply_predicate((col("fare") > 48.0) & (col("city") == "rome"))
    pushed = filtered.apply_projection({"id": "id"})
    tables = [block for task in pushed.get_read_tasks(4) for block in task()]
    assert pa.concat_tables(tables).to_pydict() == {"id": ["k98"]}
    one_key = source.apply_predicate(col("id") == "k7").get_read_tasks(100)
    assert len(one_key) == 1 and len(source.get_read_tasks(2)) == 2 and len(source.get_read_tasks(9)) == 3
    assert isinstance(pickle.loads(pickle.dumps(source)).get_read_tasks(1)[0].read_fn._task, ReadTask)
    frame = mr.read(table)
    assert frame.count() == 100 and frame.filter(expr=col("fare") >= 40.0).count() == 20
    assert {row["id"] for row in frame.filter(lambda row: row["fare"] > 49).take_all()} == {"k99"}


def test_a_sink_serves_one_write(on_ray, table) -> None:
    import mainstem.ray as mr

    for guard in (None, mainstem.StreamGuard("once", 1)):
        sink = mr.MainstemDatasink(table, guard=guard)
        frame = on_ray.data.from_arrow(rows(range(5)))
        frame.write_datasink(sink)
        assert sink.outcome.rows == 5
        with pytest.raises(Invalid, match="make a new one for each write"):
            frame.write_datasink(sink)
    assert len(table.timeline()) == 2 and table.scan().count_rows() == 5


@pytest.mark.nothing_lost
@pytest.mark.supports("Engines", "Ray: workers are killed while they write, and nothing is lost or doubled")
@pytest.mark.parametrize("keyed", [True, False], ids=["keys", "no keys"])
def test_a_worker_killed_while_it_stages_loses_and_doubles_nothing(on_ray, tmp_path, keyed) -> None:
    import mainstem.ray as mr

    key = {"record_key": "id", "ordering": "ts", "buckets": 3} if keyed else {}
    table = mainstem.create_table(tmp_path / "t", SCHEMA, **key)
    deaths = str(tmp_path / "deaths")
    os.mkdir(deaths)
    frame = on_ray.data.from_arrow([rows(range(n * 100, n * 100 + 100)) for n in range(6)])

    def dies(batch: pa.Table) -> pa.Table:
        from mainstem.writers import rows_in

        rows_in.GATHERED_ROWS = 10  # else so few rows are in memory only
        first = batch["id"][0].as_py()
        if first in ("k160", "k460") and not os.path.exists(f"{deaths}/{first}"):
            of_tasks = glob.glob(f"{table.path}/.hoodie/.mainstem/task-rows/*")
            Path(deaths, first).write_text(str(len(of_tasks + glob.glob(f"{table.path}/.*.log.*"))))
            os.kill(os.getpid(), signal.SIGKILL)
        return batch

    context = on_ray.data.DataContext.get_current()
    context.target_max_block_size, before = 1000, context.target_max_block_size
    try:
        outcome = mr.write(frame.map_batches(dies, batch_size=20, batch_format="pyarrow"), table, "insert")
    finally:
        context.target_max_block_size = before
    assert sorted(os.listdir(deaths)) == ["k160", "k460"]
    assert all(int(Path(deaths, name).read_text()) for name in ("k160", "k460")), "nothing was staged by then"
    found = table.scan().to_arrow()["id"].to_pylist()
    assert sorted(found) == sorted(f"k{i}" for i in range(600)) and outcome.rows == 600
    assert set(table.files()["state"].to_pylist()) == {"current"} and len(table.timeline()) == 1
