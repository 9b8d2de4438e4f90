"""A client of Spark Connect for ``test_connect``: prints what came of all that it did as JSON.

Run as ``python -m tests.spark.connect_client FOLDER``: a process of its own, since one of Spark Connect has
no classic session.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from mainstem import spark as ms
from mainstem.errors import MainstemError

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 2,
}
VERSION_10 = {"hoodie.write.table.version": 10, "hoodie.table.storage.layout": "lsm_tree"}


def refused(call: Callable[[], object]) -> str:
    """The error's class and sentence."""
    try:
        call()
    except MainstemError as error:
        return f"{type(error).__name__}: {error.message}"
    return "it was done"


def changed(spark: SparkSession, path: str) -> dict[str, Any]:
    """What DELETE, UPDATE and MERGE answer and leave, on a table of its own."""
    named = f"mainstem.`{path}`"
    options = {**OPTIONS, **VERSION_10, "hoodie.table.ordering.fields": "ts"}
    first = spark.range(6).selectExpr("id", "id AS v", "'n' AS note", "10L AS ts")
    ms.write_batch(first, path, options=options)

    def run(text: str, **given: Any) -> int:
        return int(ms.sql(spark, text, **given).collect()[0][0])

    counts = [
        run(f"DELETE FROM {named} WHERE id = :gone", args={"gone": 0}),
        run(
            f"UPDATE {named} AS t SET v = t.v * 10, note = upper(note) WHERE id IN (1, 2) AND v < ?", args=[5]
        ),
        run(
            f"""WITH s AS (SELECT * FROM {{rows}}) MERGE INTO {named} t USING s ON t.id = s.id
            WHEN MATCHED AND s.v IS NULL THEN DELETE
            WHEN MATCHED THEN UPDATE SET v = t.v + s.v
            WHEN NOT MATCHED THEN INSERT (id, v, ts) VALUES (s.id, s.v, '7')
            WHEN NOT MATCHED BY SOURCE AND t.id = 5 THEN UPDATE SET note = 'left'""",
            rows=spark.createDataFrame([(3, None), (4, 1), (8, 8)], "id long, v long"),
        ),
        run(
            f"""MERGE INTO {named} t USING (SELECT id + 1 AS id, v, note, ts FROM {named} WHERE id = 8) s
            ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
        ),
    ]
    twice = f"MERGE INTO {named} t USING (SELECT explode(array(1, 1)) AS id) s ON t.id = s.id"
    wrong = [
        refused(lambda: run(f"{twice} WHEN MATCHED THEN UPDATE SET note = 'x'")),
        refused(lambda: run(f"UPDATE {named} SET id = 7")),
        refused(lambda: run(f"UPDATE {named} SET v = note")),
        refused(lambda: run(f"UPDATE {named} SET ts = 1 WHERE id = 1")),
    ]
    rows = spark.read.format("mainstem").load(path).selectExpr("id", "v", "note", "ts").orderBy("id")
    return {"counts": counts, "wrong": wrong, "rows": [list(row) for row in rows.collect()]}


def main(folder: Path) -> dict[str, Any]:
    spark = (
        SparkSession.builder.remote("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    first, second = str(folder / "first"), str(folder / "second")
    named = f"mainstem.`{first}`"
    rows = spark.range(6).selectExpr("id", "id AS v")
    found: dict[str, Any] = {"session": type(spark).__module__}
    try:
        rows.write.format("hudi").options(**OPTIONS).mode("append").save(first)
        outcome = ms.write_batch(rows.selectExpr("id", "v + 1 AS v"), first, options=OPTIONS)
        found["outcome"] = [outcome.status, outcome.rows, outcome.instant]
        found["empty"] = ms.write_batch(rows.limit(0), first, options=OPTIONS).status
        found["no key"] = refused(
            lambda: ms.write_batch(rows.selectExpr("CAST(NULL AS LONG) id", "v"), first, options=OPTIONS)
        )
        bulk = {**OPTIONS, "hoodie.datasource.write.operation": "bulk_insert"}
        found["bulk"] = ms.write_batch(rows.repartition(3), str(folder / "bulk"), options=bulk).rows
        runs = ms.run_services(spark, first, "compact", if_due=False)
        found["services"] = [[run.service, len(run.results)] for run in runs]
        found["built"] = str(ms.create_index(spark, first, "column_stats", ["v"]).index)
        found["indexes"] = [row.index_name for row in ms.sql(spark, f"SHOW INDEXES FROM {named}").collect()]
        older = f"{named} TIMESTAMP AS OF '{outcome.instant}' AS o"
        joined = f"{named} AS n JOIN {older} ON n.id = o.id AND n.v = o.v"
        query = f"SELECT sum(n.v) AS s, '{{}}' AS t FROM {joined} WHERE n.id > :low"
        found["query"] = list(ms.sql(spark, query, args={"low": 1}).collect()[0])
        found["insert"] = refused(lambda: ms.sql(spark, f"INSERT INTO {named} VALUES (1, 1)"))
        found["changed"] = changed(spark, str(folder / "changed"))
        read = spark.readStream.format("mainstem").load(first).select("id", "v")
        update = {"options": OPTIONS, "output_mode": "update"}
        found["update"] = refused(lambda: ms.write_stream(read, second, **update))
        stream = ms.write_stream(
            read, second, options={**OPTIONS, **VERSION_10}, checkpoint=str(folder / "chk"),
            trigger={"availableNow": True},
        )  # fmt: skip
        stream.awaitTermination()
        found["stream"] = ms.stream_metrics(spark, stream.lastProgress, sink=second, source=first)
    finally:
        spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
