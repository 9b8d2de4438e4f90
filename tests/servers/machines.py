"""Machines of a test on this computer: network namespaces with addresses, host names, clocks and disks of
their own, on wires that can be cut.

``with Machines() as lab`` makes two wires, ``STORE`` and ``LOCKS``; ``lab.machine("writer-1")`` is plugged
into both. This process reaches every machine, by addresses that it has on both wires. Needs root, iproute2
and a C compiler (``why_not``). Outside namespaces there are but two interfaces, which go with the lab.

A machine sees its own disk in the lab's folder, and none of the others'. Its clock is shifted by a
library (``shifted_clock.c``) that programs of Go do not look at.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.servers.hosts import Host

STORE, LOCKS = 0, 1
WIRES = (STORE, LOCKS)
_CLOCK = Path(__file__).with_name("shifted_clock.c")
# In namespaces of its own: the host's name, the names of others, its disk without those of others.
_ENTER = (
    'hostname "$1" && mount --bind "$2/hosts" /etc/hosts && mount --bind "$2/disks/$1" "$2/disk"'
    ' && mount -t tmpfs none "$2/disks" && cd "$2/disk" && shift 2 && exec "$@"'
)
_GONE_S = 30.0


@cache
def why_not() -> str:
    """Why there can be no machines here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in ("ip", "unshare", "hostname", "cc") if shutil.which(program) is None]
    if missing:
        return f"no {' and no '.join(missing)}: apt install iproute2 util-linux hostname gcc libc6-dev"
    tried = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "ip", "link", "add", "name", "wire0", "type", "bridge"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tried.returncode:
        return f"no network namespaces with bridges here: {tried.stderr.strip()}"
    return ""


def _ip(*arguments: str, inside: str = "") -> str:
    command = ["ip", *(["-n", inside] if inside else []), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Machine(Host):
    """One of a lab's machines, on both wires; ``address`` is that on ``wire``. ``clock_ms``: how far its
    clock is ahead."""

    def __init__(self, lab: Machines, name: str, number: int, wire: int, clock_ms: int) -> None:
        super().__init__(name, lab.folder / "disks" / name)
        self.clock_ms = clock_ms
        self._lab, self._number = lab, number
        self._space = f"{lab.name}-{name}"
        self.address = lab.address(wire, number)
        _ip("netns", "add", self._space)
        _ip("link", "set", "lo", "up", inside=self._space)
        for wire in WIRES:
            _ip("link", "add", self._port(wire), "type", "veth", "peer", f"eth{wire}", "netns", self._space,
                inside=lab.hub)  # fmt: skip
            _ip("link", "set", self._port(wire), "up", inside=lab.hub)
            _ip("address", "add", f"{lab.address(wire, number)}/24", "dev", f"eth{wire}", inside=self._space)
            _ip("link", "set", f"eth{wire}", "up", inside=self._space)
            self.plug(wire)

    def _port(self, wire: int) -> str:
        return f"p{wire}-{self._number}"

    def place(self, name: str) -> str:
        return str(self._lab.folder / "disk" / name)

    def command(self, argv: Sequence[str]) -> list[str]:
        program = ["sh", "-c", _ENTER, "sh", self.name, str(self._lab.folder), *argv]
        return ["ip", "netns", "exec", self._space, "unshare", "--uts", "--mount", *program]

    def environment(self, more: Mapping[str, str] = {}) -> dict[str, str]:
        found = super().environment(more)
        if self.clock_ms:
            found |= {"LD_PRELOAD": str(self._lab.clock), "MAINSTEM_CLOCK_MS": str(self.clock_ms)}
        return found

    # -- its cables --------------------------------------------------------------------------------

    def cut(self, *wires: int) -> None:
        """Pull the plugs: what is sent is lost, and nobody is told."""
        for wire in wires:
            _ip("link", "set", self._port(wire), "nomaster", inside=self._lab.hub)

    def plug(self, *wires: int) -> None:
        """Put the plugs in again."""
        for wire in wires:
            _ip("link", "set", self._port(wire), "master", f"wire{wire}", inside=self._lab.hub)

    def lose_replies_of(self, server: Machine) -> None:
        """What it sends arrives at the server; what the server sends back does not."""
        _ip("route", "add", "blackhole", self.address, inside=server._space)

    def hear_again(self, server: Machine) -> None:
        """The end of ``lose_replies_of``."""
        _ip("route", "delete", "blackhole", self.address, inside=server._space)

    # -- its end -----------------------------------------------------------------------------------

    def kill(self) -> None:
        end = time.monotonic() + _GONE_S
        while pids := [int(pid) for pid in _ip("netns", "pids", self._space).split()]:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > end:
                raise RuntimeError(f"{self.name}: processes {pids} do not end")
            for process in self.started:
                process.poll()
            time.sleep(0.01)
        super().kill()

    def close(self) -> None:
        """Kill it, and take it away."""
        self.kill()
        _ip("netns", "delete", self._space)


class Machines:
    """A lab: a context manager."""

    def __init__(self) -> None:
        self.machines: dict[str, Machine] = {}

    def __enter__(self) -> Machines:
        self._net = random.SystemRandom().randrange(64, 250)
        self.name = f"ms{os.getpid()}n{self._net}"
        self.hub = f"{self.name}-hub"
        self.folder = Path(tempfile.mkdtemp(prefix="machines-"))
        (self.folder / "disk").mkdir()
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n")
        self.clock = self.folder / "shifted_clock.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.clock, _CLOCK, "-ldl"], check=True)
        _ip("netns", "add", self.hub)
        for wire in WIRES:
            _ip("link", "add", f"wire{wire}", "type", "bridge", inside=self.hub)
            _ip("link", "set", f"wire{wire}", "up", inside=self.hub)
            _ip("link", "add", self._own(wire), "type", "veth", "peer", f"own{wire}", "netns", self.hub)
            _ip("link", "set", f"own{wire}", "master", f"wire{wire}", "up", inside=self.hub)
            _ip("address", "add", f"{self.address(wire, 1)}/24", "dev", self._own(wire))
            _ip("link", "set", self._own(wire), "up")
        return self

    def __exit__(self, *_: object) -> None:
        for machine in reversed(self.machines.values()):
            machine.close()
        _ip("netns", "delete", self.hub)  # and the interfaces here, whose other ends are there
        shutil.rmtree(self.folder, ignore_errors=True)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.machines.values())

    def _own(self, wire: int) -> str:
        return f"m{wire}-{self._net}-{os.getpid() % 10_000}"

    def address(self, wire: int, number: int) -> str:
        """The address of a machine by its number; this process's is 1."""
        return f"10.{self._net}.{wire}.{number}"

    def machine(self, name: str, *, wire: int = STORE, clock_ms: int = 0) -> Machine:
        """A new machine."""
        number = len(self.machines) + 2
        self.machines[name] = made = Machine(self, name, number, wire, clock_ms)
        with open(self.folder / "hosts", "a") as hosts:  # the same file: it is mounted elsewhere
            hosts.write(f"{made.address} {name}\n")
        return made
