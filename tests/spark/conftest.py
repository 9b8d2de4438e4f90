"""One small Spark session per module, without UI and log noise."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
# The JVMs of tests live for seconds: compiling less and one collector thread make them start sooner.
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f'--driver-java-options "{_QUICK_JVM}" pyspark-shell')
# Set before any test starts a JVM: one that lives already would start Python workers without it.
os.environ.setdefault("TEST_STORE_SECRET", "never-to-be-seen")


def until(done: Callable[[], bool], what: str, seconds: float = 400) -> None:
    """Wait for another process to come to a point."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"{what} took too long"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """``local[2,4]``: two slots, four attempts per task, as on a cluster."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")  # never the machine's own
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    from mainstem.spark import register

    register(session)
    yield session
    session.stop()
