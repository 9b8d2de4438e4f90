"""Flink jobs as demos, benchmarks and chaos runs start them: environment, tables, states to go on from."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyflink.table import TableEnvironment


def environment(given: Mapping[str, str]) -> TableEnvironment:
    """A streaming table environment as every Flink user makes it."""
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    settings = Configuration()
    settings.set_string("python.executable", sys.executable)
    for name, value in given.items():
        settings.set_string(name, value)
    chosen = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings)
    return TableEnvironment.create(chosen.build())


def kept_checkpoints(folder: Path, every_ms: int) -> dict[str, str]:
    """Settings of a job whose checkpoints outlive it, and that goes on from its newest state."""
    settings = {
        "execution.checkpointing.interval": f"{every_ms} ms",
        "execution.checkpointing.dir": folder.as_uri(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    }
    if newest := newest_state(folder):
        settings["execution.state-recovery.path"] = newest.as_uri()
    return settings


def restarts(pause_ms: int) -> dict[str, str]:
    """Settings of a job that is started again after every failure.

    A Python worker that stands still, or dies while rows are being sent to it, is noticed by nothing but a
    checkpoint that is not completed, for which Flink waits ten minutes unless it is told.
    """
    return {
        "execution.checkpointing.timeout": "30 s",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.fixed-delay.delay": f"{pause_ms} ms",
    }


def newest_state(folder: Path) -> Path | None:
    """The last checkpoint or savepoint below a folder that was completed, of whichever run of the job."""
    found = [*folder.glob("*/chk-*/_metadata"), *folder.glob("savepoint-*/_metadata")]
    whole = [file for file in found if file.stat().st_size]
    return max(whole, key=lambda file: file.stat().st_mtime_ns).parent if whole else None


def declare(t: Any, name: str, columns: str, path: str | Path, **options: str) -> None:
    """Declare a Hudi table that many writers may write; ``options`` beside those that it needs for that."""
    given = {
        "connector": "hudi",
        "path": str(path),
        "table.type": "MERGE_ON_READ",
        "index.type": "BUCKET",
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
        **options,
    }
    text = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    t.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({text})")


def stop(job: Any, savepoints: Path) -> None:
    """Stop a job behind a last checkpoint, and wait until all that it wrote is committed.

    By way of Java: PyFlink's own ``stop_with_savepoint`` calls a method that Flink 2 has no longer.
    """
    from pyflink.java_gateway import get_gateway

    java = get_gateway().jvm.org.apache.flink.core.execution
    client = job.get_job_client()._j_job_client
    client.stopWithSavepoint(False, savepoints.as_uri(), java.SavepointFormatType.DEFAULT).get()
    job.wait()
