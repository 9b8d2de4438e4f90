"""Goal: machines that share nothing but a store, and perhaps a ZooKeeper, write, tend and read one table; one
of them is cut off in the middle of a commit, and nothing is lost, doubled or seen in part.

Method: network namespaces with host names, clocks and disks of their own; each story pulls the cables of one
writer at a moment of its commit, for shorter or longer than its heartbeats, its session and its lock live, or
loses the store's replies to it. ``python -m tests.stores.machine_stories`` tells random ones.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.servers.machines import LOCKS, STORE, Machine, Machines, why_not
from tests.spark.conftest import until
from tests.stores.machine_stories import Story, Theatre

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.nothing_lost,
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]
SHORT_S, LONG_S, LOCK_S = 1.5, 7.0, 13.0
STORIES = {
    "without a lock, for a moment": Story("none", "after the gate", 3, "store", SHORT_S),
    "without a lock, so long that it counts as dead": Story(
        "none", "before the gate", 4, "store", LONG_S, guarded=True, metadata=True,
        clocks_ms=(-5_000, 0, 3_000),
    ),
    "without a lock, replies are lost": Story(
        "none", "before the file that shows", 2, "replies", LONG_S, clocks_ms=(60, 0, -60)
    ),
    "with the storage lock, so long that others take it over": Story(
        "storage", "before the gate", 4, "store", LOCK_S, metadata=True, clocks_ms=(-60, 0, 60)
    ),
    "with the storage lock, replies are lost": Story(
        "storage", "in the middle of its files", 3, "replies", SHORT_S, guarded=True,
        clocks_ms=(0, 3_000, -5_000),
    ),
    "with ZooKeeper, from ZooKeeper alone": Story(
        "zookeeper", "before the gate", 4, "locks", LONG_S, clocks_ms=(0, -60, 60)
    ),
    "with ZooKeeper, from both": Story(
        "zookeeper", "after the file that shows", 2, "both", LONG_S, guarded=True,
        clocks_ms=(3_000, 0, -5_000),
    ),
    "with ZooKeeper, for ever": Story(
        "zookeeper", "before the file that shows", 2, "both", SHORT_S, returns=False, metadata=True
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    with Theatre(tmp_path_factory.mktemp("machines")) as running:
        yield running


@pytest.mark.parametrize("name", STORIES)
def test_a_machine_that_is_cut_off_loses_and_doubles_nothing(theatre: Theatre, name: str) -> None:
    told = theatre.tell(STORIES[name])
    assert told["batches"] and told["reads"]


LOOK = """
import os, socket, time
print(socket.gethostname(), time.time(), sorted(os.listdir()), os.listdir("../disks"))
"""
ASK = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=1).status)
"""


def test_machines_have_names_clocks_disks_and_cables_of_their_own() -> None:
    with Machines() as lab:
        ahead, server = lab.machine("ahead", clock_ms=60_000), lab.machine("server")
        name, clock, files = said(ahead, LOOK).split(maxsplit=2)
        assert name == "ahead" and 59 < float(clock) - time.time() < 70 and files == "['home', 'tmp'] []"
        server.start([sys.executable, "-m", "http.server", "8000"], stderr=subprocess.DEVNULL)
        url = f"http://{server.address}:8000"
        until(lambda: said(ahead, ASK, url) == "200", "the server")
        ahead.cut(LOCKS)
        assert said(ahead, ASK, url) == "200"
        ahead.cut(STORE)
        assert said(ahead, ASK, url) == ""
        ahead.plug(STORE)
        assert said(ahead, ASK, url) == "200"
        ahead.lose_replies_of(server)
        assert said(ahead, ASK, url) == ""
        ahead.hear_again(server)
        assert said(ahead, ASK, url) == "200"
        server.kill()
        assert said(ahead, ASK, url) == ""


def said(machine: Machine, code: str, *arguments: str) -> str:
    process = machine.start(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    return process.communicate(timeout=60)[0].strip()
