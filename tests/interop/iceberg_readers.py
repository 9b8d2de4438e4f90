"""Reads an Iceberg table with DuckDB or Spark and leaves its rows as Parquet. Runs inside `.venv-interop`.

    python iceberg_readers.py duckdb|spark TABLE OUT CONDITION

It imports nothing of mainstem: what it leaves is that engine's word alone. On standard output: how many rows
fit CONDITION, which is SQL.
"""

from __future__ import annotations

import glob
import os
import sys

SPARK_ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.9.2"


def by_duckdb(table: str, out: str, condition: str) -> int:
    import duckdb
    import duckdb_extension_avro
    import duckdb_extension_iceberg

    connection = duckdb.connect()
    for extension in (duckdb_extension_avro, duckdb_extension_iceberg):
        folder = os.path.dirname(extension.__file__)
        (found,) = glob.glob(f"{folder}/**/*.duckdb_extension", recursive=True)
        connection.execute(f"LOAD '{found}'")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"COPY (SELECT * FROM iceberg_scan('{table}')) TO '{out}' (FORMAT parquet)")
    counted = f"SELECT count(*) FROM iceberg_scan('{table}') WHERE {condition}"
    return connection.execute(counted).fetchone()[0]


def by_spark(table: str, out: str, condition: str) -> int:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("iceberg")
    for key, value in {
        "spark.jars.packages": SPARK_ICEBERG,
        "spark.driver.memory": "700m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Duser.timezone=UTC",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    frame = spark.read.format("iceberg").load(table)
    frame.coalesce(1).write.parquet(f"{out}.folder")
    (found,) = glob.glob(f"{out}.folder/*.parquet")
    os.replace(found, out)
    return frame.where(condition).count()


if __name__ == "__main__":
    engine, *arguments = sys.argv[1:]
    print({"duckdb": by_duckdb, "spark": by_spark}[engine](*arguments))
