"""A real Hive Metastore: the server class in Spark's jars (``hive-metastore`` 2.3), with Derby in memory."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

_SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.async.log.enabled": "false",  # it would need a jar that Spark does not bring
    "datanucleus.connectionPoolingType": "HikariCP",  # the default's jar is not there
    "hive.metastore.server.min.threads": "4",
}
_START_S = 90.0


def jars() -> Path | None:
    """Spark's jars in this Python; None without Spark."""
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent / "jars"


@contextlib.contextmanager
def running(folder: Path, spark_jars: Path) -> Iterator[str]:
    """The URI of a metastore of its own, whose warehouse is ``folder/warehouse``."""
    java = shutil.which("java", path=f"{_java_home()}{os.environ.get('PATH', '')}")
    assert java is not None, "no java: make setup-dev brings one"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {**_SETTINGS, "hive.metastore.warehouse.dir": str(folder / "warehouse")}
    lines = [f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items()]
    (folder / "hive-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Dderby.system.home={folder}",
        "-cp", f"{folder}{os.pathsep}{spark_jars}/*",
        "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port),
    ]  # fmt: skip
    with open(folder / "metastore.log", "wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait(port, process, folder / "metastore.log")
            yield f"thrift://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _java_home() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin{os.pathsep}" if home else ""


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"the metastore did not start:\n{log.read_text(errors='replace')[-3000:]}")
