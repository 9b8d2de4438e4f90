"""What Java Hudi in Spark 3.5 needs to work on a server of S3: hadoop-aws, and its storage lock.

hudi-aws is in no registry, so a stand-in for its lock client (``java/S3StorageLockClient.java``) is compiled;
all else of the storage lock is Hudi's own code.
"""

from __future__ import annotations

from pathlib import Path

from tests.servers.object_stores import PROGRAMS, Minio, StoreServer
from tests.stores.jars import LOCK, S3A, compiled, fetched
from tests.stores.jars import missing as jars_missing


def missing() -> str | None:
    """Why Java cannot work on MinIO here; None where it can."""
    if not (PROGRAMS / Minio.program).exists():
        return "MinIO is not installed: make stores"
    return jars_missing(S3A, LOCK)


def spark_settings(server: StoreServer, classes: Path) -> dict[str, str]:
    """Settings of a Spark session; the lock's client is compiled into the folder ``classes``."""
    return {
        "spark.driver.extraClassPath": f"{compiled(classes)}:{fetched(*LOCK)}/*:{fetched(*S3A)}/*",
        **{f"spark.hadoop.{key}": value for key, value in server.options().items()},
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        # Hudi leaves streams of log files open; a JVM that lives for long runs out of its 96 connections.
        "spark.hadoop.fs.s3a.connection.maximum": "5000",
    }
