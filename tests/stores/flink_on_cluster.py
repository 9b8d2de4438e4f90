"""The client of a job on a Flink cluster whose hosts share nothing but a store; its argument is JSON.

The job writes the numbers from 1 up. Says when it was started, and how many rows were committed in the end.
"""

from __future__ import annotations

import json
import os
import sys

from demos.flink_jobs import declare, environment, restarts
from demos.speaking import say
from mainstem.flink import connect


def main() -> None:
    given = json.loads(sys.argv[1])
    os.environ["PYFLINK_CLIENT_EXECUTABLE"] = sys.executable
    os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112  # not in this process, on any host
    settings = {
        **restarts(200),
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.dir": given["checkpoints"],
        "parallelism.default": "2",
        **given["settings"],
    }
    flink = connect(environment(settings))
    flink.execute_sql(
        "CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' ="
        f" '{given['rate']}', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' ="
        f" '{given['count']}')"
    )
    columns = "id BIGINT, text STRING, PRIMARY KEY (id) NOT ENFORCED"
    declare(flink, "counted", columns, given["path"], **given["options"])
    result = flink.execute_sql("INSERT INTO counted SELECT id, CAST(id AS STRING) FROM numbers")
    say(job=str(result.get_job_client().get_job_id()))
    result.wait()
    say(rows=sum(outcome.rows for outcome in result.outcomes))


if __name__ == "__main__":
    main()
