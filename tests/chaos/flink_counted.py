"""A Flink SQL job that writes the numbers from 1 up; its argument is JSON. It ends when the numbers end.

With ``totals`` it also counts them by their last two digits, in state of its own, into a second table.

Started again it goes on from the newest checkpoint or savepoint that was completed, of whichever run.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from demos.flink_jobs import declare, environment, kept_checkpoints, restarts
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
    from mainstem.flink import connect

    settings = {
        **kept_checkpoints(Path(given["checkpoints"]), given["every_ms"]),
        **restarts(200),
        "task.cancellation.timeout": "20000",
        "parallelism.default": str(given["tasks"]),
        **given["settings"],
    }
    t = connect(environment(settings))
    t.execute_sql(f"CREATE TABLE numbers {_SOURCES[given['source']].format(**given)}")
    _declare(t, "counted", "id BIGINT, text STRING, PRIMARY KEY (id) NOT ENFORCED", given["path"])
    inserts = t.create_statement_set()
    inserts.add_insert_sql("INSERT INTO counted SELECT id, CAST(id AS STRING) FROM numbers")
    if given["totals"]:
        _declare(t, "totals", "digits BIGINT, n BIGINT, PRIMARY KEY (digits) NOT ENFORCED", given["totals"])
        inserts.add_insert_sql(
            "INSERT INTO totals SELECT digits, COUNT(*) FROM (SELECT MOD(id, 100) AS digits FROM numbers)"
            " GROUP BY digits"
        )
    result = inserts.execute()
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


def _declare(t, name: str, columns: str, path: str) -> None:
    """Without services: so that all commits can be counted."""
    without = ("compaction.schedule.enabled", "compaction.async.enabled", "clean.async.enabled",
               "hoodie.archive.automatic")  # fmt: skip
    options = {"ordering.fields": "no_precombine", **dict.fromkeys(without, "false")}
    declare(t, name, columns, Path(path), **options)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
