"""Goal: of the processes of a machine one has a folder's turn, and nobody has it any longer than its block.

Method: blocks in this process, in children that die, and in children that are forked in the middle.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.services.beside_commits import OTHERS_MS, PATIENCE_MS, Pace
from mainstem.storage.local import LocalStorage
from mainstem.storage.turns import has_turns, turn

HOLD = """
import sys, time
from mainstem.storage.local import LocalStorage
from mainstem.storage.turns import turn
with turn(LocalStorage(sys.argv[1]), "") as ours:
    print(ours, flush=True)
    time.sleep(60)
"""


def test_a_second_block_finds_the_turn_taken_until_the_first_one_ends(tmp_path: Path) -> None:
    store = LocalStorage(str(tmp_path))
    assert has_turns(store)
    with turn(store, "") as ours, turn(LocalStorage(str(tmp_path)), "") as theirs:
        assert (ours, theirs) == (True, False)
    with turn(store, "") as ours:
        assert ours


def test_a_folder_that_is_not_there_is_everybodys_turn(tmp_path: Path) -> None:
    with turn(LocalStorage(str(tmp_path)), "gone") as ours:
        assert ours


def test_a_process_that_is_killed_leaves_its_turn(tmp_path: Path) -> None:
    store = LocalStorage(str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "True\n"
        with turn(store, "") as ours:
            assert not ours
        other.send_signal(signal.SIGKILL)
        other.wait()
    with turn(store, "") as ours:
        assert ours


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_keep_its_parents_turn(tmp_path: Path) -> None:
    store = LocalStorage(str(tmp_path))
    wait, go = os.pipe()
    there, here = os.pipe()
    with turn(store, ""):
        child = os.fork()
        if not child:
            os.close(go)
            os.write(here, b".")
            os.read(wait, 1)
            os._exit(0)
        os.read(there, 1)
    try:
        with turn(store, "") as ours:
            assert ours
    finally:
        for end in (go, wait, there, here):
            os.close(end)
        os.waitpid(child, 0)


def test_services_are_left_to_another_process_for_a_while_and_not_for_ever() -> None:
    pace, now = Pace(), 1_000.0
    assert pace.left_to_others(now) and pace.not_before_ms == now + OTHERS_MS
    assert pace.left_to_others(now + PATIENCE_MS - 1)
    assert not pace.left_to_others(now + PATIENCE_MS)
    pace.rest(now + PATIENCE_MS, 10.0, fruitful=True)
    assert pace.left_to_others(now + PATIENCE_MS + 1)
