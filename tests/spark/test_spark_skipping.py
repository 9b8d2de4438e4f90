"""Goal: Spark gets a task for each file slice that a filter leaves, and the options that decide about it.

Method: the data source's reader is asked for its partitions, as Spark's planner does; no JVM runs.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import mainstem
from mainstem.errors import Unsupported
from mainstem.spark import explain
from mainstem.spark.options import ReadOptions
from mainstem.spark.source_readers import Reader
from mainstem.spark.types import spark_schema

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
FAST = {"hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spark") / "t"
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=8, properties=FAST
    )
    numbers = range(200)
    cities = [("oslo", "rome")[n % 2] for n in numbers]
    table.upsert(pa.table([pa.array(numbers), pa.array(cities), pa.array(numbers)], schema=SCHEMA))
    return path


def tasks(folder: Path, **options: str) -> int:
    parsed = ReadOptions.parse({"path": str(folder), **options})
    schema = mainstem.open_table(folder).scan().schema
    return len(Reader(parsed, spark_schema(schema)).partitions())


def test_a_filter_on_the_key_makes_a_task_for_one_bucket_of_each_partition(folder: Path) -> None:
    assert tasks(folder) == 16
    assert tasks(folder, filter="id = 7") == 2
    assert tasks(folder, filter="id = 7 and city = 'rome'") == 1


def test_options_of_a_read_switch_it_off(folder: Path) -> None:
    assert tasks(folder, filter="id = 7", **{"hoodie.enable.data.skipping": "false"}) == 16
    assert tasks(folder, filter="id = 7", **{"hoodie.metadata.enable": "false"}) == 2


def test_what_a_read_leaves_out_is_told_without_a_session(folder: Path) -> None:
    told = explain(str(folder), filter="id = 7 and city = 'rome'")
    assert "reads 1 of 2 partitions, 1 of 8 file slices" in str(told), str(told)
    with pytest.raises(Unsupported, match="explain"):
        explain(str(folder), **{"hoodie.datasource.query.type": "incremental",
                                "hoodie.datasource.read.begin.instanttime": "earliest"})  # fmt: skip
