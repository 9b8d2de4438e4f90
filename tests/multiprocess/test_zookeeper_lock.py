"""Goal: the ZooKeeper lock keeps real processes and threads apart, whatever happens to holder and server.

Method: a real server (``tests.servers.zookeeper``) and worker processes (``lock_worker.py``) that are
killed, stopped and forked; an independent witness (a file made with O_EXCL inside the critical section)
sees every overlap. The server's own answers and a second kazoo client say which nodes are left. Sessions
expire by the server's clock, so these tests wait for short real expiries.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainstem.errors import Invalid, LeaseLost, LockUnavailable, Unavailable
from mainstem.options.locks import EXPLICIT
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.providers import open_lock
from mainstem.truetime.locks.zookeeper import ZooKeeperLock
from tests.multiprocess.test_lock_processes import Process, eventually
from tests.servers.tcp_proxy import TcpProxy
from tests.servers.zookeeper import ZooKeeperServer

kazoo_client = pytest.importorskip("kazoo.client")
# Long enough for a busy machine; tests that wait for an expiry take a short one.
SESSION_MS = 60_000
SHORT = {"write__lock__zookeeper__session_timeout_ms": 1_000}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tick_ms=100) as running:
        yield running


@pytest.fixture
def folder(request) -> str:
    """A lock node of this test's own."""
    return f"/hudi/locks/{request.node.name.partition('[')[0]}"


@pytest.fixture
def look(server) -> Iterator:
    """Somebody else's client, without any of our code."""
    client = kazoo_client.KazooClient(server.connect_string, timeout=30)
    client.start()
    yield client
    client.stop()
    client.close()


def properties(server: ZooKeeperServer, folder: str, patience_ms: int = 50_000, **more: object) -> dict:
    base_path, _, key = folder.rpartition("/")
    given = {
        "write.lock.provider": EXPLICIT,
        "write.lock.zookeeper.url": server.connect_string,
        "write.lock.zookeeper.base_path": base_path,
        "write.lock.zookeeper.lock_key": key,
        "write.lock.zookeeper.session_timeout_ms": SESSION_MS,
        "write.lock.wait_time_ms": patience_ms,
        "write.lock.client.num_retries": 0,
    }
    given |= {key.replace("__", "."): value for key, value in more.items()}
    return {f"hoodie.{key}": str(value) for key, value in given.items()}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "counter").write_text("0")
    return tmp_path


@pytest.fixture
def start(server, base, folder) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def run(**more: object) -> Process:
        started.append(Process(base, properties(server, folder, **more)))
        return started[-1]

    yield run
    for process in started:
        process.end()


@pytest.fixture
def lock(server, folder, base) -> Iterator[Callable[..., ZooKeeperLock]]:
    opened: list[ZooKeeperLock] = []

    def make(**more: object) -> ZooKeeperLock:
        options = LockOptions.from_properties(properties(server, folder, **more), base=str(base))
        opened.append(open_lock(options, clock=SystemClock(), random=random.SystemRandom()))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def has_it(process: Process) -> bool:
    """It got the lock and holds it. A busy machine may take it away again: then it gets it once more."""
    for _ in range(20):
        if process.call("check") == {"answer": "ours"}:
            return True
        process.call("release")
        assert "answer" in process.call("acquire")
    return False


def gets_it(lock: ZooKeeperLock) -> bool:
    """The same of a lock of this process, whose server may need some time to answer again."""
    for _ in range(20):
        with contextlib.suppress(LeaseLost, Unavailable):
            lease = lock.acquire()
            lease.check()
            lease.release()
            return True
    return False


def children(look, folder: str) -> list[str]:
    return look.get_children(folder) if look.exists(folder) else []


@pytest.mark.nothing_lost
@pytest.mark.supports("Locks", "ZooKeeper lock (ZookeeperBasedLockProvider)")
def test_five_processes_never_overlap_lose_no_increment_and_leave_no_node(base, start, look, folder):
    workers = [start() for _ in range(5)]
    for worker in workers:
        worker.send("count 40 0")
    assert [worker.receive() for worker in workers] == [{"answer": 40}] * 5
    assert (base / "counter").read_text() == "200"
    assert children(look, folder) == []


@pytest.mark.nothing_lost
def test_threads_of_one_process_exclude_each_other_over_one_session(base, lock):
    from tests.multiprocess.lock_worker import critical_section

    shared = lock()
    session = shared.session().number

    def work() -> None:
        for _ in range(15):
            lease = shared.acquire()
            critical_section(str(base), 0.2)
            lease.check()
            lease.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (base / "counter").read_text() == "60"
    assert shared.session().number == session


def test_the_lock_is_handed_over_in_the_order_of_coming(lock, look, folder):
    first, order = lock().acquire(), []

    def wait(number: int) -> None:
        lease = lock().acquire()
        order.append(number)
        lease.release()

    waiting = []
    for number in range(5):
        waiting.append(threading.Thread(target=wait, args=(number,)))
        waiting[-1].start()
        eventually(lambda n=number: len(children(look, folder)) == n + 2, "it stands in the queue")
    first.release()
    for thread in waiting:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


def test_who_waits_too_long_is_told_who_holds_it_and_leaves_the_queue(start, look, folder):
    holder, waiter = start(), start(patience_ms=1_000)
    holder.call("acquire")
    answer = waiter.call("acquire")
    assert answer["error"] == "LockUnavailable"
    assert f'"pid": {holder.child.pid}' in answer["message"] and folder in answer["message"]
    assert len(children(look, folder)) == 1
    assert holder.call("check") == {"answer": "ours"}


def test_the_lock_of_a_killed_holder_is_free_when_its_session_ends(start):
    holder, waiter = start(**SHORT), start()
    holder.call("acquire")
    holder.end()
    assert "answer" in waiter.call("acquire")
    assert waiter.call("check") == {"answer": "ours"}


def test_a_stopped_holder_is_superseded_told_so_and_takes_nothing_from_its_successor(start, look, folder):
    holder, waiter = start(**SHORT), start()
    holder.call("acquire")
    holder.stop()
    assert "answer" in waiter.call("acquire")
    holder.signal(signal.SIGCONT)
    answer = holder.call("check")
    assert answer["error"] == "LeaseLost" and "the session expired" in answer["message"]
    before = children(look, folder)
    holder.call("release")
    assert children(look, folder) == before and len(before) == 1
    assert waiter.call("check") == {"answer": "ours"}
    waiter.call("release")
    assert "answer" in holder.call("acquire")  # over a new session
    assert has_it(holder)


def test_a_stopped_waiter_that_wakes_after_its_session_goes_to_the_end_of_the_queue(start, look, folder):
    holder, stopped = start(), start(**SHORT)
    holder.call("acquire")
    stopped.send("acquire")
    eventually(lambda: len(children(look, folder)) == 2, "it stands in the queue")
    stopped.stop()
    eventually(lambda: len(children(look, folder)) == 1, "its session ended")
    stopped.signal(signal.SIGCONT)
    eventually(lambda: len(children(look, folder)) == 2, "it stands there again")
    holder.call("release")
    assert "answer" in stopped.receive()
    assert has_it(stopped)


def test_a_lease_lasts_over_a_kill_and_a_restart_of_the_server(start, server, look, folder):
    # Far longer than a busy machine's restart, and not for ever: an answer that the dead server owed is
    # waited for that long.
    patient = {"write__lock__zookeeper__session_timeout_ms": 20_000, "patience_ms": 120_000}
    holder, waiter = start(**patient), start(**patient)
    holder.call("acquire")
    waiter.send("acquire")
    eventually(lambda: len(children(look, folder)) == 2, "the waiter stands in the queue")
    server.restart()
    assert holder.call("check") == {"answer": "ours"}
    holder.call("release")
    assert "answer" in waiter.receive()
    assert waiter.call("check") == {"answer": "ours"}
    assert len(look.retry(look.get_children, folder)) == 1


def test_a_server_that_takes_a_connection_and_never_answers_it_is_asked_again_soon(server, lock):
    patient = {"session_timeout_ms": 120_000, "connection_timeout_ms": 60_000}
    with TcpProxy(server.port, mute=1) as proxy:
        given = {f"write__lock__zookeeper__{key}": value for key, value in patient.items()}
        mine = lock(write__lock__zookeeper__url=f"127.0.0.1:{proxy.port}", **given)
        lease = mine.acquire()
        lease.check()
        lease.release()
        mine.close()


def test_a_server_that_does_not_answer_for_a_session_is_a_lost_lease_and_then_all_goes_on(lock, server):
    mine = lock(**SHORT)
    lease = mine.acquire()
    server.stop()
    try:
        with pytest.raises(LeaseLost, match=r"did not answer for 1000 ms|session expired"):
            lease.check()
    finally:
        server.resume()
    lease.release()
    assert gets_it(mine)


def test_a_node_that_somebody_deletes_is_a_lost_lease(lock, look, folder):
    lease = lock().acquire()
    (node,) = children(look, folder)
    look.delete(f"{folder}/{node}")
    with pytest.raises(LeaseLost, match="somebody deleted it"):
        lease.check()
    lease.release()


def test_a_lock_node_that_somebody_deletes_is_made_again(lock, look, folder):
    mine = lock()
    mine.acquire().release()
    look.delete(folder)
    mine.acquire().release()
    lease = mine.acquire()
    look.delete(folder, recursive=True)
    with pytest.raises(LeaseLost):
        lease.check()
    assert mine.acquire().check() is None


def test_a_released_lease_is_no_lease(lock):
    lease = lock().acquire()
    lease.release()
    with pytest.raises(LeaseLost, match="released already"):
        lease.check()
    lease.release()


class LosesAnswers:
    """A session that drops its connection right behind a create: sent, and never answered."""

    def __init__(self, lock: ZooKeeperLock, times: int) -> None:
        self.left = times
        client = lock.session().client
        self.create = client.create_async
        self.client = client
        client.create_async = self

    def __call__(self, path: str, *arguments, **options):
        answer = self.create(path, *arguments, **options)
        if "-lock-" in path and self.left:
            self.left -= 1
            answer.get(timeout=60)  # it took effect
            self.client._connection._socket.shutdown(2)
            lost = self.client.handler.async_result()
            from kazoo.exceptions import ConnectionLoss

            lost.set_exception(ConnectionLoss())
            return lost
        return answer


def test_a_create_whose_answer_is_lost_leaves_no_second_node(lock, look, folder):
    mine = lock()
    losing = LosesAnswers(mine, times=1)
    lease = mine.acquire()
    assert losing.left == 0
    lease.check()
    assert len(children(look, folder)) == 1
    lease.release()
    assert children(look, folder) == []


def test_giving_up_after_a_lost_answer_leaves_no_node(lock, look, folder):
    holder, mine = lock().acquire(), lock(patience_ms=1_000)
    LosesAnswers(mine, times=1)
    with pytest.raises(LockUnavailable):
        mine.acquire()
    assert len(children(look, folder)) == 1
    holder.check()


def test_a_second_node_of_ours_is_removed_when_we_hold_the_lock(lock, look, folder):
    """A create that was delayed somewhere took effect after it had been looked for."""
    holder, mine, got = lock().acquire(), lock(), []
    waiting = threading.Thread(target=lambda: got.append(mine.acquire()))
    waiting.start()
    eventually(lambda: len(children(look, folder)) == 2, "it stands in the queue")
    (ours,) = [name for name in children(look, folder) if name not in holder._node.name]
    look.create(f"{folder}/{ours[:-10]}", sequence=True)
    holder.release()
    waiting.join()
    assert children(look, folder) == [ours]
    got[0].check()


def test_a_release_without_an_answer_ends_the_session_and_the_node_goes_with_it(lock, look, server, folder):
    mine = lock(**SHORT, write__lock__zookeeper__connection_timeout_ms=2_000)
    lease = mine.acquire()
    server.stop()
    try:
        lease.release()
    finally:
        server.resume()
    eventually(lambda: children(look, folder) == [], "the node goes")
    assert gets_it(mine)


def test_a_process_that_ends_gives_its_lock_back_at_once(start, look, folder):
    holder = start()
    holder.call("acquire")
    holder.child.stdin.close()
    assert holder.child.wait(timeout=120) == 0
    assert children(look, folder) == []


# Fork


def test_a_forked_child_neither_owns_nor_frees_the_lock_of_its_parent(start):
    holder = start()
    holder.call("acquire")
    assert "it was taken before the process forked" in holder.call("check_in_child")["answer"]
    assert holder.call("check") == {"answer": "ours"}
    holder.call("release")
    assert holder.call("use_lock_in_child") == {"answer": 0}
    assert "answer" in holder.call("acquire")


def test_a_forked_child_does_not_keep_the_lock_of_a_dead_parent(start):
    holder, waiter = start(**SHORT), start()
    holder.call("acquire")
    child = holder.call("fork_idle_child")["answer"]
    try:
        holder.signal(signal.SIGKILL)
        holder.child.wait()
        assert "answer" in waiter.call("acquire")
    finally:
        os.kill(child, signal.SIGKILL)


# What others put into the lock node


def test_a_node_that_sorts_before_us_blocks_us_as_it_blocks_java_and_is_named(lock, look, folder):
    look.create(f"{folder}/!mine", b"\xff" * 10_000 + b"{", makepath=True)
    with pytest.raises(LockUnavailable, match=r"'!mine' \(no contender's node") as caught:
        lock(patience_ms=1_000).acquire()
    assert len(str(caught.value)) < 1_000
    assert children(look, folder) == ["!mine"]


def test_a_dead_contenders_node_that_stays_is_named_with_a_bounded_view_of_its_data(lock, look, folder):
    name = "_c_evil-lock-0000000000"
    look.create(f"{folder}/{name}", b"\x1b[31m" + b"x" * 900_000, makepath=True)
    with pytest.raises(LockUnavailable, match="not ephemeral: it stays until") as caught:
        lock(patience_ms=1_000).acquire()
    assert len(str(caught.value)) < 1_000 and "\x1b" not in str(caught.value)


def test_nodes_that_sort_behind_us_do_not_matter(lock, look, folder):
    for name in ("zebra", "ünïcode", "x" * 500, "lock", "_c_x-lock-99999999999"):
        look.create(f"{folder}/{name}", b"{" * 1_000, makepath=True)
    mine = lock()
    for _ in range(3):
        lease = mine.acquire()
        lease.check()
        lease.release()


def test_a_node_that_comes_in_before_the_holder_is_a_lost_lease(lock, look, folder):
    lease = lock().acquire()
    look.create(f"{folder}/_c_x-lock--000000001")
    with pytest.raises(LeaseLost, match="came in before it"):
        lease.check()


@pytest.mark.parametrize("name", ["ab__lock__0000000001", "_c_x-__WRIT__0000000002"])
def test_another_kind_of_lock_on_the_same_node_is_refused(lock, look, folder, name):
    if look.exists(folder):
        look.delete(folder, recursive=True)
    look.create(f"{folder}/{name}", makepath=True)
    with pytest.raises(Invalid, match="another kind of lock"):
        lock().acquire()
    assert children(look, folder) == [name]


# Access and addresses

PASSWORD = "digest:hudi:s3cr3t"


@pytest.mark.supports("Locks", "ZooKeeper with digest authentication")
def test_with_a_password_the_nodes_are_its_owners_alone(lock, look, folder, caplog):
    caplog.set_level(1)
    secret = {"mainstem__lock__zookeeper__auth": PASSWORD}
    mine = lock(**secret)
    lease = mine.acquire()
    lease.check()
    (acl,), _ = mine.session().client.get_acls(folder)
    assert acl.id.scheme == "digest" and acl.id.id.startswith("hudi:") and acl.perms == 31
    with pytest.raises(Invalid, match=r"set hoodie\.mainstem\.lock\.zookeeper\.auth"):
        lock().acquire()
    other, got = lock(**secret), []
    waiting = threading.Thread(target=lambda: got.append(other.acquire()))
    waiting.start()
    eventually(lambda: len(children(mine.session().client, folder)) == 2, "it waits")
    lease.release()
    waiting.join()
    got[0].check()
    assert "s3cr3t" not in caplog.text


def test_a_holder_whose_node_we_may_not_read_is_waited_for(lock, look, folder):
    """The lock node is open to all, the contenders' nodes are not."""
    from kazoo.security import OPEN_ACL_UNSAFE

    look.create(folder, acl=OPEN_ACL_UNSAFE, makepath=True)
    lease = lock(mainstem__lock__zookeeper__auth=PASSWORD).acquire()
    got, mine = [], lock()
    waiting = threading.Thread(target=lambda: got.append(mine.acquire()))
    waiting.start()
    eventually(lambda: len(children(look, folder)) == 2, "it stands in the queue")
    lease.check()
    lease.release()
    waiting.join(timeout=90)
    got[0].check()


def test_a_chroot_and_several_servers_of_which_one_answers(lock, look, server, folder):
    url = {"write__lock__zookeeper__url": f"127.0.0.1:1,{server.connect_string}/hudi/prod"}
    with pytest.raises(Invalid, match=r"the chroot /hudi/prod of .* does not exist"):
        lock(**url).acquire()
    look.ensure_path("/hudi/prod")
    lease = lock(**url).acquire()
    lease.check()
    assert len(children(look, "/hudi/prod" + folder)) == 1
    lease.release()


def test_sessions_and_threads_end_with_their_lock(server, folder, base):
    known = set(threading.enumerate())
    options = LockOptions.from_properties(properties(server, folder), base=str(base))
    closed = open_lock(options, clock=SystemClock(), random=random.SystemRandom())
    closed.acquire()
    closed.close()
    eventually(lambda: not set(threading.enumerate()) - known, "its threads end")
    closed.acquire().release()  # it may be used again
    del closed
    gc.collect()
    eventually(lambda: not set(threading.enumerate()) - known, "a forgotten lock's threads end")


def test_a_server_that_is_stopped_before_the_first_connection_is_unavailable(lock, server):
    mine = lock(write__lock__zookeeper__connection_timeout_ms=3_000)
    server.stop()
    try:
        with pytest.raises(Unavailable, match="answered within 3000 ms"):
            mine.acquire()
    finally:
        server.resume()
    assert gets_it(mine)


def test_the_node_says_who_holds_it(lock, look, folder):
    lease = lock().acquire()
    (name,) = children(look, folder)
    assert json.loads(look.get(f"{folder}/{name}")[0])["pid"] == os.getpid()
    lease.release()
