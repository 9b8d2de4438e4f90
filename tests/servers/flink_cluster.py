"""A standalone Flink cluster from the apache-flink wheel: a job manager and task managers, each on a host.

Python workers belong to their task manager's host and die with it. What they import must be installed there:
they find this checkout.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL
from typing import Any
from urllib.request import urlopen

from tests.servers.hosts import Host
from tests.servers.zookeeper import free_port

ROOT = Path(__file__).resolve().parents[2]
_START_S = 120.0


def flink_home() -> Path:
    """Where the wheel has Flink."""
    found = find_spec("pyflink")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def configure(
    folder: Path, address: str, rest: int, rpc: int, host: str = "", more: Mapping[str, str] = {}
) -> None:
    """Make a new folder of configuration for a job manager at ``address`` and ``host``'s task manager."""
    home = flink_home()
    shutil.copytree(home / "conf", folder)
    config = folder / "config.yaml"
    found = re.search("all: (--add-exports=.*)", config.read_text())  # what Arrow needs
    assert found is not None
    settings = {
        "env.java.opts.all": f"{found.group(1)} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "jobmanager.rpc.address": address,
        "jobmanager.rpc.port": rpc,
        "rest.address": address,
        "rest.port": rest,
        "rest.bind-port": rest,
        "jobmanager.memory.process.size": "800m",
        "taskmanager.memory.process.size": "900m",
        "taskmanager.memory.managed.size": "64m",
        "taskmanager.numberOfTaskSlots": 2,
        "heartbeat.interval": 500,
        "heartbeat.timeout": 20000,
        **({"taskmanager.host": host, "taskmanager.bind-host": host} if host else {}),
        **({"jobmanager.bind-host": address, "rest.bind-address": address} if host else {}),
        **more,
    }
    config.write_text("".join(f"{name}: {value}\n" for name, value in settings.items()))


def command(script: str, *arguments: str) -> list[str]:
    """What runs one of Flink's daemons."""
    return ["bash", str(flink_home() / "bin" / script), "start-foreground", *arguments]


def environment(folder: Path | str, logs: Path | str) -> dict[str, str]:
    """Its variables; ``folder``: that of its configuration."""
    return {
        "FLINK_CONF_DIR": str(folder),
        "FLINK_LOG_DIR": str(logs),
        "FLINK_HOME": str(flink_home()),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


def remote(address: str, rest: int) -> dict[str, str]:
    """Settings of a job that runs there."""
    (python,) = (flink_home() / "opt").glob("flink-python-*.jar")  # not in a cluster's own lib
    return {
        "execution.target": "remote",
        "rest.address": address,
        "rest.port": str(rest),
        "pipeline.jars": python.as_uri(),
    }


def ask(address: str, rest: int, what: str) -> Any:
    """What a job manager says of itself and its jobs."""
    with urlopen(f"http://{address}:{rest}/{what}", timeout=60) as answer:
        return json.load(answer)


def attempts(address: str, rest: int, job: str, status: str = "RUNNING") -> dict[str, int]:
    """Task managers with tasks of a job in this state -> the newest attempt of those, from 0."""
    found: dict[str, int] = {}
    for vertex in ask(address, rest, f"jobs/{job}")["vertices"]:
        for task in ask(address, rest, f"jobs/{job}/vertices/{vertex['id']}")["subtasks"]:
            if task["status"] == status:
                place = task["taskmanager-id"]
                found[place] = max(found.get(place, 0), task["attempt"])
    return found


class FlinkCluster:
    """A context manager; all hosts have disks. ``plugins``: name -> jar, of every one; ``settings``: more of
    the configuration."""

    def __init__(
        self,
        logs: Path,
        job_manager: Host,
        task_managers: Sequence[Host],
        *,
        settings: Mapping[str, str] = {},
        plugins: Mapping[str, Path] = {},
    ) -> None:
        self.job_manager, self.task_managers = job_manager, list(task_managers)
        self._logs, self._settings, self._plugins = logs, settings, plugins
        self.port, self._rpc = free_port(), free_port()

    def __enter__(self) -> FlinkCluster:
        self._logs.mkdir(parents=True, exist_ok=True)
        try:
            self.start(self.job_manager, "jobmanager.sh")
            for host in self.task_managers:
                self.start(host, "taskmanager.sh", f"-Dtaskmanager.resource-id={host.name}")
            end = time.monotonic() + _START_S
            while self._managers() < len(self.task_managers):
                if time.monotonic() > end:
                    raise RuntimeError(f"the cluster does not start: see {self._logs}")
                time.sleep(0.2)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill all of it, and whatever else runs on its hosts."""
        for host in (*self.task_managers, self.job_manager):
            host.kill()

    def prepare(self, host: Host) -> dict[str, str]:
        """Install configuration and plugins on a host, a client's too; its variables for Flink."""
        assert host.disk is not None
        if not (host.disk / "conf").exists():
            address = self.job_manager.address
            configure(host.disk / "conf", address, self.port, self._rpc, host.address, self._settings)
            for name, jar in self._plugins.items():
                (host.disk / "plugins" / name).mkdir(parents=True)
                (host.disk / "plugins" / name / jar.name).symlink_to(jar)
        return {
            **environment(host.place("conf"), host.place("tmp")),
            "FLINK_PLUGINS_DIR": host.place("plugins"),
            "PYTHONPATH": str(ROOT),
        }

    def start(self, host: Host, script: str, *arguments: str) -> None:
        """Start a daemon on a host."""
        with open(self._logs / f"{script}-{host.name}.log", "ab") as log:
            variables = self.prepare(host)
            host.start(command(script, *arguments), variables, stdin=DEVNULL, stdout=log, stderr=log)

    def places(self, job: str, status: str = "RUNNING") -> dict[str, int]:
        """The hosts of a job's tasks -> the newest attempt there."""
        return attempts(self.job_manager.address, self.port, job, status)

    def _managers(self) -> int:
        with suppress(OSError):
            return len(ask(self.job_manager.address, self.port, "taskmanagers")["taskmanagers"])
        return 0
