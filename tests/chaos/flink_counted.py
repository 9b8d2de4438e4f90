"""A Flink SQL job that writes the numbers from 1 up; its argument is JSON. It ends when the numbers end.

Started again it goes on from the newest checkpoint or savepoint that was completed, of whichever run.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from mainstem.errors import Unavailable

_SOURCES = {
    # A sequence whose place is in the checkpoints; to Flink it is endless.
    "endless": "(id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}', 'fields.id.kind' ="
    " 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '{count}')",
    "bounded": "(id BIGINT) WITH ('connector' = 'filesystem', 'path' = 'file://{files}', 'format' = 'csv')",
}


def main(given: dict) -> None:
    os.environ["PYFLINK_CLIENT_EXECUTABLE"] = sys.executable
    os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112  # workers that can be killed
    os.environ["JVM_ARGS"] = "-Xmx768m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    os.environ["FLINK_LOG_DIR"] = given["logs"]
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, StreamTableEnvironment

    from mainstem.flink import connect

    settings = Configuration()
    for key, value in _settings(given).items():
        settings.set_string(key, value)
    chosen = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings)
    t = connect(StreamTableEnvironment.create(environment_settings=chosen.build()))
    t.execute_sql(f"CREATE TABLE numbers {_SOURCES[given['source']].format(**given)}")
    t.execute_sql(
        "CREATE TABLE counted (id BIGINT, text STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' ="
        f" 'hudi', 'path' = '{given['path']}', 'table.type' = 'MERGE_ON_READ', 'index.type' = 'BUCKET',"
        " 'ordering.fields' = 'no_precombine', 'compaction.schedule.enabled' = 'false',"
        " 'compaction.async.enabled' = 'false', 'clean.async.enabled' = 'false',"
        " 'hoodie.archive.automatic' = 'false')"  # so that all commits can be counted
    )
    result = t.execute_sql("INSERT INTO counted SELECT id, CAST(id AS STRING) FROM numbers")
    client = result.get_job_client()
    Path(given["started"]).write_text(str(client.get_job_id()))
    while True:
        try:
            result.wait(100)
            return
        except Unavailable:  # not ended yet
            if os.path.exists(given["stop"]):
                client.stop_with_savepoint(False, given["checkpoints"]).result()
                os.unlink(given["stop"])


def _settings(given: dict) -> dict[str, str]:
    settings = {
        "execution.checkpointing.interval": f"{given['every_ms']} ms",
        "execution.checkpointing.dir": f"file://{given['checkpoints']}",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.fixed-delay.delay": "200 ms",
        "parallelism.default": str(given["tasks"]),
        "python.executable": sys.executable,
        **given["settings"],
    }
    if newest := newest_state(Path(given["checkpoints"])):
        settings["execution.state-recovery.path"] = f"file://{newest}"
    return settings


def newest_state(folder: Path) -> Path | None:
    """The last checkpoint or savepoint that was completed."""
    found = [*folder.glob("*/chk-*/_metadata"), *folder.glob("savepoint-*/_metadata")]
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent if found else None


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
