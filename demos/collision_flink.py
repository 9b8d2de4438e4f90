"""A Flink writer of the collision: one SQL pipeline from a watched folder of CSV files into the table.

    python -m demos.collision_flink FOLDER LOAD WRITER FIRST_BATCH

FIRST_BATCH is not needed: the job goes on from its newest checkpoint. A file per batch comes into the folder
every half second. Flink does not keep files apart, so the writer says {"in": -1} when a first commit is seen
and the last batch's number when the commits of this pipeline hold as many rows as the load has keys, neither
fewer nor more.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pyarrow.csv as csv

import mainstem
from demos.collision_load import BUCKETS, GATE, KEY, ORDERING, Load
from demos.collision_systems import mainstem_options
from demos.flink_jobs import declare, environment, kept_checkpoints
from demos.speaking import end_with_parent, say, wait_for_the_start
from demos.timeline_picture import COMMITTED, read_spans

COLUMNS = "id string, ts bigint, writer int, batch int, amount double, note string"
FEED_EVERY_S, LOOK_EVERY_S = 0.5, 1.0


def feed(folder: Path, load: Load, writer: int) -> None:
    """Put the batches that are not there yet into the watched folder, one after the other."""
    for batch in range(load.batches):
        path = folder / f"batch-{batch:04d}.csv"
        if not path.exists():
            hidden = folder / f".{path.name}"
            options = csv.WriteOptions(include_header=False)
            csv.write_csv(load.rows(writer, batch), hidden, options)
            os.replace(hidden, path)
            time.sleep(FEED_EVERY_S)


def rows_committed(table: mainstem.Table, name: str) -> int:
    """How many rows the commits of this pipeline say that they wrote."""
    return sum(span.rows for span in read_spans(table, {}) if span.writer == name and span.state == COMMITTED)


def main(folder: Path, load: Load, writer: int) -> None:
    from mainstem.flink import connect

    end_with_parent()
    name = f"writer-{writer}"
    source, checkpoints = folder / "sources" / name, folder / "checkpoints" / name
    for path in (source, checkpoints):
        path.mkdir(parents=True, exist_ok=True)
    t = connect(environment({**kept_checkpoints(checkpoints, 1000), "parallelism.default": "1"}))
    t.execute_sql(
        f"CREATE TABLE source ({COLUMNS}) WITH ('connector' = 'filesystem', 'format' = 'csv',"
        f" 'path' = '{source.as_uri()}', 'source.monitor-interval' = '1s')"
    )
    options = {
        "hoodie.bucket.index.num.buckets": BUCKETS,
        "ordering.fields": ORDERING,
        "write.client.id": name,
        **mainstem_options(name),
    }
    columns = f"{COLUMNS}, PRIMARY KEY ({KEY}) NOT ENFORCED"
    declare(t, "target", columns, folder / "table", **{key: str(value) for key, value in options.items()})
    wait_for_the_start(folder / GATE)
    threading.Thread(target=feed, args=(source, load, writer), daemon=True).start()
    job = t.execute_sql("INSERT INTO target SELECT * FROM source")
    table = mainstem.open_table(folder / "table")
    at_start = committed = rows_committed(table, name)
    while committed < load.keys:
        time.sleep(LOOK_EVERY_S)
        committed = rows_committed(table, name)
        if committed > at_start:
            say(**{"in": -1, "repeated": 0})
            at_start = load.keys
    if committed != load.keys:
        raise SystemExit(f"{name} committed {committed:,} rows of {load.keys:,}")
    job.get_job_client().cancel().result()
    say(**{"in": load.batches - 1, "repeated": 0})
    say(ended=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Load.from_json(sys.argv[2]), int(sys.argv[3]))
