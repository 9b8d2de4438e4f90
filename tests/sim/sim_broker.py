"""One Kafka topic and its group of consumers, with the client's interface, in virtual time.

``SimBroker`` stands for the module ``confluent_kafka``: ``KafkaTopic`` runs over it unchanged. What a real
client does and a test can rarely force happens often here: partitions are taken away from a consumer that
does not know it yet, a consumer is told late, and records that were fetched from where a partition was read
before come out once after it was placed elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.sim.world import World

TOPIC = "orders"


class SimKafkaError:
    """The codes that ``KafkaTopic`` tells apart."""

    _PARTITION_EOF, _AUTO_OFFSET_RESET, OFFSET_OUT_OF_RANGE = -191, -140, 1
    UNKNOWN_TOPIC_OR_PART, _UNKNOWN_TOPIC, _UNKNOWN_PARTITION, _ALL_BROKERS_DOWN = 3, -188, -190, -187

    def code(self) -> int:
        return self._PARTITION_EOF


class SimMessage:
    """A record, or the news that a partition was read to its end."""

    def __init__(self, partition: int, offset: int, value: bytes | None, ended: bool = False) -> None:
        self._partition, self._offset, self._value, self._ended = partition, offset, value, ended

    def error(self) -> SimKafkaError | None:
        return SimKafkaError() if self._ended else None

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> None:
        return None

    def value(self) -> bytes | None:
        return self._value


@dataclass(frozen=True)
class SimPartition:
    """``confluent_kafka.TopicPartition``."""

    topic: str
    partition: int
    offset: int = -1001


class SimConsumer:
    """One member of the group, as it knows things."""

    def __init__(self, broker: SimBroker, settings: Mapping[str, Any]) -> None:
        self._broker = broker
        #: partition -> offset of what is fetched next
        self._at: dict[int, int] = {}
        self._told: set[int] = set()
        self._last: dict[int, int] = {}
        self._stale: list[SimMessage] = []
        self._generation = 0

    def subscribe(
        self, topics: Sequence[str], *, on_assign: Callable[..., None], on_revoke: Callable[..., None],
        on_lost: Callable[..., None],
    ) -> None:  # fmt: skip
        self._on_assign, self._on_revoke, self._on_lost = on_assign, on_revoke, on_lost
        self._broker.join(self)

    def consume(self, count: int, wait_s: float) -> list[SimMessage]:
        broker = self._broker
        broker.world.point("fetch", TOPIC)
        broker.world.sleep(broker.random.random() * wait_s * 1000)
        if broker.generation != self._generation and broker.random.random() < broker.hears:
            self._hears()
        if self._stale:
            late, self._stale = self._stale, []
            return late
        found: list[SimMessage] = []
        for partition in sorted(self._at):
            log = [item for item in broker.logs[partition] if item[0] >= self._at[partition]]
            for offset, value in log[: broker.random.randrange(1, 4)][: count - len(found)]:
                found.append(SimMessage(partition, offset, value))
                self._at[partition] = self._last[partition] = offset + 1
                self._told.discard(partition)
            if not log and partition not in self._told:
                self._told.add(partition)
                found.append(SimMessage(partition, broker.ends[partition], None, ended=True))
        return found

    def _hears(self) -> None:
        broker = self._broker
        self._generation = broker.generation
        if self._at:
            leave = self._on_revoke if broker.random.random() < 0.6 else self._on_lost
            leave(self, [SimPartition(TOPIC, p) for p in sorted(self._at)])
        self._at = {}
        ours = broker.given_to(self)
        self._on_assign(self, [SimPartition(TOPIC, p) for p in ours])

    def assign(self, partitions: Sequence[SimPartition]) -> None:
        """What was fetched from where they were read before may come out, once."""
        broker = self._broker
        for part in partitions:
            before = self._at.get(part.partition, self._last.get(part.partition, part.offset))
            fetched = [item for item in broker.logs[part.partition] if item[0] >= before]
            if before != part.offset and fetched and broker.random.random() < broker.stale:
                self._stale = [SimMessage(part.partition, o, value) for o, value in fetched[:2]]
        self._at = {part.partition: part.offset for part in partitions}
        self._last |= self._at
        if not {message.partition() for message in self._stale} <= set(self._at):
            self._stale = []
        self._told.clear()

    def get_watermark_offsets(
        self, part: SimPartition, *, timeout: float = 0, cached: bool = False
    ) -> tuple[int, int]:
        return 0, self._broker.ends[part.partition]

    def commit(self, *, offsets: Sequence[SimPartition], asynchronous: bool) -> None:
        pass

    def close(self) -> None:
        self._broker.leave(self)


class SimBroker:
    """The topic: ``logs[partition]`` is a list of offset and value; offsets may have gaps."""

    KafkaError, Message, TopicPartition = SimKafkaError, SimMessage, SimPartition
    KafkaException = ConnectionError

    def __init__(self, world: World, logs: Mapping[int, list[tuple[int, bytes]]], seed: str) -> None:
        self.world, self.logs, self.random = world, logs, random.Random(seed)
        self.ends = {partition: log[-1][0] + 1 if log else 0 for partition, log in logs.items()}
        self.stale = self.random.choice([0.0, 0.1, 0.3])
        self.hears = self.random.choice([1.0, 0.5, 0.1])
        self.generation = 0
        self.members: list[SimConsumer] = []
        self._owner: dict[int, SimConsumer] = {}

    def Consumer(self, settings: Mapping[str, Any]) -> SimConsumer:
        return SimConsumer(self, settings)

    def join(self, member: SimConsumer) -> None:
        """Dead members stay in the group for a while: others get their partitions by a later round."""
        self.members.append(member)
        self.share_out()

    def leave(self, member: SimConsumer) -> None:
        if member in self.members:
            self.members.remove(member)
            self.share_out()

    def share_out(self, dead: Callable[[SimConsumer], bool] = lambda member: False) -> None:
        """Give each partition to some member; nobody waits until the old owner has heard of it."""
        self.members = [member for member in self.members if not dead(member)]
        self.generation += 1
        self._owner = {
            partition: self.random.choice(self.members) for partition in sorted(self.logs) if self.members
        }

    def given_to(self, member: SimConsumer) -> list[int]:
        return sorted(partition for partition, owner in self._owner.items() if owner is member)
