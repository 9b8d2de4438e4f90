"""A real Iceberg REST catalog: the server by which Iceberg tests its clients. Its names are in a SQLite file.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from scripts.stores import FOLDER
from tests.servers.zookeeper import find_java, free_port

_START_S = 90.0


def missing() -> str | None:
    """Why no server can run here, if so."""
    needed = ("iceberg-rest/iceberg-core-*-tests.jar", "hadoop/hadoop-client-api-*.jar")
    if all(list(FOLDER.glob(pattern)) for pattern in needed):
        return None
    return "Iceberg's REST server is not installed: python scripts/stores.py iceberg-rest hadoop"


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """The URL of a server of its own, whose warehouse is ``folder/warehouse``."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [
        find_java(), "-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
        "-cp", os.pathsep.join(f"{FOLDER / name}/*" for name in ("iceberg-rest", "hadoop")),
        "org.apache.iceberg.rest.RESTCatalogServer",
    ]  # fmt: skip
    settings = {
        "CATALOG_REST_PORT": str(port), "CATALOG_WAREHOUSE": str(folder / "warehouse"),
        "CATALOG_URI": f"jdbc:sqlite:file:{folder}/names.db",
    }  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **settings}, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            _wait(url, process, folder / "server.log")
            yield url
        finally:
            process.kill()
            process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/v1/config", timeout=5):
            return
        time.sleep(0.1)
    raise AssertionError(f"the server did not start:\n{log.read_text(errors='replace')[-3000:]}")
