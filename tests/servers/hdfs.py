"""HDFS for tests: a name node (or two) and data nodes of Hadoop 3.3.6, in one process on free ports.

``with Hdfs() as cluster`` starts it in about 5 seconds; ``cluster.url("path")`` is a place there. ``make
stores`` installs Hadoop's jars (``scripts/stores.py``) into ``.venv-stores/hadoop``, or where the variable
``MAINSTEM_STORES`` points, and Java must be on PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from mainstem.storage.backends import location_of, storage_of
from mainstem.storage.hdfs import HdfsStorage
from mainstem.storage.location import Location
from tests.servers.object_stores import PROGRAMS
from tests.servers.zookeeper import free_port

JARS = PROGRAMS / "hadoop"
_SOURCE = Path(__file__).with_name("MiniHdfs.java")
_STARTS_MAX = 3


def installed() -> bool:
    """Whether the cluster can be started here."""
    return bool(list(JARS.glob("hadoop-client-minicluster-*.jar"))) and shutil.which("java") is not None


class Hdfs:
    """A cluster; a context manager. ``names=2``: two name nodes, of which the first one is active."""

    def __init__(self, *, nodes: int = 2, names: int = 1) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hdfs-"))
        self._nodes = nodes
        self._names = names
        self.ports: list[int] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Hdfs:
        for _ in range(_STARTS_MAX):
            self.ports = [free_port() for _ in range(self._names)]
            self._launch()
            if self._answer() == "ready":
                return self
            self._end()
        raise RuntimeError(f"HDFS did not start; its log ends:\n{self._log.read_text()[-3000:]}")

    def __exit__(self, *_: object) -> None:
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _launch(self) -> None:
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        arguments = [str(self.folder / "data"), str(self._nodes), *map(str, self.ports)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["java", "-Xmx512m", "-cp", f"{JARS}/*", str(_SOURCE), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={k: v for k, v in os.environ.items() if not k.startswith(("HADOOP_", "SPARK_"))},
            )

    def _answer(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(("ready", "done", "failed")):
                return line.strip()
        return ""

    def _end(self) -> None:
        if self._process is not None:
            with self._process as process:
                process.kill()

    def tell(self, words: str) -> None:
        """Give an order to the cluster, as MiniHdfs.java lists them, and wait until it is done."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(words + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer != "done":
            raise RuntimeError(f"{words}: {answer or 'the cluster ended'}")

    # -- places ------------------------------------------------------------------------------------

    def options(self) -> dict[str, str]:
        """Options that reach it, and give up soon."""
        quick = {
            "dfs.client.failover.max.attempts": "8",
            "dfs.client.failover.sleep.base.millis": "100",
            "dfs.client.failover.sleep.max.millis": "2000",
        }
        if self._names == 1:
            return quick
        return {
            **quick,
            "dfs.ha.namenodes.cluster": "nn1,nn2",
            "dfs.namenode.rpc-address.cluster.nn1": f"127.0.0.1:{self.ports[0]}",
            "dfs.namenode.rpc-address.cluster.nn2": f"127.0.0.1:{self.ports[1]}",
        }

    def url(self, path: str) -> str:
        """A place there."""
        return f"hdfs://{'cluster' if self._names > 1 else f'127.0.0.1:{self.ports[0]}'}/{path}"

    def location(self, path: str) -> Location:
        """A place there, with the options that reach it."""
        return location_of(self.url(path), options=self.options())

    def storage(self, path: str) -> HdfsStorage:
        """Storage below a folder."""
        found = storage_of(self.location(path))
        assert isinstance(found, HdfsStorage)
        return found
