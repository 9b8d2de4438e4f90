"""One process that uses a table lock; started by the tests, driven by lines on standard input.

Arguments: base path, lock properties as JSON. Each command answers with one JSON line.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time

from mainstem.errors import MainstemError
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.providers import open_lock


def critical_section(base: str, hold_ms: float) -> None:
    """Count up in a file, without any atomicity, under an independent witness."""
    witness, counter = f"{base}/witness", f"{base}/counter"
    os.close(os.open(witness, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    with open(counter) as file:
        count = int(file.read())
    if hold_ms:
        time.sleep(hold_ms / 1000)
    with open(counter, "w") as file:
        file.write(str(count + 1))
    os.unlink(witness)


class Worker:
    def __init__(self, base: str, properties: dict[str, str]) -> None:
        self.base = base
        options = LockOptions.from_properties(properties, base=base)
        self.lock = open_lock(options, clock=SystemClock(), random=random.Random())
        self.lease = None

    def step_down(self) -> None:
        """Become a plain user: root may write into read-only files."""
        if os.geteuid() == 0:
            os.setuid(65534)

    def acquire(self) -> float:
        """Milliseconds that it took."""
        started = time.perf_counter()
        self.lease = self.lock.acquire()
        return (time.perf_counter() - started) * 1000

    def check(self) -> str:
        self.lease.check()
        return "ours"

    def release(self) -> None:
        self.lease.release()

    def count(self, times: str, hold_ms: str) -> int:
        for _ in range(int(times)):
            lease = self.lock.acquire()
            critical_section(self.base, float(hold_ms))
            lease.check()
            lease.release()
        return int(times)

    def count_for(self, seconds: str, hold_ms: str) -> int:
        done, end = 0, time.monotonic() + float(seconds)
        while time.monotonic() < end:
            self.count("1", hold_ms)
            done += 1
        return done

    def count_like_java(self, times: str, hold_ms: str) -> int:
        """Hadoop's local create without overwriting: look, then open and truncate; then delete."""
        path, done = f"{self.base}/.hoodie/lock", 0
        os.listdir(os.path.dirname(path))  # this user gets there
        while done < int(times):
            try:
                if os.path.exists(path):
                    raise FileExistsError(path)
                os.close(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644))
            except (FileExistsError, PermissionError):
                time.sleep(0.0005)
                continue
            critical_section(self.base, float(hold_ms))
            os.unlink(path)
            done += 1
        return done

    def fork_idle_child(self) -> int:
        """A child that does nothing until it is killed: what a pre-forking daemon looks like."""
        child = os.fork()
        if child == 0:
            while True:
                time.sleep(60)
        return child

    def check_in_child(self) -> str:
        """What a forked child is told about the lease of its parent (it also releases it)."""
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self.lease.check()
                text = "ours"
            except MainstemError as error:
                text = f"{type(error).__name__}: {error}"
            self.lease.release()
            os.write(write_end, text.encode())
            os._exit(0)
        os.close(write_end)
        os.waitpid(child, 0)
        with os.fdopen(read_end) as pipe:
            return pipe.read()

    def use_lock_in_child(self) -> int:
        """0 if a forked child can take and free the lock with the inherited provider."""
        child = os.fork()
        if child == 0:
            lease = self.lock.acquire()
            lease.check()
            lease.release()
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(worker: Worker) -> None:
    print(json.dumps({"answer": "ready"}), flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        try:
            answer = {"answer": getattr(worker, name)(*arguments)}
        except (MainstemError, OSError) as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(Worker(sys.argv[1], json.loads(sys.argv[2])))
