"""One system's MERGE INTO, in a process of its own: ``merge_peer.py SYSTEM FOLDER TURNS``. Prints JSON.

Two statements: one sets whole rows, one adds to what the table has.

Delta and Hudi run in the environment of Spark 3.5, which has no mainstem.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

PACKAGES = {
    "delta": "io.delta:delta-spark_2.12:3.3.2",
    "hudi": "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",
}
EXTENSION = {
    "delta": ("io.delta.sql.DeltaSparkSessionExtension", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
    "hudi": (
        "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    ),
}
BUCKETS = 8
STATEMENTS = {
    "whole": "UPDATE SET *",
    "added": "UPDATE SET ts = s.ts, fare = t.fare + s.fare",
}
HUDI = {
    "hoodie.table.name": "target", "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": "uuid", "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": str(BUCKETS),
    "hoodie.metadata.enable": "false", "hoodie.compact.inline": "false", "hoodie.clean.automatic": "false",
    "hoodie.datasource.write.operation": "bulk_insert", "hoodie.bulkinsert.shuffle.parallelism": str(BUCKETS),
}  # fmt: skip


def session(system: str, folder: Path) -> Any:
    """Spark of two cores."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": "3g", "spark.ui.enabled": "false", "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC", "spark.sql.warehouse.dir": str(folder / f"warehouse-{system}"),
    }  # fmt: skip
    if system in PACKAGES:
        extension, catalog = EXTENSION[system]
        settings |= {
            "spark.jars.packages": PACKAGES[system],
            "spark.sql.extensions": extension,
            "spark.sql.catalog.spark_catalog": catalog,
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.driver.extraJavaOptions": "-Djol.skipHotspotSAAttach=true -Djol.skipDynamicAttach=true",
        }
    if system == "hudi":
        settings["spark.kryo.registrator"] = "org.apache.spark.HoodieSparkKryoRegistrar"
    builder = SparkSession.builder.master("local[2]")
    for name, text in settings.items():
        builder = builder.config(name, text)
    return builder.getOrCreate()


def load(system: str, spark: Any, path: str, rows: Any) -> Any:
    """Makes the table and returns what carries out a statement."""
    if system == "delta":
        spark.conf.set("spark.databricks.delta.properties.defaults.enableDeletionVectors", "true")
        rows.write.format("delta").save(path)
        spark.sql(f"CREATE TABLE target USING delta LOCATION '{path}'")
        return spark.sql
    if system == "hudi":
        rows.write.format("hudi").options(**HUDI).mode("overwrite").save(path)
        spark.sql(f"CREATE TABLE target USING hudi LOCATION '{path}'")
        for name, text in HUDI.items():
            if name.startswith(("hoodie.index", "hoodie.bucket", "hoodie.metadata", "hoodie.c")):
                spark.sql(f"SET {name}={text}")
        return spark.sql
    from mainstem import spark as ms

    ms.register(spark)
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in rows.schema)
    ms.sql(
        spark,
        f"CREATE TABLE target ({columns}) USING hudi LOCATION '{path}' TBLPROPERTIES (primaryKey = 'uuid',"
        f" orderingFields = 'ts', 'hoodie.bucket.index.num.buckets' = '{BUCKETS}')",
    )
    ms.write_batch(rows, path, options={"hoodie.datasource.write.operation": "bulk_insert"})
    return lambda statement: ms.sql(spark, statement)


def processor_seconds() -> float:
    """Of this process and all below it, those that have ended too."""
    parents: dict[int, list[int]] = {}
    taken: dict[int, float] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(name))
        taken[int(name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    found, total = [os.getpid()], 0.0
    while found:
        process = found.pop()
        total += taken.get(process, 0.0)
        found += parents.get(process, [])
    return total


def main(system: str, folder: Path, turns: int) -> None:
    """Loads, merges, counts."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    root = str(Path(__file__).resolve().parents[1])
    if system == "ours":
        os.environ["PYTHONPATH"] = root
        sys.path.insert(0, root)
    spark = session(system, folder)
    run = load(system, spark, str(folder / f"table-{system}"), spark.read.parquet(str(folder / "rows")))
    found: dict[str, dict[str, list[float]]] = {}
    for number, (name, update) in enumerate(STATEMENTS.items()):
        seconds: list[float] = []
        processor: list[float] = []
        for turn in range(turns + 1):
            merged = folder / f"merged-{number * (turns + 1) + turn}"
            spark.read.parquet(str(merged)).createOrReplaceTempView("given")
            began, before = time.perf_counter(), processor_seconds()
            try:
                run(
                    f"MERGE INTO target t USING given s ON t.uuid = s.uuid WHEN MATCHED THEN {update}"
                    " WHEN NOT MATCHED THEN INSERT *"
                )
            except Exception as error:
                if system != "hudi":
                    raise
                print(f"{name}: {str(error)[:300]}", file=sys.stderr)
                break
            seconds.append(time.perf_counter() - began)
            processor.append(processor_seconds() - before)
        found[name] = {"seconds": seconds, "processor": processor}
    rows, cents = run("SELECT count(1), sum(CAST(fare * 100 AS BIGINT)) FROM target").collect()[0]
    print(json.dumps({"found": found, "rows": rows, "cents": cents}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
