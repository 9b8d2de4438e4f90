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

from demos.flink_jobs import environment, kept_checkpoints, restarts
from mainstem.errors import MainstemError
from tests.chaos.rows import sql_columns
from tests.multiprocess.writer_worker import Journal, entries

#: the exit code of a job that failed
FAILED = 8
_LOOK_S = 0.3
# datagen keeps all numbers of a sequence that are still to come in memory and in each checkpoint.
_NUMBERS = 400_000

_TABLE = """
CREATE TABLE {sink} (id STRING, city STRING, ts BIGINT, `value` STRING, amount DOUBLE,
  PRIMARY KEY (id) NOT ENFORCED)
PARTITIONED BY (city) WITH ('connector' = 'hudi', 'path' = '{path}', 'table.type' = 'MERGE_ON_READ',
  {index}, 'ordering.fields' = 'ts',
  'write.client.id' = '{sink}', 'compaction.schedule.enabled' = 'false', 'compaction.async.enabled' = 'false',
  'clean.async.enabled' = 'false', 'hoodie.archive.automatic' = 'false', {options})
"""
# A job that runs on says the number of buckets that it was begun with, whatever the table has by now.
_INDEX = {
    "BUCKET": "'index.type' = 'BUCKET', 'hoodie.bucket.index.num.buckets' = '2'",
    "SIMPLE": "'index.type' = 'SIMPLE'",
}
_SOURCE = """
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{rate}',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '{end}')
"""


def main(given: dict) -> None:
    os.environ["PYFLINK_CLIENT_EXECUTABLE"] = sys.executable
    os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112  # workers that can be killed
    os.environ["FLINK_LOG_DIR"] = given["checkpoint"] + "-log"
    os.makedirs(os.environ["FLINK_LOG_DIR"], exist_ok=True)
    os.environ["JVM_ARGS"] = f"-Xmx{given['memory']} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    from mainstem.flink import connect

    settings = {
        **kept_checkpoints(Path(given["checkpoint"]), given["checkpoint_ms"]),
        **restarts(500),
        "parallelism.default": "1",
        "taskmanager.memory.network.max": "16m",
        "taskmanager.memory.network.min": "16m",
        "taskmanager.memory.managed.size": "64m",
    }
    t = connect(environment(settings))
    options = ", ".join(f"'{key}' = '{value}'" for key, value in given["options"].items())
    names = {"sink": given["sink"], "path": given["path"], "index": _INDEX[given["index"]]}
    t.execute_sql(_TABLE.format(**names, options=options))
    t.execute_sql(_SOURCE.format(rate=given["rate"], end=_NUMBERS))
    columns = sql_columns(given["source"], "n").replace("AS value", "AS `value`")
    trouble = Journal(given["journal"] + ".errors")
    while True:
        try:
            result = t.execute_sql(f"INSERT INTO {given['sink']} SELECT {columns} FROM numbers")
            break
        except MainstemError as error:  # what an earlier process left could not be committed now
            trouble.add(error=type(error).__name__, message=str(error))
            time.sleep(0.2)
    follow(result, given, trouble)


def follow(result, given: dict, trouble: Journal) -> None:
    """Note commits of this process, and what it is told; stop with a savepoint once told so."""
    done, seen, told = Journal(given["journal"]), 0, None
    number = len(entries(Path(given["journal"])))
    client = result.get_job_client()
    while True:
        for outcome in result.outcomes[seen:]:
            done.add(batch=number, status=outcome.status, instant=outcome.instant, rows=outcome.rows)
            seen, number = seen + 1, number + 1
        if result.error is not told:
            told = result.error
            if told is not None:
                trouble.add(error=type(told).__name__, message=str(told))
        status = client.get_job_status().result().name
        if status in ("FAILED", "CANCELED", "FINISHED"):
            sys.stderr.write(f"the job ended as {status}\n")
            os._exit(FAILED)
        if os.path.exists(given["stop"]) and number:
            _end(result, given, trouble)
        time.sleep(_LOOK_S)


def _end(result, given: dict, trouble: Journal) -> None:
    """A last checkpoint, and all of it committed."""
    while True:
        try:
            result.get_job_client().stop_with_savepoint(False, given["checkpoint"] + "-savepoint").result()
            break
        except Exception as error:  # the job starts again just now
            sys.stderr.write(f"no savepoint yet: {error}\n")
            time.sleep(1)
    while True:
        try:
            result.wait()
            os._exit(0)
        except MainstemError as error:
            trouble.add(error=type(error).__name__, message=str(error))
            time.sleep(0.2)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
