"""Goal: each record of a topic is in the table exactly once, whatever dies, moves or is gone in between.

Method: a real broker on loopback, `mainstem ingest` in processes of its own and in this one, kill -9, and the
producer's ledger: key -> value of its newest record, compared with the table.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid
from mainstem.ingestion.json_rows import JsonDecoder
from tests.servers import kafka
from tests.servers.kafka import KafkaBroker

pytest.importorskip("confluent_kafka")
if reason := kafka.missing():
    pytest.skip(reason, allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


@pytest.fixture
def topic(broker: KafkaBroker, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.nodeid)) % 10**12}"
    broker.make_topic(name, 3)
    return name


def produce(broker, topic, records, **settings):
    """Send (key, value, partition); a value that is no bytes becomes JSON."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.servers, "linger.ms": 5, "log_level": 2, **settings})
    for key, value, partition in records:
        data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        while True:
            try:
                producer.produce(topic, data, key=key, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def orders(numbers, **more):
    return [(str(n), {"id": n, "city": f"c{n % 5}", "fare": n / 2, **more}, n % 3) for n in numbers]


def ingest(broker, topic, path, **options):
    given = {"record_key": "id", "buckets": 2, "every_s": 0.2, "once": True, **options}
    return mainstem.ingest(path, kafka=broker.servers, topic=topic, **given)


def content(path, columns=("id", "fare")):
    found = mainstem.open_table(path).scan(columns=list(columns)).to_arrow()
    assert found.num_rows == len(set(found["id"].to_pylist())), "a key is there twice"
    return dict(zip(*(found[name].to_pylist() for name in columns), strict=True))


def running(broker, topic, path, *options):
    command = [
        sys.executable, "-m", "mainstem", "ingest", str(path), "--kafka", broker.servers, "--topic", topic,
        "--record-key", "id", "--buckets", "2", "--every", "100ms", "--json",
        "--kafka-option", "session.timeout.ms=6000", "--kafka-option", "heartbeat.interval.ms=500", *options,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open(f"{path}-{random.getrandbits(40)}.log", "w") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def made(path):
    return (path / ".hoodie/hoodie.properties").exists()


def until(condition, *processes, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        dead = [process for process in processes if process.poll() is not None]
        assert not dead, dead[0].args
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.2)


@pytest.mark.supports("Writing", "Kafka topics without an engine, exactly once")
def test_a_topic_is_in_the_table_once_and_gone_on_from(broker, topic, tmp_path):
    path = tmp_path / "t"
    produce(broker, topic, orders(range(500)))
    told = []
    assert ingest(broker, topic, path, on_progress=told.append) == 500
    assert sum(p.rows for p in told) == 500 and told[-1].behind == 0
    assert ingest(broker, topic, path) == 0
    produce(broker, topic, orders(range(400, 600), fare=1.0))
    assert ingest(broker, topic, path, group="another") == 200  # the table knows, not the group
    assert content(path) == {n: n / 2 if n < 400 else 1.0 for n in range(600)}


def test_a_table_that_another_process_makes_meanwhile_may_have_more_columns(
    broker, topic, tmp_path, monkeypatch
):
    path, decode = tmp_path / "t", JsonDecoder.decode
    produce(broker, topic, orders(range(20)))
    columns = pa.schema([("id", pa.int64()), ("fare", pa.float64()), ("note", pa.string())])

    def beside(decoder, records, known):
        rows = decode(decoder, records, known)
        if not made(path):
            mainstem.create_table(path, columns, record_key="id", buckets=2)
        return rows

    monkeypatch.setattr(JsonDecoder, "decode", beside)
    assert ingest(broker, topic, path) == 20
    assert content(path) == {n: n / 2 for n in range(20)}


def test_a_process_whose_partitions_change_hands_does_not_take_its_work_for_done(broker, topic):
    from mainstem.ingestion.kafka_topic import KafkaTopic

    quick = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "200"}
    produce(broker, topic, orders(range(30)))
    group, done = [], []

    def joins():
        made = KafkaTopic(
            broker.servers, topic, "hands", positions=dict, flush=lambda: None, discard=lambda: None,
            config=quick,
        )  # fmt: skip
        made.subscribe()
        group.append(made)

    def works(members, until):
        end = time.monotonic() + 60
        while not until():
            assert time.monotonic() < end
            for member in members:
                member.collect(100, 0.02)
                done.append(member is group[0] and member.joined and not member.next)

    try:
        joins()
        works(group, lambda: len(group[0].next) == 3)
        joins()
        works(group, lambda: {len(member.next) for member in group} == {1, 2})
        group.pop().close()
        works(group, lambda: len(group[0].next) == 3)
    finally:
        for member in group:
            member.close()
    assert not any(done)


def test_processes_of_a_group_are_killed_and_each_record_is_there_once(broker, topic, tmp_path):
    path, chance = tmp_path / "t", random.Random(5)
    ledger: dict[int, int] = {}
    done = threading.Event()

    def sending():
        count = 0
        while not done.is_set():
            batch = []
            for _ in range(200):
                n, count = chance.randrange(2_000), count + 1
                ledger[n] = count
                batch.append((str(n), {"id": n, "count": count}, n % 3))
            produce(broker, topic, batch)
            time.sleep(0.02)

    sender = threading.Thread(target=sending)
    sender.start()
    processes = [running(broker, topic, path, "--append-offsets") for _ in range(2)]
    try:
        until(lambda: made(path), *processes)
        for _ in range(5):
            time.sleep(chance.uniform(1.0, 3.0))
            victim = chance.randrange(len(processes))
            processes[victim].kill()
            processes[victim].wait()
            processes[victim] = running(broker, topic, path, "--append-offsets")
    finally:
        done.set()
        sender.join()
        for process in processes:
            process.send_signal(signal.SIGTERM)
        ended = {process.wait(120) for process in processes}
    assert ended <= {0, -signal.SIGTERM}, "it ends by itself, unless it has not begun yet"
    ingest(broker, topic, path, append_offsets=True)
    assert content(path, ("id", "count")) == ledger
    stands = mainstem.open_table(path).opened.stream_positions(topic)
    assert sum(stands.ends.values()) == max(ledger.values())
    written = mainstem.open_table(path).history()["rows"].to_pylist()
    assert sum(filter(None, written)) == max(ledger.values()), "some were committed twice, or not at all"


def test_the_broker_is_killed_and_comes_back(tmp_path):
    with KafkaBroker() as broker:
        broker.make_topic("orders", 2)
        path = tmp_path / "t"
        process = running(broker, "orders", path)
        try:
            for round_ in range(2):
                low = round_ * 300
                sent = [(key, value, part % 2) for key, value, part in orders(range(low, low + 300))]
                produce(broker, "orders", sent, acks="all")
                until(lambda low=low: made(path) and len(content(path)) >= low + 150, process)
                broker.kill()
                time.sleep(0.5)
                broker.start()
            until(lambda: len(content(path)) == 600, process)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        assert content(path) == {n: n / 2 for n in range(600)}


def test_records_that_do_not_parse_stop_it_or_go_to_a_table_of_their_own(broker, topic, tmp_path):
    path = tmp_path / "t"
    produce(broker, topic, orders(range(6)))
    produce(broker, topic, [("x", b'{"id": 7', 0), ("y", {"id": "seven"}, 1), ("z", {"city": "c"}, 2)])
    produce(broker, topic, orders(range(8, 11)))
    with pytest.raises(Invalid, match=f"record 2 of {topic}-[012] does not become a row"):
        ingest(broker, topic, path)
    assert not path.exists()
    assert ingest(broker, topic, path, on_error="dead-letter") == 9
    dead = mainstem.open_table(f"{path}_dead_letters").scan().to_arrow()
    assert sorted(zip(dead["partition"].to_pylist(), dead["offset"].to_pylist(), strict=True)) == [
        ("0", 2), ("1", 2), ("2", 2)
    ]  # fmt: skip
    assert sorted(map(bytes, dead["value"].to_pylist())) == [
        b'{"city": "c"}', b'{"id": "seven"}', b'{"id": 7'
    ]  # fmt: skip
    assert all(dead["reason"].to_pylist()) and all(dead["timestamp"].to_pylist())
    assert sorted(content(path)) == [0, 1, 2, 3, 4, 5, 8, 9, 10]


def test_a_record_without_value_deletes_the_row_of_its_key(broker, topic, tmp_path):
    produce(broker, topic, orders(range(6)))
    ingest(broker, topic, tmp_path / "t")
    produce(broker, topic, [("2", None, 2), ('{"id": 4}', None, 1), *orders([4])])
    produce(broker, topic, [("5", None, 2), ("7", {"id": 7, "city": "c", "fare": 3.5}, 2), ("7", None, 2)])
    ingest(broker, topic, tmp_path / "t")
    assert sorted(content(tmp_path / "t")) == [0, 1, 3, 4]


def test_new_fields_become_columns(broker, topic, tmp_path):
    produce(broker, topic, orders(range(3)))
    ingest(broker, topic, tmp_path / "t")
    new = {"at": "2026-01-01T00:00:00", "tags": ["a"], "more": {"x": 1, "y": None}}
    produce(broker, topic, orders(range(3, 6), **new))
    ingest(broker, topic, tmp_path / "t")
    produce(broker, topic, orders(range(6, 9)))
    ingest(broker, topic, tmp_path / "t")
    table = mainstem.open_table(tmp_path / "t")
    assert table.schema.field("at").type == pa.string()
    assert table.schema.field("tags").type == pa.list_(pa.string())
    found = {row["id"]: row["more"] for row in table.scan(columns=["id", "more"]).to_arrow().to_pylist()}
    assert found == {n: {"x": 1} if 3 <= n < 6 else None for n in range(9)}


def test_only_what_transactions_committed_is_read(broker, topic, tmp_path):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": topic})
    producer.init_transactions()
    for numbers, end in ((range(3), "commit"), (range(10, 13), "abort"), (range(3, 6), "commit"),
                         (range(20, 23), "abort")):  # fmt: skip
        producer.begin_transaction()
        for key, value, partition in orders(numbers):
            producer.produce(topic, json.dumps(value), key=key, partition=partition)
        producer.flush()
        getattr(producer, f"{end}_transaction")()
    assert ingest(broker, topic, tmp_path / "t") == 6
    assert sorted(content(tmp_path / "t")) == list(range(6))
    assert ingest(broker, topic, tmp_path / "t") == 0


def test_records_that_are_gone_are_refused_until_somebody_says_go_on(broker, topic, tmp_path):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    path, admin = tmp_path / "t", AdminClient({"bootstrap.servers": broker.servers})
    produce(broker, topic, orders(range(30)))
    ingest(broker, topic, path)
    produce(broker, topic, orders(range(30, 60)))
    for future in admin.delete_records([TopicPartition(topic, 1, 15)]).values():
        future.result(30)
    with pytest.raises(Invalid, match=f"records 10 to 14 of {topic}-1 are gone.*--on-lost earliest"):
        ingest(broker, topic, path)
    assert sorted(content(path)) == list(range(30))
    assert ingest(broker, topic, path, on_lost="earliest") == 25
    lost = {n for n in range(30, 45) if n % 3 == 1}
    assert sorted(content(path)) == sorted(set(range(60)) - lost)


def test_a_topic_that_was_created_again_is_refused_until_somebody_says_go_on(broker, topic, tmp_path):
    from confluent_kafka.admin import AdminClient

    path, admin = tmp_path / "t", AdminClient({"bootstrap.servers": broker.servers})
    produce(broker, topic, orders(range(30)))
    ingest(broker, topic, path)
    for future in admin.delete_topics([topic]).values():
        future.result(30)
    time.sleep(1)
    broker.make_topic(topic, 3)
    produce(broker, topic, orders(range(100, 190)))
    with pytest.raises(Invalid, match=r"was deleted and created again.*--on-lost earliest"):
        ingest(broker, topic, path)
    assert ingest(broker, topic, path, on_lost="earliest") == 90
    assert ingest(broker, topic, path) == 0
    assert sorted(content(path)) == [*range(30), *range(100, 190)]


def test_memory_is_bounded_by_rows_and_bytes_of_a_commit(broker, topic, tmp_path):
    produce(broker, topic, orders(range(3_000), note="x" * 100))
    told = []
    ingest(broker, topic, tmp_path / "t", rows=700, every_s=60, on_progress=told.append)
    assert max(p.rows for p in told) < 3_000 and len(content(tmp_path / "t")) == 3_000


def test_debezium_events_keep_a_copy_of_a_table_whatever_comes_twice(broker, topic, tmp_path):
    def event(op, lsn, before=None, after=None):
        place = {"connector": "postgresql", "ts_ms": lsn, "lsn": lsn}
        return {"before": before, "after": after, "op": op, "source": place, "ts_ms": lsn}

    path, key = tmp_path / "t", '{"id": 1}'
    first = [event("r", n, after={"id": n, "city": "a"}) for n in (1, 2, 3)]
    produce(broker, topic, [(str(e["after"]["id"]), e, e["after"]["id"] % 3) for e in first])
    debezium = {"format": "debezium-json"}
    assert ingest(broker, topic, path, **debezium) == 3
    new = {"id": 1, "city": "b"}
    later = [event("u", 10, {"id": 1, "city": "a"}, new), event("d", 11, new)]
    produce(broker, topic, [(key, e, 1) for e in later] + [(key, None, 1)])
    produce(broker, topic, [("2", event("u", 12, {"id": 2, "city": "a"}, {"id": 2, "city": "c"}), 2)])
    ingest(broker, topic, path, **debezium)
    assert content(path, ("id", "city")) == {2: "c", 3: "a"}
    produce(broker, topic, [(key, e, 1) for e in (first[0], later[0])])  # the connector sends them again
    produce(broker, topic, [("2", first[1], 2), ("4", event("c", 13, after={"id": 4, "city": "d"}), 1)])
    ingest(broker, topic, path, **debezium)
    assert content(path, ("id", "city")) == {2: "c", 3: "a", 4: "d"}
    assert mainstem.open_table(path).config.ordering == ("_event_lsn",)


def test_avro_topics_are_read_with_the_schemas_of_a_folder(broker, topic, tmp_path):
    import io

    import fastavro

    schemas = tmp_path / "schemas"
    schemas.mkdir()
    names = [("id", "long"), ("city", "string"), ("fare", "double")]
    values = []
    for number, fields in ((1, names), (2, [*names, ("note", "string")])):
        parts = [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields]
        text = {"type": "record", "name": "order", "fields": parts}
        (schemas / f"{number}.avsc").write_text(json.dumps(text))
        for key, row, partition in orders(range(10 * number, 10 * number + 10)):
            out = io.BytesIO()
            fastavro.schemaless_writer(out, fastavro.parse_schema(text), row)
            values.append((key, b"\0" + number.to_bytes(4, "big") + out.getvalue(), partition))
    produce(broker, topic, values[:10])
    given = {"format": "avro", "registry": str(schemas)}
    assert ingest(broker, topic, tmp_path / "t", **given) == 10
    produce(broker, topic, values[10:])
    assert ingest(broker, topic, tmp_path / "t", **given) == 10
    assert content(tmp_path / "t") == {n: n / 2 for n in range(10, 30)}
    produce(broker, topic, [("1", values[0][1], 0)])
    with pytest.raises(Invalid, match="schema 1 lacks note"):
        ingest(broker, topic, tmp_path / "t", **given)


def test_a_compacted_topic_with_gaps_is_read_to_its_end(tmp_path, broker):
    name = "compacted"
    settings = {"cleanup_policy": "compact", "segment_ms": 100, "min_cleanable_dirty_ratio": 0.01,
                "max_compaction_lag_ms": 100}  # fmt: skip
    broker.make_topic(name, 1, **settings)
    for value in range(5):
        produce(broker, name, [(str(n), {"id": n, "fare": float(value)}, 0) for n in range(20)])
        time.sleep(0.3)
    time.sleep(3)
    produce(broker, name, [("99", {"id": 99, "fare": 0.5}, 0)])
    rows = ingest(broker, name, tmp_path / "t")
    assert rows < 101, "the test sees gaps"
    assert content(tmp_path / "t") == {**dict.fromkeys(range(20), 4.0), 99: 0.5}
    assert mainstem.open_table(tmp_path / "t").opened.stream_positions(name).ends == {"0": 101}


def test_two_processes_share_a_topic_and_end_when_it_is_in_the_table(broker, topic, tmp_path):
    produce(broker, topic, orders(range(3_000)))
    processes = [running(broker, topic, tmp_path / "t", "--once", "--rows", "500") for _ in range(2)]
    assert [process.wait(120) for process in processes] == [0, 0]
    assert content(tmp_path / "t") == {n: n / 2 for n in range(3_000)}
    stands = mainstem.open_table(tmp_path / "t").opened.stream_positions(topic)
    assert stands.ends == dict.fromkeys("012", 1_000)


def test_bad_records_before_there_is_a_table_do_not_stop_the_others(broker, topic, tmp_path):
    produce(broker, topic, [("x", b"no json", n) for n in range(3)])
    options = {"on_error": "dead-letter"}
    assert ingest(broker, topic, tmp_path / "t", **options) == 0
    produce(broker, topic, orders(range(3)))
    assert ingest(broker, topic, tmp_path / "t", **options) == 3
    dead = mainstem.open_table(f"{tmp_path / 't'}_dead_letters").scan().to_arrow()
    assert dead.num_rows == 3
