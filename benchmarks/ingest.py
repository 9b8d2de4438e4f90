"""A Kafka topic into a table by ``mainstem.ingest``: rows a second, and milliseconds from produce to visible.

A real broker on this machine. JSON of 10 columns, two partitions. What bounds it is measured in the same run:
the same client that only reads, and reading with Arrow's parser; and a peer, Spark's own source of Kafka with
our sink (``ingest_spark``). Latency: a producer sends at a steady rate,
and each row holds when; a row is visible when the commit that wrote it returns.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import numpy as np

from benchmarks import Missing, Row, bound, row, work_folder
from scripts.stores import FOLDER, install_jars, spark_kafka

_PARTITIONS = 2
_TOPIC = "orders"
_GOAL_ROWS, _GOAL_P99_MS = 300_000, 1_500


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    try:
        import confluent_kafka  # noqa: F401

        from tests.servers import kafka
    except ImportError as error:
        raise Missing(f"no Kafka client: {error}") from error
    if reason := kafka.missing():
        raise Missing(reason)
    count, seconds = (600_000, 15) if reduced else (5_000_000, 120)
    folder = work_folder("ingest")
    try:
        with kafka.KafkaBroker(memory="512m") as broker:
            return [
                *_throughput(broker, folder, count),
                *_two_processes(broker, folder, count),
                *_spark(broker, folder, count),
                *_latency(broker, folder, seconds),
            ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def order(number: int, at_ms: int) -> bytes:
    """A record of ten columns, some 150 bytes."""
    return json.dumps(
        {
            "id": number, "customer": f"customer-{number % 10_000}", "city": f"city-{number % 50}",
            "fare": number * 0.25, "paid": number % 3 == 0, "at_ms": at_ms, "seats": number % 5,
            "distance": number / 7, "state": "delivered", "note": None if number % 4 else "by the door",
        }
    ).encode()  # fmt: skip


def _produce(servers: str, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    producer = Producer(settings)
    for number in range(count):
        while True:
            try:
                producer.produce(topic, order(number, 0), key=str(number), partition=number % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(120)


def _throughput(broker: Any, folder: Path, count: int) -> list[Row]:
    broker.make_topic(_TOPIC, _PARTITIONS)
    _produce(broker.servers, _TOPIC, count)
    read_s, read_cpu = _bare(broker.servers, count, parse=False)
    parsed_s, parsed_cpu = _bare(broker.servers, count, parse=True)
    began, cpu = time.monotonic(), time.process_time()
    rows = _ingest(broker.servers, _TOPIC, folder / "t", once=True, kafka_options={})
    whole_s, whole_cpu = time.monotonic() - began, time.process_time() - cpu
    assert rows == count, (rows, count)
    note = f"{1e6 * whole_cpu / count:.1f} us of processor a row; bare read {1e6 * read_cpu / count:.1f}"
    note += f", with parsing {1e6 * parsed_cpu / count:.1f}; goal {_GOAL_ROWS:,} rows/s"
    return [
        row("Kafka to table, JSON of 10 columns, commits of 1 s", count / whole_s, "rows/s",
            against="the client alone", baseline=count / read_s, note=note),
        row("Kafka read and parsed, no table", count / parsed_s, "rows/s",
            against="the client alone", baseline=count / read_s),
    ]  # fmt: skip


def _bare(servers: str, count: int, *, parse: bool) -> tuple[float, float]:
    """Seconds, wall and processor, of the client alone, or with the parser of JSON."""
    from confluent_kafka import Consumer, TopicPartition

    from mainstem.ingestion.json_rows import parse_objects

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bare", "fetch.wait.max.ms": 50})
    consumer.assign([TopicPartition(_TOPIC, number, 0) for number in range(_PARTITIONS)])
    began, cpu, found, held = time.monotonic(), time.process_time(), 0, []
    while found < count:
        values = [message.value() for message in consumer.consume(20_000, 0.05)]
        found += len(values)
        if parse:
            held += values
            if len(held) >= 50_000 or found >= count:
                parse_objects(held, None)
                held = []
    taken = time.monotonic() - began, time.process_time() - cpu
    consumer.close()
    return taken


def _ingest(servers: str, topic: str, path: Path, **options: Any) -> int:
    import mainstem

    return mainstem.ingest(
        path, kafka=servers, topic=topic, record_key="id", buckets=4, every_s=1.0,
        properties={"hoodie.mainstem.exclusive": "true"}, **options,
    )  # fmt: skip


# One process of a group: a line for each commit, of when, rows, and processor time until then.
_MEMBER = """
import sys, time
import mainstem
servers, topic, path = sys.argv[1:]
def tell(progress):
    print(time.time(), progress.rows, time.process_time(), flush=True)
mainstem.ingest(path, kafka=servers, topic=topic, record_key="id", buckets=4, every_s=1.0, once=True,
                rows=100_000, on_progress=tell)
"""
# The bound: one partition read and parsed.
_READER = """
import sys, time
from confluent_kafka import Consumer, TopicPartition
from mainstem.ingestion.json_rows import parse_objects
servers, topic, partition, count, start = sys.argv[1:]
partition, count, start = int(partition), int(count), float(start)
consumer = Consumer({"bootstrap.servers": servers, "group.id": "bare", "fetch.wait.max.ms": 50})
while time.time() < start:
    time.sleep(0.005)
consumer.assign([TopicPartition(topic, partition, 0)])
cpu, found, held = time.process_time(), 0, []
while found < count:
    values = [message.value() for message in consumer.consume(20_000, 0.05)]
    found += len(values)
    held += values
    if len(held) >= 50_000 or found >= count:
        parse_objects(held, None)
        held = []
print(time.time() - start, time.process_time() - cpu)
"""


def _started(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _two_processes(broker: Any, folder: Path, count: int) -> list[Row]:
    """Two processes of one group, in the time in which both of them commit."""
    start = time.time() + 4.0
    readers = [_started(_READER, broker.servers, _TOPIC, p, count // 2, start) for p in range(_PARTITIONS)]
    told = [reader.communicate()[0].split() for reader in readers]
    read_s, read_cpu = max(float(t[0]) for t in told), sum(float(t[1]) for t in told)
    members = [_started(_MEMBER, broker.servers, _TOPIC, folder / "two") for _ in range(2)]
    samples = []
    while any(member.poll() is None for member in members):
        samples.append((time.time(), broker.processor_s()))
        time.sleep(0.05)
    commits = [
        [tuple(map(float, line.split())) for line in member.communicate()[0].splitlines()]
        for member in members
    ]
    assert sum(one[1] for lines in commits for one in lines) == count, commits
    low, high = max(lines[0][0] for lines in commits), min(lines[-1][0] for lines in commits)
    if any(sum(low <= one[0] <= high for one in lines) < 2 for lines in commits):
        raise Missing("one of two processes was done before the other began: give more rows (--full)")
    rows, cpu = 0.0, 0.0
    for lines in commits:
        inside = [one for one in lines if low <= one[0] <= high]
        rows += sum(one[1] for one in inside[1:])
        cpu += inside[-1][2] - inside[0][2]
    spent = [s for at, s in samples if low <= at <= high]
    note = f"{1e6 * cpu / rows:.1f} us of processor a row, and {1e6 * (spent[-1] - spent[0]) / rows:.1f}"
    note += f" of the broker; read and parsed by two {1e6 * read_cpu / count:.1f}; {rows:,.0f} rows,"
    note += f" {high - low:.1f} s in which both commit"
    return [
        row("Kafka to table, two processes of a group", rows / (high - low), "rows/s",
            against="two that read and parse", baseline=count / read_s, note=note),
    ]  # fmt: skip


def _jars(spark: str) -> Path:
    """Spark's source: Maven has a version later than PyPI, and one of its line will do until then."""
    line, _, patch = spark.rpartition(".")
    for number in range(int(patch), -1, -1):
        folder = FOLDER / "spark-kafka" / f"{line}.{number}"
        try:
            install_jars(folder, spark_kafka(f"{line}.{number}"))
            return folder
        except HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND or not number:
                raise
    raise AssertionError


def _spark(broker: Any, folder: Path, count: int) -> list[Row]:
    """Our ingestion of the whole topic again, beside Spark's own source with our sink."""
    what = "Kafka to table, beside Spark's own source with our sink"
    try:
        import pyspark

        jars = _jars(pyspark.__version__)
    except (ImportError, OSError) as error:
        return [row(what, None, "rows/s", note=f"not measured: {error}")]
    command = [sys.executable, "-m", "benchmarks.ingest_spark"]
    command += map(str, (jars, broker.servers, _TOPIC, folder / "spark"))
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=900)
    peer = json.loads(told.stdout.splitlines()[-1])
    assert peer["rows"] == count, (peer, count)
    began, cpu = time.monotonic(), time.process_time()
    rows = _ingest(broker.servers, _TOPIC, folder / "beside", once=True, kafka_options={}, rows=200_000)
    taken, spent = time.monotonic() - began, time.process_time() - cpu
    assert rows == count, (rows, count)
    us, peers = 1e6 * spent / count, 1e6 * peer["cpu"] / count
    note = f"{us:.1f} us of processor a row, Spark's {peers:.1f} on two cores, started and warm: a ratio of"
    note += f" {peers / us:.1f}; at most 200,000 rows a commit"
    theirs = count / peer["seconds"]
    return [row(what, count / taken, "rows/s", against="Spark's source", baseline=theirs, note=note)]


_PRODUCER = """
import sys, time
from benchmarks.ingest import order
from confluent_kafka import Producer
servers, topic, rate, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
began, number = time.time(), 0
while time.time() < began + seconds:
    while number < (time.time() - began) * rate:
        producer.produce(topic, order(number, int(time.time() * 1000)), partition=number % 2)
        number += 1
    producer.poll(0)
    time.sleep(0.005)
producer.flush(30)
"""


def _latency(broker: Any, folder: Path, seconds: float, rate: int = 5_000) -> list[Row]:
    import mainstem

    topic, path = "steady", folder / "steady"
    broker.make_topic(topic, _PARTITIONS)
    visible: dict[str, float] = {}
    stop = threading.Event()
    command = [sys.executable, "-c", _PRODUCER, broker.servers, topic, str(rate), str(seconds)]
    producer = subprocess.Popen(command)

    def stopping() -> bool:
        if producer.poll() is not None and not stop.is_set():
            threading.Timer(3, stop.set).start()
        return stop.is_set()

    _ingest(
        broker.servers, topic, path, stopping=stopping,
        on_progress=lambda progress: visible.setdefault(progress.instant, 1000 * time.time()),
    )  # fmt: skip
    rows = mainstem.open_table(path).scan(columns=["_hoodie_commit_time", "at_ms"]).to_arrow()
    commits = rows["_hoodie_commit_time"].to_pylist()
    late = np.array([visible[commit] for commit in commits]) - rows["at_ms"].to_numpy()
    # Without the first commits, before which the group forms.
    first = sorted(visible)[:2]
    late = late[[commit not in first for commit in commits]]
    p50, p99 = np.percentile(late, 50), np.percentile(late, 99)
    what = f"produce to visible, {rate:,} rows/s, commits of 1 s"
    return [
        row(f"{what}, p50", float(p50), "ms", note=f"{len(late):,} rows in {len(visible)} commits"),
        bound(f"{what}, p99", float(p99), "ms", most=_GOAL_P99_MS),
    ]
