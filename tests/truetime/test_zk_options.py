"""Goal: ZooKeeper lock settings are read as Hudi means them, and secrets stay secret.

Method: settings alone, no server. The hash behind the implicit base path is compared with vectors of
xxHash's authors and with a path that Hudi's documentation of the provider gives; Java's own class is
asked in ``tests/interop/test_interop_zookeeper.py``.
"""

from __future__ import annotations

import logging
import pickle
import random
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.api.real_seams import ZOOKEEPER_AUTH_VARIABLE
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.options.locks import EXPLICIT, IMPLICIT
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.providers import open_lock
from mainstem.truetime.locks.zookeeper import in_line
from mainstem.truetime.locks.zookeeper_options import implicit_base_path, xxh64

HERE = {"url": "h1:2181", "base_path": "/hudi/locks", "lock_key": "trips"}


def options(provider: str = EXPLICIT, base: str = "/lake/t", **given: str) -> LockOptions:
    keys = {f"hoodie.write.lock.zookeeper.{k}": v for k, v in given.items() if "__" not in k}
    more = {"hoodie." + k.replace("__", "."): v for k, v in given.items() if "__" in k}
    return LockOptions.from_properties(
        {"hoodie.write.lock.provider": provider, **keys, **more}, base=base
    )


def place(**given: str):
    return options(**{**HERE, **given}).zookeeper


def test_defaults_are_hudis():
    found = place()
    assert (found.session_ms, found.connection_ms, found.digest) == (60_000, 15_000, None)
    assert (found.hosts, found.chroot, found.folder) == ((("h1", 2181),), "", "/hudi/locks/trips")


def test_the_lock_key_is_the_tables_name_where_none_is_given():
    found = options(url="h1", base_path="/locks", table__name="rides")
    assert found.zookeeper.folder == "/locks/rides"


@pytest.mark.parametrize(
    ("url", "hosts", "chroot"),
    [
        ("h1", (("h1", 2181),), ""),
        ("h1:1,h2:2", (("h1", 1), ("h2", 2)), ""),
        ("h1:1, h2/hudi/prod", (("h1", 1), ("h2", 2181)), "/hudi/prod"),
        ("[::1]:99,10.0.0.1:98/x", (("::1", 99), ("10.0.0.1", 98)), "/x"),
        ("h1/", (("h1", 2181),), ""),
    ],
)
def test_the_connect_string_is_read_as_curator_reads_it(url, hosts, chroot):
    found = place(url=url)
    assert (found.hosts, found.chroot) == (hosts, chroot)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"url": ""}, "url is not set"),
        ({"url": "h1:2181:3"}, "expected host:port"),
        ({"url": "h1:99999"}, "expected host:port"),
        ({"url": "zk://h1"}, "chroot of hoodie.*without empty names"),
        ({"url": "h1,,h2"}, "expected host:port"),
        ({"url": "h1/a//b"}, "without empty names"),
        ({"url": "h1", "port": "2182"}, "port=2182 has no effect"),
        ({"base_path": ""}, "base_path is not set"),
        ({"base_path": "hudi"}, "from the root"),
        ({"base_path": "/hudi/"}, "without empty names"),
        ({"base_path": "/hudi/../x"}, "without empty names"),
        ({"lock_key": ""}, "lock_key is not set"),
        ({"lock_key": "a\x00b"}, "expected a ZooKeeper path"),
        ({"session_timeout_ms": "soon"}, "whole number of milliseconds"),
        ({"connection_timeout_ms": "0"}, "1 to"),
    ],
)
def test_settings_that_java_would_not_take_are_refused_with_the_key(given, expected):
    with pytest.raises(Invalid, match=expected) as caught:
        place(**given)
    assert "hoodie.write.lock.zookeeper." in str(caught.value)


def test_the_port_option_counts_for_nothing_as_in_hudi():
    assert place(url="h1:2182", port="2182").hosts == (("h1", 2182),)
    assert place(url="h1", port="2181").hosts == (("h1", 2181),)


def test_writers_agree_on_servers_and_node_whatever_the_order_and_timeouts():
    one = place(url="h1:2181,H2:99/c", session_timeout_ms="5000")
    other = place(url="h2:99,h1/c", port="2181")
    assert one.identity == other.identity == "zookeeper:h1:2181,h2:99/c/hudi/locks/trips"
    assert options(**HERE).identity == "zookeeper:h1:2181/hudi/locks/trips"
    differing = [place(), place(url="h2"), place(lock_key="x"), place(base_path="/x"), place(url="h1/c")]
    assert len({found.identity for found in differing}) == 5


def test_xxhash_gives_the_authors_values():
    assert xxh64(b"", 0) == 0xEF46DB3751D8E999
    assert xxh64(b"abc", 0) == 0x44BC2CF5AD770999
    assert xxh64(b"Nobody inspects the spammish repetition", 0) == 0xFBCEA83C8A378BF1


def test_the_implicit_path_is_the_hash_of_the_base_path_with_javas_seed():
    assert implicit_base_path("s3://my-bucket/my_lake/my_table") == "/tmp/C0E15D0CE1AD11CC"
    assert implicit_base_path("s3a://my-bucket/my_lake/my_table") == "/tmp/C0E15D0CE1AD11CC"
    found = options(IMPLICIT, base="/lake/t", url="h1")
    assert found.zookeeper.folder == implicit_base_path("/lake/t") + "/lock_key"


def test_the_implicit_path_follows_the_spelling_that_the_java_jobs_use():
    spelt = options(IMPLICIT, url="h1", base__path="file:/lake/t").zookeeper
    assert spelt.folder == implicit_base_path("file:/lake/t") + "/lock_key"
    for wrong in ("/lake/other", "/lake/t/", " /lake/t"):
        with pytest.raises(Invalid, match=r"base\.path=.*expected the table's path /lake/t"):
            options(IMPLICIT, url="h1", base__path=wrong)


# Secrets

SECRET = "digest:hudi:s3cr3t"


def test_a_password_is_in_no_representation_and_no_message():
    found = options(**HERE, mainstem__lock__zookeeper__auth=SECRET)
    assert found.zookeeper.digest == "hudi:s3cr3t"
    assert "s3cr3t" not in repr(found) + found.identity + found.zookeeper.connect_string
    for wrong in ("s3cr3t", "digest:s3cr3t", "digest::s3cr3t", "plain:hudi:s3cr3t"):
        with pytest.raises(Invalid, match="expected digest:<user>:<password>") as caught:
            options(**HERE, mainstem__lock__zookeeper__auth=wrong)
        assert "s3cr3t" not in str(caught.value)


def test_sasl_is_refused_by_name():
    with pytest.raises(Unsupported, match="asks for the scheme 'sasl'"):
        options(**HERE, mainstem__lock__zookeeper__auth="sasl:hudi:s3cr3t")


def test_kazoos_log_of_its_requests_shows_no_credentials(caplog):
    Auth = pytest.importorskip("kazoo.protocol.serialization").Auth
    from mainstem.truetime.locks import zookeeper_session

    caplog.set_level(1)
    logger = logging.getLogger("mainstem.zookeeper")
    logger.debug("Sending request(xid=%s): %s", -4, Auth(0, "digest", "hudi:s3cr3t"))
    logger.log(5, "Using session_id: %r session_passwd: %s", 1, b"s3cr3t")
    logger.debug("Sending request(xid=%s): %s", 7, "Exists")
    told = [record.getMessage() for record in caplog.records if record.name == logger.name]
    assert told == ["Sending request(xid=7): Exists"]
    assert zookeeper_session._log is logger


@pytest.fixture
def created(tmp_path, monkeypatch):
    """A table that was created with a ZooKeeper lock and a password; no server is asked for that."""
    monkeypatch.setenv(ZOOKEEPER_AUTH_VARIABLE, "digest:hudi:fr0m-env")
    given = {"hoodie.write.lock.provider": EXPLICIT, "hoodie.mainstem.lock.zookeeper.auth": SECRET}
    given |= {f"hoodie.write.lock.zookeeper.{k}": v for k, v in HERE.items()}
    schema = pa.schema([("id", pa.string())])
    return mainstem.create_table(tmp_path / "t", schema, record_key="id", buckets=1, properties=given)


def test_a_table_carries_its_lock_but_no_password(created):
    written = Path(created.path, ".hoodie/hoodie.properties").read_text()
    assert "s3cr3t" not in written + repr(created) + repr(created.properties)
    for key, value in HERE.items():
        assert created.properties[f"hoodie.write.lock.zookeeper.{key}"] == value
    # Java's waiter stands in ZooKeeper's queue: looking 20 times a second, 2400 times, is for lock files.
    assert "hoodie.write.lock.client.num_retries" not in created.properties


def test_who_opens_the_table_takes_its_lock_and_the_password_of_the_environment(created):
    opened = mainstem.open_table(created.path)
    assert opened.opened.seams.lock.identity == "zookeeper:h1:2181/hudi/locks/trips"
    assert opened.opened.seams.lock.place.digest == "hudi:fr0m-env"
    assert created.opened.seams.lock.place.digest == "hudi:s3cr3t"


def test_a_writer_with_another_place_than_the_tables_is_refused(created):
    with pytest.raises(Invalid, match="contradicts the table"):
        mainstem.open_table(created.path, properties={"hoodie.write.lock.zookeeper.url": "h9:2181"})


# Order and missing parts


def test_children_are_ordered_as_curator_orders_them():
    ours, theirs = "_c_b-lock-0000000002", "_c_a-lock-0000000010"
    assert in_line([theirs, ours]) == [ours, theirs]
    # By what follows the last "lock-", other names by themselves; digits before letters.
    names = ["zebra", "x-lock-", "0", ours, "lock-lock-0000000001", "!", theirs, "kazoo__lock__0000000000"]
    assert in_line(names) == [
        "x-lock-", "!", "0", "lock-lock-0000000001", ours, theirs, "kazoo__lock__0000000000", "zebra",
    ]  # fmt: skip
    assert in_line(["\U0001f600", "\uffff"]) == ["\U0001f600", "\uffff"], "Java compares UTF-16 units"


def test_without_kazoo_the_table_opens_and_writing_says_what_to_install(created, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "kazoo"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    opened = mainstem.open_table(created.path)
    assert opened.scan().to_arrow().num_rows == 0
    with pytest.raises(Unavailable, match=r"pip install 'mainstem\[zookeeper\]'"):
        opened.upsert(pa.table({"id": ["a"]}))


def test_a_lock_is_not_carried_to_another_process(created):
    with pytest.raises(TypeError, match="open the table again"):
        pickle.dumps(created.opened.seams.lock)
    settings = options(**HERE)
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_no_server_is_unavailable_within_the_connection_timeout():
    pytest.importorskip("kazoo")
    chosen = options(**{**HERE, "url": "127.0.0.1:1"}, connection_timeout_ms="300")
    lock = open_lock(chosen, clock=SystemClock(), random=random.SystemRandom())
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 answered within 300 ms"):
        lock.acquire()
