"""A process with a Spark session on a Hive Metastore: a statement per line in, its rows as JSON out.

Arguments: the metastore's URI and a folder. In a process of its own, because a JVM that has had such a
session gives every later one the same catalog.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Serves statements until standard input ends."""
    from pyspark.sql import SparkSession

    from mainstem.spark import register, sql

    uri, folder = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark prints goes elsewhere
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .config("spark.sql.catalogImplementation", "hive")
        .config("spark.hadoop.hive.metastore.uris", uri)
        .getOrCreate()
    )
    register(spark)
    for line in sys.stdin:
        rows = [list(row) for row in sql(spark, json.loads(line)).collect()]
        answers.write(json.dumps(rows, default=str) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main()
