"""Install the object stores that `make stores` needs into `.venv-stores`, or where `MAINSTEM_STORES` points.

What is there is left alone.

    python scripts/stores.py                      all of them
    python scripts/stores.py minio spark-s3a      what is named

Needs Go and npm, and Java to run HDFS; the programs come from their registries and are built here, once (7
minutes on two cores).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path

FOLDER = Path(os.environ.get("MAINSTEM_STORES", Path(__file__).resolve().parents[1] / ".venv-stores"))
GO = {
    "minio": "github.com/minio/minio@latest",
    "versitygw": "github.com/versity/versitygw/cmd/versitygw@v1.8.0",
    "fake-gcs-server": "github.com/fsouza/fake-gcs-server@v1.56.1",
}
NPM = {"azurite-blob": "azurite@3.35.0", "s3rver": "s3rver@3.7.1"}
# Hadoop's file system for tests, and what it logs by (without it the cluster dies).
MAVEN = "https://repo1.maven.org/maven2"
HADOOP = (
    "org/apache/hadoop/hadoop-client-minicluster/3.3.6",
    "org/apache/hadoop/hadoop-client-runtime/3.3.6",
    "org/apache/hadoop/hadoop-client-api/3.3.6",
    "ch/qos/reload4j/reload4j/1.2.25",
    "org/slf4j/slf4j-api/1.7.36",
    "org/slf4j/slf4j-reload4j/1.7.36",
    "commons-logging/commons-logging/1.1.3",
    "junit/junit/4.13.2",
    "org/hamcrest/hamcrest-core/1.3",
    "com/google/code/findbugs/jsr305/3.0.2",
    "org/xerial/snappy/snappy-java/1.1.8.2",
)


# Spark's own Hadoop, and S3 for it: AWS's client in parts, as its bundle is 600 MB. Netty is Spark's.
SDK = "2.29.52"
S3A = (
    "org/apache/hadoop/hadoop-aws/3.4.2",
    "software/amazon/eventstream/eventstream/1.0.1",
    "org/reactivestreams/reactive-streams/1.0.4",
    *(
        f"software/amazon/awssdk/{part}/{SDK}"
        for part in (
            "annotations", "apache-client", "arns", "auth", "aws-core", "aws-query-protocol",
            "aws-xml-protocol", "checksums", "checksums-spi", "crt-core", "endpoints-spi", "http-auth",
            "http-auth-aws", "http-auth-aws-eventstream", "http-auth-spi", "http-client-spi",
            "identity-spi", "json-utils", "metrics-spi", "netty-nio-client", "profiles", "protocol-core",
            "regions", "retries", "retries-spi", "s3", "s3-transfer-manager", "sdk-core", "sts",
            "third-party-jackson-core", "utils",
        )
    ),
)  # fmt: skip
# A broker that is its own controller; ZooKeeper's classes are named in its options.
KAFKA = (
    "org/apache/kafka/kafka_2.13/3.9.1",
    "org/apache/kafka/kafka-clients/3.9.1",
    "com/github/luben/zstd-jni/1.5.6-4",
    "org/lz4/lz4-java/1.8.0",
    "org/xerial/snappy/snappy-java/1.1.10.5",
    "org/slf4j/slf4j-api/1.7.36",
    "org/scala-lang/scala-library/2.13.15",
    "org/apache/kafka/kafka-server-common/3.9.1",
    "com/yammer/metrics/metrics-core/2.2.0",
    "net/sf/jopt-simple/jopt-simple/5.0.4",
    "com/fasterxml/jackson/core/jackson-databind/2.16.2",
    "com/fasterxml/jackson/core/jackson-core/2.16.2",
    "com/fasterxml/jackson/core/jackson-annotations/2.16.2",
    "org/pcollections/pcollections/4.0.1",
    "org/apache/kafka/kafka-group-coordinator-api/3.9.1",
    "org/apache/kafka/kafka-group-coordinator/3.9.1",
    "org/apache/kafka/kafka-metadata/3.9.1",
    "org/apache/kafka/kafka-raft/3.9.1",
    "com/fasterxml/jackson/datatype/jackson-datatype-jdk8/2.16.2",
    "org/apache/kafka/kafka-storage/3.9.1",
    "org/apache/kafka/kafka-storage-api/3.9.1",
    "org/apache/kafka/kafka-transaction-coordinator/3.9.1",
    "com/github/ben-manes/caffeine/caffeine/2.9.3",
    "org/apache/kafka/kafka-tools-api/3.9.1",
    "org/apache/kafka/kafka-server/3.9.1",
    "net/sourceforge/argparse4j/argparse4j/0.7.0",
    "com/fasterxml/jackson/module/jackson-module-scala_2.13/2.16.2",
    "com/fasterxml/jackson/dataformat/jackson-dataformat-csv/2.16.2",
    "org/bitbucket/b_c/jose4j/0.9.4",
    "org/scala-lang/modules/scala-collection-compat_2.13/2.10.0",
    "org/scala-lang/modules/scala-java8-compat_2.13/1.0.2",
    "org/scala-lang/scala-reflect/2.13.15",
    "com/typesafe/scala-logging/scala-logging_2.13/3.9.5",
    "ch/qos/reload4j/reload4j/1.2.25",
    "org/slf4j/slf4j-reload4j/1.7.36",
    "commons-validator/commons-validator/1.7",
    "org/apache/zookeeper/zookeeper/3.8.4",
    "org/apache/zookeeper/zookeeper-jute/3.8.4",
)
# Iceberg's REST server, by which it tests its own clients: among its test classes. Needs Hadoop's jars, too.
ICEBERG_REST = (
    "org/apache/iceberg/iceberg-open-api/1.9.2/test-fixtures",
    "org/apache/iceberg/iceberg-core/1.9.2/tests",
    *(
        f"org/apache/iceberg/iceberg-{part}/1.9.2"
        for part in ("core", "api", "common", "bundled-guava")
    ),
    "org/apache/avro/avro/1.12.0",
    "com/github/ben-manes/caffeine/caffeine/2.9.3",
    *(f"com/fasterxml/jackson/core/jackson-{part}/2.18.3" for part in ("core", "databind", "annotations")),
    "org/apache/httpcomponents/client5/httpclient5/5.4.3",
    "org/apache/httpcomponents/core5/httpcore5/5.3.4",
    "org/apache/httpcomponents/core5/httpcore5-h2/5.3.4",
    *(
        f"org/eclipse/jetty/jetty-{part}/11.0.24"
        for part in ("server", "servlet", "http", "io", "security", "util")
    ),
    "org/eclipse/jetty/toolchain/jetty-jakarta-servlet-api/5.0.2",
    "org/xerial/sqlite-jdbc/3.46.1.3",
)


def spark_kafka(spark: str) -> tuple[str, ...]:
    """Spark's own source of Kafka, for Spark of this version."""
    return (
        f"org/apache/spark/spark-sql-kafka-0-10_2.13/{spark}",
        f"org/apache/spark/spark-token-provider-kafka-0-10_2.13/{spark}",
        "org/apache/kafka/kafka-clients/3.9.1",
        "org/apache/commons/commons-pool2/2.12.1",
    )


JARS = {"hadoop": HADOOP, "spark-s3a": S3A, "kafka": KAFKA, "iceberg-rest": ICEBERG_REST}

POSTGRES = "postgres"


def install_jars(folder: Path, artifacts: Iterable[str]) -> None:
    """Fetch the jars that are missing. What follows an artifact's version tells its jars apart."""
    folder.mkdir(parents=True, exist_ok=True)
    for artifact in artifacts:
        parts = artifact.split("/")
        at = next(number for number, part in enumerate(parts) if part[0].isdigit())
        artifact, name = "/".join(parts[: at + 1]), "-".join(parts[at - 1 :]) + ".jar"
        if not (folder / name).exists():
            print(f"fetching {name}", flush=True)
            with urllib.request.urlopen(f"{MAVEN}/{artifact}/{name}", timeout=300) as found:
                (folder / f"{name}.part").write_bytes(found.read())
            (folder / f"{name}.part").rename(folder / name)


def install_postgres() -> None:
    """The system's package, where this may be done. Without it the tests with PostgreSQL are passed over."""
    if shutil.which("initdb") or list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        return
    command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", "postgresql"]
    if shutil.which("apt-get") is None or os.getuid() != 0:
        print(f"PostgreSQL is left out: as root, {' '.join(command)}", flush=True)
        return
    print("installing postgresql", flush=True)
    subprocess.run(["apt-get", "update", "-q"], check=False, stdout=subprocess.DEVNULL)
    done = subprocess.run(
        command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, stdout=subprocess.DEVNULL
    )
    if done.returncode:
        print("PostgreSQL could not be installed; its tests are passed over", file=sys.stderr)


def main(wanted: Sequence[str]) -> int:
    """Install what is missing of the programs and folders of jars that are named, or of all."""
    known = [*GO, *NPM, *JARS, POSTGRES]
    if unknown := set(wanted) - {*known}:
        print(f"not known: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        return 2
    wanted = wanted or known
    programs, node = FOLDER / "bin", FOLDER / "node"
    go = {name: GO[name] for name in GO if name in wanted and not (programs / name).exists()}
    missing = (program for program in NPM if not (node / "node_modules/.bin" / program).exists())
    npm = [NPM[program] for program in missing if program in wanted]
    for tool, needed in (("go", go), ("npm", npm)):
        if needed and shutil.which(tool) is None:
            print(f"{tool} is not on PATH: it is needed to install {', '.join(needed)}", file=sys.stderr)
            return 1
    programs.mkdir(parents=True, exist_ok=True)
    node.mkdir(parents=True, exist_ok=True)
    for name, source in go.items():
        print(f"building {name}", flush=True)
        subprocess.run(["go", "install", source], check=True, env={**os.environ, "GOBIN": str(programs)})
    if npm:
        print(f"installing {', '.join(npm)}", flush=True)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", *npm], check=True, cwd=node)
    for folder in JARS.keys() & set(wanted):
        install_jars(FOLDER / folder, JARS[folder])
    if POSTGRES in wanted:
        install_postgres()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
