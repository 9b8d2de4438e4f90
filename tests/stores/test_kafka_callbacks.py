"""Goal: each commit is told to the Kafka topic that options name, and no trouble with it harms a commit.

Method: a real broker on loopback; the record as a consumer sees it; a broker that is gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

import mainstem
from mainstem.writers.commit_callback import CallbackWarning
from tests.servers import kafka
from tests.servers.kafka import KafkaBroker

pytest.importorskip("confluent_kafka")
if reason := kafka.missing():
    pytest.skip(reason, allow_module_level=True)

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
OPTION = "hoodie.write.commit.callback."


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        running.make_topic("commits", 2)
        yield running


def job(path, servers: str, **more: object) -> mainstem.Table:
    return mainstem.open_table(path, properties={
        f"{OPTION}on": "true",
        f"{OPTION}class": "org.apache.hudi.utilities.callback.kafka.HoodieWriteCommitKafkaCallback",
        f"{OPTION}kafka.bootstrap.servers": servers, f"{OPTION}kafka.topic": "commits",
        **{f"{OPTION}{name}": str(value) for name, value in more.items()},
    })  # fmt: skip


def test_a_commit_is_a_record_with_the_tables_name_as_key(broker: KafkaBroker, tmp_path) -> None:
    from confluent_kafka import Consumer

    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1,
        properties={"hoodie.table.name": "trips"},
    )  # fmt: skip
    told = [job(made.path, broker.servers, **{"kafka.partition": 1}).upsert({"id": ["a"], "ts": [1]})]
    told.append(job(made.path, broker.servers).upsert({"id": ["b"], "ts": [1]}))
    consumer = Consumer({
        "bootstrap.servers": broker.servers, "group.id": "g", "auto.offset.reset": "earliest",
    })  # fmt: skip
    consumer.subscribe(["commits"])
    records = []
    while len(records) < 2:
        (record,) = consumer.consume(1, timeout=60)
        records.append(record)
    consumer.close()
    messages = {json.loads(record.value())["commitTime"]: record for record in records}
    assert set(messages) == {outcome.instant for outcome in told}
    assert {record.key() for record in records} == {b"trips"}
    assert messages[told[0].instant].partition() == 1
    assert json.loads(records[0].value())["basePath"] == made.path


def test_a_broker_that_is_gone_is_a_warning_and_the_commit_stands(tmp_path) -> None:
    made = mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1)
    table = job(made.path, "127.0.0.1:1", **{"http.timeout.seconds": 1})
    with pytest.warns(CallbackWarning, match="the topic commits at 127.0.0.1:1 was not told of it"):
        table.upsert({"id": ["a"], "ts": [1]})
    assert made.scan().count_rows() == 1
