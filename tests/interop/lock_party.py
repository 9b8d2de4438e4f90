"""One process of twenty that take turns under one ZooKeeper lock, by mainstem's lock or by Curator's.

Argument: JSON. It goes on until the file `stop` exists. A witness that knows nothing of ZooKeeper, an OS
lock on a file that is held during each critical section and ends with the process, sees every overlap.
What happens is appended to one log that all processes share, so its order is the order of events.
Between entering and publishing it waits for as long as the file `hold` says.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mainstem.errors import LeaseLost
from mainstem.options.locks import EXPLICIT
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.providers import open_lock


class Log:
    """Lines of JSON, each appended by one call."""

    def __init__(self, path: Path, kind: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._kind = kind

    def add(self, event: str, **more: object) -> None:
        line = {"event": event, "pid": os.getpid(), "kind": self._kind, **more}
        os.write(self._fd, (json.dumps(line) + "\n").encode())


def section(folder: Path, log: Log, still_ours: Callable[[], bool]) -> None:
    """Enter, wait, look as this kind of writer looks, publish, leave."""
    witness = os.open(folder / "witness", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
        overlap = False
    except BlockingIOError:
        overlap = True
    log.add("enter", overlap=overlap)
    time.sleep(float((folder / "hold").read_text()) / 1000)
    log.add("publish" if still_ours() else "fenced")
    os.close(witness)


def take_turns_by_mainstem(given: dict, folder: Path, log: Log) -> None:
    base_path, _, key = given["node"].rpartition("/")
    properties = {
        "hoodie.write.lock.provider": EXPLICIT,
        "hoodie.write.lock.zookeeper.url": given["connect_string"],
        "hoodie.write.lock.zookeeper.base_path": base_path,
        "hoodie.write.lock.zookeeper.lock_key": key,
        "hoodie.write.lock.zookeeper.session_timeout_ms": str(given["session_ms"]),
    }
    options = LockOptions.from_properties(properties, base=str(folder))
    lock = open_lock(options, clock=SystemClock(), random=random.SystemRandom())
    log.add("ready", pids=[os.getpid()])
    while not (folder / "stop").exists():
        lease = lock.acquire()

        def still_ours(lease=lease) -> bool:
            try:
                lease.check()
            except LeaseLost:
                return False
            return True

        section(folder, log, still_ours)
        lease.release()
    lock.close()


def take_turns_by_curator(given: dict, folder: Path, log: Log) -> None:
    """As Hudi's provider uses it: nobody asks whether the lock is still held before publishing."""
    from tests.multiprocess.curator_client import Curator

    curator = Curator(given["connect_string"], given["node"], str(folder), given["session_ms"])
    log.add("ready", pids=curator.pids())
    while not (folder / "stop").exists():
        try:
            curator.acquire("30")
        except Exception as error:  # a session that ended while it waited; Hudi's LockManager retries
            log.add("not acquired", error=str(error)[:200])
            continue
        section(folder, log, lambda: True)
        try:
            curator.release()
        except Exception as error:  # the node went with the session
            log.add("release failed", error=str(error)[:200])
    curator.jvm.kill()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    folder = Path(given["folder"])
    run = take_turns_by_mainstem if given["kind"] == "mainstem" else take_turns_by_curator
    run(given, folder, Log(folder / "log", given["kind"]))
