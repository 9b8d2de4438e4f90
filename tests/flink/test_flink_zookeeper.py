"""Goal: a Flink job says so if its ZooKeeper is away at the start or goes away for ever; no table is touched.

Method: an address at which nobody listens, and a real server that is killed under a running job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from test_flink_sql_statements import content
from test_flink_writers import ONE, numbers, rows_of, table, wait_for

from mainstem.errors import LockUnavailable, MainstemError, Unavailable
from mainstem.options.locks import EXPLICIT
from tests.servers.zookeeper import ZooKeeperServer, free_port

pytest.importorskip("kazoo.client")
SOON = {
    "hoodie.write.lock.zookeeper.connection_timeout_ms": "500",
    "hoodie.write.lock.zookeeper.session_timeout_ms": "2000",
    "hoodie.write.lock.wait_time_ms": "1500",
    "hoodie.write.lock.client.num_retries": "0",
    "hoodie.time.generator.max_expected_clock_skew_ms": "0",
}


# Where there is a server, a busy machine's time to answer.
LATER = {
    **SOON,
    "hoodie.write.lock.zookeeper.connection_timeout_ms": "5000",
    "hoodie.write.lock.zookeeper.session_timeout_ms": "30000",
}


def at(address: str, times: dict[str, str]) -> dict[str, str]:
    return {
        "hoodie.write.lock.provider": EXPLICIT,
        "hoodie.write.lock.zookeeper.url": address,
        "hoodie.write.lock.zookeeper.base_path": "/hudi/locks",
        "hoodie.write.lock.zookeeper.lock_key": "t",
        **times,
    }


@pytest.fixture
def told(caplog) -> Iterator[pytest.LogCaptureFixture]:
    """What jobs log: PyFlink's workers in this process take the root's handlers away."""
    logger = logging.getLogger("mainstem.flink.job")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


@pytest.fixture
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tick_ms=200) as running:
        yield running


def test_a_zookeeper_that_is_away_at_the_start_is_an_error_and_no_table_is_made(environment, tmp_path):
    flink = environment("300 ms", 1)
    source = numbers(flink, "source", 1000, 100)
    sink = table(flink, "sink", tmp_path / "t", ONE, **at(f"127.0.0.1:{free_port()}", SOON))
    with pytest.raises(Unavailable, match=r"no ZooKeeper server .* answered within 500 ms"):
        flink.execute_sql(f"INSERT INTO {sink} SELECT id, ts FROM {source}")
    assert list(tmp_path.iterdir()) == []


def test_a_zookeeper_that_goes_away_for_ever_is_told_and_nothing_more_is_committed(
    environment, tmp_path, server, told
):
    flink = environment("300 ms", 1)
    source = numbers(flink, "source", 100_000, 500)
    sink = table(flink, "sink", tmp_path / "t", ONE, **at(server.connect_string, LATER))
    result = flink.execute_sql(f"INSERT INTO {sink} SELECT id, ts FROM {source}")
    try:
        wait_for(lambda: result.outcomes)
        server.kill()
        wait_for(lambda: "checkpoints wait for their commit" in told.text)
        assert isinstance(result.error, LockUnavailable | Unavailable)
        rows, before = rows_of(tmp_path / "t"), content(tmp_path / "t/.hoodie/timeline")
        assert sum(outcome.rows for outcome in result.outcomes) == len(rows)
        again = table(flink, "again", tmp_path / "t", ONE, **at(server.connect_string, LATER))
        with pytest.raises(MainstemError, match="ZooKeeper"):
            flink.execute_sql(f"INSERT INTO {again} SELECT id, ts FROM {source}")
        assert len(rows_of(tmp_path / "t")) == len(rows)
        completed = [name for name, _ in before if name.count("_") == 1]
        assert completed == [n for n, _ in content(tmp_path / "t/.hoodie/timeline") if n.count("_") == 1]
    finally:
        result.get_job_client().cancel().result()
    with pytest.raises(MainstemError, match="ZooKeeper"):
        result.wait(200_000)
