"""Goal: the ordinal of a write is the same in every replay of its batch, or the write is refused.

Method: the register on a real local folder for the rules; many threads and a storage that stops a
writer between two calls for the register itself; no Spark is needed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mainstem.errors import CorruptTable, Invalid
from mainstem.storage.local import LocalStorage
from mainstem.writers.write_ordinals import StreamWrite, allocate, claim, finish, stream_folder

Q = "0b5f7f0e-query"


def _write(
    write: str, run: str = "run-1", batch: int = 7, looks: str = "upsert(id)", query: str = Q
) -> StreamWrite:
    return StreamWrite("chk", query, batch, run, write, looks)


class Register:
    """One stream's register on a folder, with short calls."""

    def __init__(self, folder: Path) -> None:
        self.storage = LocalStorage(str(folder))
        self.random = random.Random(1)

    def take(self, write: StreamWrite, **given: int) -> int:
        return allocate(self.storage, self.random, write, **given)

    def end(self, write: StreamWrite, ok: bool = True, now_ms: int | None = None) -> None:
        finish(self.storage, self.random, write, ok=ok, now_ms=now_ms)

    def run(self, *writes: StreamWrite) -> list[int]:
        found = []
        for write in writes:
            found.append(self.take(write))
            self.end(write)
        return found

    def files(self) -> list[str]:
        return sorted(self.storage.names(stream_folder("chk")))


@pytest.fixture
def register(tmp_path: Path) -> Register:
    return Register(tmp_path)


def test_writes_of_a_run_are_counted_and_a_replay_gets_the_same_numbers(register: Register) -> None:
    assert register.run(_write("a"), _write("b"), _write("c")) == [0, 1, 2]
    replay = [_write(w, run="run-2") for w in ("x", "y", "z")]
    assert register.run(*replay) == [0, 1, 2]


def test_the_next_batch_starts_at_0_again(register: Register) -> None:
    register.run(_write("a"), _write("b"))
    assert register.run(_write("c", batch=8)) == [0]


def test_asking_again_for_the_same_write_gives_the_same_number(register: Register) -> None:
    register.run(_write("a"))
    assert [register.take(_write("b")) for _ in range(3)] == [1, 1, 1]


def test_two_drivers_count_the_same_batch_side_by_side(register: Register) -> None:
    first, second = _write("a", run="one"), _write("b", run="two")
    assert (register.take(first), register.take(second)) == (0, 0)
    register.end(second)
    register.end(first)
    assert register.run(_write("c", run="one"), _write("d", run="two")) == [1, 1]


def test_a_second_write_beside_an_open_one_is_refused_and_so_is_every_later_run(
    register: Register,
) -> None:
    register.take(_write("a"))
    with pytest.raises(Invalid, match=r"several threads.*stream.ordinal"):
        register.take(_write("b"))
    register.end(_write("a"))
    with pytest.raises(Invalid, match="several threads"):
        register.take(_write("a", run="run-2"))
    assert register.take(_write("x", run="run-3"), ordinal=0) == 0


def test_a_write_that_began_before_the_last_one_ended_is_refused(register: Register) -> None:
    register.take(_write("a"), started_ms=1_000)
    register.end(_write("a"), now_ms=2_000)
    with pytest.raises(Invalid, match="several threads"):
        register.take(_write("b"), started_ms=1_999)


def test_a_write_that_began_after_the_last_one_ended_is_counted(register: Register) -> None:
    register.take(_write("a"), started_ms=1_000)
    register.end(_write("a"), now_ms=2_000)
    assert register.take(_write("b"), started_ms=2_000) == 1


def test_after_a_failed_write_the_rest_of_the_run_is_refused_and_a_replay_is_not(
    register: Register,
) -> None:
    register.take(_write("a"))
    register.end(_write("a"), ok=False)
    with pytest.raises(Invalid, match="earlier write of this run failed"):
        register.take(_write("b"))
    assert register.run(_write("x", run="run-2"), _write("y", run="run-2")) == [0, 1]


def test_given_ordinals_may_come_from_threads_in_any_order(register: Register) -> None:
    assert register.take(_write("b"), ordinal=1) == 1
    assert register.take(_write("a"), ordinal=0) == 0


def test_an_ordinal_given_twice_in_one_run_is_refused(register: Register) -> None:
    register.take(_write("a"), ordinal=0)
    register.end(_write("a"))
    with pytest.raises(Invalid, match="given to two writes"):
        register.take(_write("b"), ordinal=0)


def test_a_failed_write_with_a_given_ordinal_may_be_tried_again(register: Register) -> None:
    register.take(_write("a"), ordinal=0)
    register.end(_write("a"), ok=False)
    assert register.take(_write("again"), ordinal=0) == 0


def test_given_and_counted_ordinals_do_not_mix(register: Register) -> None:
    register.take(_write("a"), ordinal=0)
    register.end(_write("a"))
    with pytest.raises(Invalid, match="give it to all of them"):
        register.take(_write("b"))


def test_a_replay_in_another_order_is_refused_instead_of_skipping_the_wrong_write(
    register: Register,
) -> None:
    register.run(_write("a", looks="upsert(id)"))
    with pytest.raises(Invalid, match=r"upsert\(other\).*committed \[upsert\(id\)\]"):
        register.take(_write("x", run="run-2", looks="upsert(other)"))


def test_a_batch_that_is_over_is_refused(register: Register) -> None:
    register.run(_write("a", batch=8))
    with pytest.raises(Invalid, match="batch 7 of stream 'chk' is over"):
        register.take(_write("b", batch=7))


def test_an_identifier_belongs_to_one_query(register: Register) -> None:
    claim(register.storage, register.random, "chk", Q)
    claim(register.storage, register.random, "chk", Q)
    with pytest.raises(Invalid, match="belongs to the streaming query"):
        claim(register.storage, register.random, "chk", "another")
    with pytest.raises(Invalid, match="belongs to the streaming query"):
        register.take(_write("a", query="another"))


def test_the_number_of_files_stays_constant(register: Register) -> None:
    for batch in range(30):
        register.run(_write("a", batch=batch), _write("b", batch=batch))
    assert register.files() == ["state-119", "state-120"]


def test_a_run_that_was_forgotten_may_not_count_on(register: Register) -> None:
    register.run(_write("a", run="old"))
    for n in range(40):
        register.run(_write("a", run=f"run-{n}"))
    with pytest.raises(Invalid, match="ordinals are forgotten"):
        register.take(_write("b", run="old"))


def test_a_damaged_register_is_an_error_with_its_path(register: Register) -> None:
    register.run(_write("a"))
    newest = max(register.files(), key=lambda n: int(n.split("-")[1]))
    path = Path(register.storage.base, stream_folder("chk"), newest)
    path.write_bytes(b'{"identifier": "chk", "ba')
    with pytest.raises(CorruptTable) as caught:
        register.take(_write("b"))
    assert caught.value.path.endswith(newest)


def test_many_drivers_at_once_all_count_without_loss(tmp_path: Path) -> None:
    found: dict[int, list[int]] = {}

    def driver(number: int) -> None:
        register = Register(tmp_path)
        register.random = random.Random(number)
        found[number] = register.run(*[_write(f"{number}-{n}", run=f"{number}") for n in range(8)])

    threads = [threading.Thread(target=driver, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: list(range(8)) for n in range(4)}


class Stopping(LocalStorage):
    """Runs ``meanwhile`` once, right before one call: as if the process had been stopped there."""

    meanwhile: Callable[[], None] | None = None
    stops_before = ""

    def _stop(self, call: str) -> None:
        if self.meanwhile is not None and call == self.stops_before:
            then, self.meanwhile = self.meanwhile, None
            then()

    def put_new(self, path: str, data: bytes, *, durable: bool) -> None:
        self._stop("put_new")  # the private file: too late for the others' sweep
        super().put_new(path, data, durable=durable)

    def link(self, source: str, target: str, *, durable: bool = False) -> None:
        self._stop("link")
        super().link(source, target, durable=durable)


@pytest.mark.parametrize("call", ["put_new", "link"])
@pytest.mark.parametrize("before", [0, 1, 2, 5])
@pytest.mark.parametrize("others", [1, 2, 3, 7])
def test_a_stopped_writer_never_builds_on_a_swept_version(
    tmp_path: Path, before: int, others: int, call: str
) -> None:
    other = Register(tmp_path)
    other.run(*[_write(f"b{n}", run=f"before-{n}") for n in range(before)])
    stopped = Stopping(str(tmp_path))
    stopped.stops_before = call

    def go_on() -> None:
        for n in range(others):
            other.run(_write(f"o{n}", run="other"))

    stopped.meanwhile = go_on
    late = _write("late", run="other")
    # Counted in the same run as the others: its number must come after theirs.
    assert allocate(stopped, random.Random(9), late) == others
    assert register_count(other, "late") == 1


def register_count(register: Register, write: str) -> int:
    newest = max(register.files(), key=lambda n: int(n.removeprefix("state-")))
    folder = Path(register.storage.base, stream_folder("chk"))
    return (folder / newest).read_text().count(f'"{write}"')
