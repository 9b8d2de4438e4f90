"""A Flink SQL job into the table, in the client's own small cluster; its argument is JSON.

The source is Flink's ``datagen`` with a sequence, whose place is in the checkpoints: a process that starts
goes on from the newest one. What checkpoints complete is committed by the client's committer, by the next
process, or by whoever is left; nobody but the timeline knows how far it is, so the process notes that there
for the watchers of the run. It ends with a savepoint when the stop file exists.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from tests.chaos.rows import sql_columns
from tests.multiprocess.writer_worker import Journal, entries

#: the exit code of a job that failed
FAILED = 8
_LOOK_S = 0.3
_ALWAYS = 10_000_000

_TABLE = """
CREATE TABLE {sink} (id STRING, city STRING, ts BIGINT, `value` STRING, amount DOUBLE,
  PRIMARY KEY (id) NOT ENFORCED)
PARTITIONED BY (city) WITH ('connector' = 'hudi', 'path' = '{path}', 'table.type' = 'MERGE_ON_READ',
  'index.type' = 'BUCKET', 'hoodie.bucket.index.num.buckets' = '2', 'ordering.fields' = 'ts',
  'write.client.id' = '{sink}', 'compaction.schedule.enabled' = 'false', 'compaction.async.enabled' = 'false',
  'clean.async.enabled' = 'false', 'hoodie.archive.automatic' = 'false', {options})
"""
_SOURCE = """
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '{end}')
"""


def main(given: dict) -> None:
    os.environ["PYFLINK_CLIENT_EXECUTABLE"] = sys.executable
    os.environ["JVM_ARGS"] = f"-Xmx{given['memory']} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, StreamTableEnvironment

    from mainstem.flink import connect

    settings = Configuration()
    for key, value in _settings(given).items():
        settings.set_string(key, value)
    chosen = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings)
    t = connect(StreamTableEnvironment.create(environment_settings=chosen.build()))
    options = ", ".join(f"'{key}' = '{value}'" for key, value in given["options"].items())
    t.execute_sql(_TABLE.format(sink=given["sink"], path=given["path"], options=options))
    t.execute_sql(_SOURCE.format(rate=given["rate"], end=_ALWAYS))
    columns = sql_columns(given["source"], "n").replace("AS value", "AS `value`")
    result = t.execute_sql(f"INSERT INTO {given['sink']} SELECT {columns} FROM numbers")
    follow(result, given)


def _settings(given: dict) -> dict[str, str]:
    settings = {
        "execution.checkpointing.interval": f"{given['checkpoint_ms']} ms",
        "execution.checkpointing.dir": f"file://{given['checkpoint']}",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.fixed-delay.delay": "500 ms",
        "parallelism.default": "1",
        "python.executable": sys.executable,
        "taskmanager.memory.network.max": "16m",
        "taskmanager.memory.network.min": "16m",
        "taskmanager.memory.managed.size": "64m",
    }
    if newest := newest_checkpoint(Path(given["checkpoint"])):
        settings["execution.state-recovery.path"] = f"file://{newest}"
    return settings


def newest_checkpoint(folder: Path) -> Path | None:
    """The last checkpoint that completed, of whichever run of the job."""
    found = list(folder.glob("*/chk-*/_metadata"))
    return max(found, key=lambda path: path.stat().st_mtime_ns).parent if found else None


def follow(result, given: dict) -> None:
    """Note commits of this process; stop with a savepoint once told so."""
    done, seen = Journal(given["journal"]), 0
    number = len(entries(Path(given["journal"])))
    client = result.get_job_client()
    while True:
        for outcome in result.outcomes[seen:]:
            done.add(batch=number, status=outcome.status, instant=outcome.instant, rows=outcome.rows)
            seen, number = seen + 1, number + 1
        status = client.get_job_status().result().name
        if status in ("FAILED", "CANCELED", "FINISHED"):
            sys.stderr.write(f"the job ended as {status}\n")
            os._exit(FAILED)
        if os.path.exists(given["stop"]) and number:
            client.stop_with_savepoint(False, given["checkpoint"] + "-savepoint").result()
            result.wait()
            os._exit(0)
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
