"""Install the object stores that `make stores` needs into `.venv-stores`; what is there is left alone.

    python scripts/stores.py

Needs Go and npm, and Java to run HDFS; the programs come from their registries and are built here, once (7
minutes on two cores).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / ".venv-stores"
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


def install_hadoop(jars: Path) -> None:
    """Fetch the jars of a name node and data nodes that are missing."""
    jars.mkdir(parents=True, exist_ok=True)
    for artifact in HADOOP:
        name = "-".join(artifact.split("/")[-2:]) + ".jar"
        if not (jars / name).exists():
            print(f"fetching {name}", flush=True)
            with urllib.request.urlopen(f"{MAVEN}/{artifact}/{name}", timeout=300) as found:
                (jars / f"{name}.part").write_bytes(found.read())
            (jars / f"{name}.part").rename(jars / name)


def main() -> int:
    """Install what is missing."""
    programs, node = FOLDER / "bin", FOLDER / "node"
    go = {name: source for name, source in GO.items() if not (programs / name).exists()}
    npm = [name for program, name in NPM.items() if not (node / "node_modules/.bin" / program).exists()]
    for tool, wanted in (("go", go), ("npm", npm)):
        if wanted and shutil.which(tool) is None:
            print(f"{tool} is not on PATH: it is needed to install {', '.join(wanted)}", file=sys.stderr)
            return 1
    programs.mkdir(parents=True, exist_ok=True)
    node.mkdir(parents=True, exist_ok=True)
    for name, source in go.items():
        print(f"building {name}", flush=True)
        subprocess.run(["go", "install", source], check=True, env={**os.environ, "GOBIN": str(programs)})
    if npm:
        print(f"installing {', '.join(npm)}", flush=True)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", *npm], check=True, cwd=node)
    install_hadoop(FOLDER / "hadoop")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
