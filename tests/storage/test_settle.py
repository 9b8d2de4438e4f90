"""Goal: the files of a commit are made durable together, and a failure of one is never swallowed.

Method: real files below a temporary folder; one sink among them fails; a forked child uses the same
call after its parent did.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from mainstem.storage.local import LocalStorage


class _Failing:
    """A sink whose disk is full when it is closed."""

    size = 0

    def append(self, buffers) -> None:
        raise AssertionError("nothing is appended here")

    def close(self, *, durable: bool) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def sinks_open(folder: Path) -> int | None:
    """How many files of ``folder`` this process has open; None where nobody tells."""
    if not os.path.isdir("/proc/self/fd"):
        return None
    places = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # of the listing itself, or of another thread
            places.append(os.readlink(f"/proc/self/fd/{number}"))
    return sum(place.startswith(f"{folder}/f") for place in places)


@pytest.mark.parametrize("place", [0, 2, 4])
def test_every_sink_is_closed_and_the_failure_is_raised(place: int, tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    sinks: list = [storage.upload(f"f{i}") for i in range(4)]
    for sink in sinks:
        sink.append([b"x" * 1000])
    open_before = sinks_open(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        storage.settle([*sinks[:place], _Failing(), *sinks[place:]], [""], durable=True)
    assert (open_before, sinks_open(tmp_path)) in ((4, 0), (None, None))
    assert all((tmp_path / f"f{i}").stat().st_size == 1000 for i in range(4))


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    sink = storage.upload("f")
    with pytest.raises(FileNotFoundError):
        storage.settle([sink], ["nowhere"], durable=True)


def test_without_durability_files_are_only_closed(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path), sync=False)
    sink = storage.upload("f")
    storage.settle([sink], ["nowhere"], durable=True)
    LocalStorage(str(tmp_path)).settle([], ["nowhere"], durable=False)


def test_a_forked_child_settles_with_threads_of_its_own(tmp_path: Path) -> None:
    code = """
import os, sys
from mainstem.storage.local import LocalStorage
storage = LocalStorage(sys.argv[1])
def settle(name):
    storage.settle([storage.upload(f"{name}{i}") for i in range(3)], [""], durable=True)
settle("parent")
child = os.fork()
if child == 0:
    settle("child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], check=True, timeout=60
    )
    assert len(list(tmp_path.iterdir())) == 6
