"""A Kafka topic as a consumer of a group reads it, from the offsets that the table holds.

The group only shares the partitions out. Where to read from is asked of the table each time partitions are
given to this process; the offsets that the group keeps are written for tools that show lag, and never read.

One trap is closed here: what was fetched before partitions changed hands may still come out of the client
afterwards. A batch during which the assignment changed is thrown away, and its partitions are read again from
where the table stands. Offsets may leave gaps (compacted topics, transactions), so a jump would not be seen.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.ingestion.records import Records

_log = logging.getLogger(__name__)

EARLIEST, LATEST, FAIL = "earliest", "latest", "fail"
_ASK_S = 30.0
# What is not a consumer's alone, as prefixes.
_CONNECTION = ("security.", "sasl.", "ssl.", "client.", "socket.", "broker.", "api.", "metadata.")
# What decides about correctness is not for the caller.
_FIXED = {
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "partition.assignment.strategy": "range",
}


@dataclass(frozen=True)
class TopicIdentity:
    """What offsets are numbers of: Kafka gives a topic another id when it is created again."""

    cluster: str
    topic_id: str

    @property
    def about(self) -> dict[str, str]:
        """For ``StreamPositions``."""
        return {"cluster": self.cluster, "topic": self.topic_id}


def _worth_a_line(record: logging.LogRecord) -> bool:
    """Without what the client says each time it tries to connect."""
    return not record.getMessage().startswith(("FAIL ", "ERROR "))


def client() -> Any:
    """The module ``confluent_kafka``. Raises ``Unsupported`` if it is not installed."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise Unsupported("Kafka needs the client confluent-kafka: pip install 'mainstem[kafka]'") from error
    return confluent_kafka


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Without Python's collector of cycles, which looks through thousands of messages that nothing refers to
    in a cycle, and with them, again and again, through all that there is: a tenth of the ingestion's time."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


class KafkaTopic:
    """The partitions of one topic that are this process's for now.

    ``positions()``: partition -> next offset, as the table says. ``flush()``: called while partitions that
    are about to be taken away are still ours; ``discard()``: what was read and not committed is not ours any
    more. ``start``: where a partition begins that the table does not know. ``on_lost``: what to do where the
    records that should come next are gone.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        group: str,
        *,
        positions: Callable[[], Mapping[str, int]],
        flush: Callable[[], None],
        discard: Callable[[], None],
        start: str = EARLIEST,
        on_lost: str = FAIL,
        queued_bytes: int = 64 << 20,
        timestamps: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self._kafka = client()
        self.topic = topic
        self._positions, self._flush, self._discard = positions, flush, discard
        self._start, self._on_lost, self._timestamps = start, on_lost, timestamps
        given = dict(config or {})
        for name in sorted(set(given) & {*_FIXED, "bootstrap.servers", "group.id"}):
            raise Invalid(f"Kafka option {name}={given[name]!r}: ingestion sets it itself; drop it")
        self._logger = logging.getLogger(f"{__name__}.client")
        self._logger.addFilter(_worth_a_line)
        both = {k: v for k, v in given.items() if k.startswith(_CONNECTION)}
        self._connection = {**both, "bootstrap.servers": servers, "logger": self._logger}
        settings = {
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "queued.max.messages.kbytes": queued_bytes >> 10,
            "queued.min.messages": 100_000,
            **given,
            **_FIXED,
            **self._connection,
            "group.id": group,
            "error_cb": self._heard,
        }
        try:
            self._consumer = self._kafka.Consumer(settings)
        except (self._kafka.KafkaException, ValueError, TypeError) as error:
            raise Invalid(f"Kafka does not take its options: {error}") from error
        #: partitions of which nothing came since they were placed -> the offset that came the time before
        self._placed_at: dict[int, int | None] = {}
        self._admin: Any = None
        self._cluster = ""
        #: partition -> offset of the next record, of what is ours
        self.next: dict[int, int] = {}
        #: partitions that were read to their end, and nothing came since
        self.ended: set[int] = set()
        #: the group has given partitions to this process, be it none
        self.joined = False
        self._changes = 0
        #: the table could not be asked yet where to read what was given to us: the client reads at random
        self._unplaced = False
        self._trouble: BaseException | None = None

    def _heard(self, error: Any) -> None:
        """Of trouble with brokers, which the client meets by itself."""
        if error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN:
            _log.warning("no Kafka broker answers; it is tried again: %s", error.str())
        else:
            _log.info("Kafka: %s", error.str())

    def identity(self) -> TopicIdentity:
        """Cluster and id of the topic. Raises ``Invalid`` if there is none, ``Unavailable``."""
        from confluent_kafka.admin import AdminClient

        try:
            if self._admin is None:
                self._admin = AdminClient(self._connection)
                self._cluster = self._admin.list_topics(timeout=_ASK_S).cluster_id or ""
            asked = self._kafka.TopicCollection([self.topic])
            found = self._admin.describe_topics(asked, request_timeout=_ASK_S)[self.topic].result()
        except self._kafka.KafkaException as error:
            if error.args[0].code() == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise Invalid(f"there is no topic {self.topic!r}; name one that exists") from error
            raise Unavailable(f"Kafka does not answer: {error}; check its address, try again") from error
        return TopicIdentity(self._cluster, str(found.topic_id))

    def subscribe(self) -> None:
        """Join the group."""
        self._consumer.subscribe(
            [self.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lose
        )

    def collect(self, records: int, wait_s: float) -> Records:
        """Up to ``records`` records, for which it waits ``wait_s``.

        Raises what ``positions`` and ``flush`` raised within it, ``Invalid`` where records are lost,
        ``Unavailable``.
        """
        with _collector_paused():
            return self._collect(records, wait_s)

    def _collect(self, records: int, wait_s: float) -> Records:
        if self._unplaced:
            self.rewind()
        changes = self._changes
        try:
            messages = self._consumer.consume(records, wait_s)
        except self._kafka.KafkaException as error:
            raise Unavailable(f"Kafka: {error}; it is tried again") from error
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        if self._changes != changes:
            if messages and not self._unplaced:
                self.place()
            return Records()
        kind = self._kafka.Message  # its methods, mapped, cost half of what a comprehension does
        said = []
        if {*map(type, map(kind.error, messages))} - {type(None)}:
            said = [m for m in messages if m.error() is not None]
            messages = [m for m in messages if m.error() is None]
        partitions = list(map(kind.partition, messages))
        offsets = list(map(kind.offset, messages))
        first = dict(zip(reversed(partitions), reversed(offsets), strict=True))
        if any(offset < self.next.get(p, offset + 1) for p, offset in sorted(first.items())):
            ours = [i for i, p in enumerate(partitions) if offsets[i] >= self.next.get(p, offsets[i] + 1)]
            messages = [messages[i] for i in ours]
            partitions = [partitions[i] for i in ours]
            offsets = [offsets[i] for i in ours]
            first = dict(zip(reversed(partitions), reversed(offsets), strict=True))
        if self._jumps(first):
            self.place()
            return Records()
        last = dict(zip(partitions, offsets, strict=True))
        self.next.update({p: offset + 1 for p, offset in last.items()})
        self.ended.difference_update(last)
        moved = [self._said(message) for message in said]
        if any(moved):
            self.place()
        times = [m.timestamp()[1] for m in messages] if self._timestamps else [-1] * len(messages)
        keys, values = list(map(kind.key, messages)), list(map(kind.value, messages))
        return Records(keys, values, partitions, offsets, times)

    def _jumps(self, first: Mapping[int, int]) -> bool:
        """Whether a partition that was just placed begins elsewhere, for the first time.

        Where offsets have gaps that is right, and the same comes when it is read again. Something that was
        fetched before the partition was placed would not come twice.
        """
        come: dict[int, int] = {}
        found = False
        for partition, offset in sorted(first.items()):
            if partition not in self._placed_at:
                continue
            if offset in (self.next.get(partition), self._placed_at[partition]):
                come[partition] = offset
            elif offset > self.next.get(partition, offset):
                self._placed_at[partition] = offset
                found = True
        if found:  # all of them are read again: what came twice must not have to come twice more
            self._placed_at |= come
        else:
            for partition in come:
                del self._placed_at[partition]
        return found

    def _said(self, message: Any) -> bool:
        """Act on an event of a partition; whether it is to be read from another offset."""
        error, partition = message.error(), message.partition()
        codes = self._kafka.KafkaError
        if error.code() == codes._PARTITION_EOF:
            if partition in self.next:
                self.ended.add(partition)
        elif error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            if partition in self.next:
                self.next[partition] = self._placed(partition, self.next[partition])
                return True
        elif error.code() in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC, codes._UNKNOWN_PARTITION):
            raise Unavailable(f"topic {self.topic!r} is gone, or no broker knows it yet: {error}")
        elif error.fatal() or not error.retriable():
            raise Unavailable(f"Kafka: {error}")
        else:
            _log.warning("Kafka: %s", error)
        return False

    def place(self) -> None:
        """Read on from ``next``, whatever the client has fetched."""
        made = self._kafka.TopicPartition
        self._consumer.assign([made(self.topic, p, offset) for p, offset in sorted(self.next.items())])
        self.ended.clear()
        self._placed_at = {p: self._placed_at.get(p) for p in self.next}
        self._changes += 1

    def unplace(self) -> None:
        """What comes next is not to be believed; ``collect`` will read on from where the table stands."""
        self._unplaced = True

    def rewind(self) -> None:
        """Read on from where the table stands."""
        self._unplaced = bool(self.next)
        if not self.next:
            return
        held = self._positions()
        self.next = {p: self._placed(p, held.get(str(p))) for p in sorted(self.next)}
        self.place()
        self._unplaced = False

    def _placed(self, partition: int, wanted: int | None) -> int:
        """The offset to read a partition from. Raises ``Invalid`` if the records from ``wanted`` on are
        gone."""
        at = self._kafka.TopicPartition(self.topic, partition)
        try:
            low, high = self._consumer.get_watermark_offsets(at, timeout=_ASK_S)
        except self._kafka.KafkaException as error:
            what = f"the offsets of {self.topic}-{partition}"
            raise Unavailable(f"Kafka does not tell {what}: {error}") from error
        if wanted is None:
            return high if self._start == LATEST else low
        if low <= wanted <= high:
            return wanted
        what = (
            f"records {wanted} to {low - 1} of {self.topic}-{partition} are gone: it begins at {low} by now"
            if wanted < low
            else f"{self.topic}-{partition} ends at {high}, but was read up to {wanted}: it lost records"
        )
        if self._on_lost == EARLIEST:
            _log.warning("%s; reading goes on at %d, as on_lost says", what, low)
            return low
        raise Invalid(
            f"{what}. Nothing was committed. If they cannot be brought back (another cluster, an archive), go"
            " on with what is there: --on-lost earliest, once; keep topics longer than this may stand still"
        )

    def _on_assign(self, consumer: Any, partitions: Any) -> None:
        self._changes += 1
        self.joined = True
        try:
            self._discard()
            self.next = {part.partition: 0 for part in partitions}
            self.rewind()
            if not self.next:
                self.place()
        except BaseException as error:  # raised out of a callback it would be lost
            self._trouble = error

    def _on_revoke(self, consumer: Any, partitions: Any) -> None:
        self._changes += 1
        try:
            self._flush()
        except BaseException as error:
            self._trouble = error
        self._let_go()

    def _on_lose(self, consumer: Any, partitions: Any) -> None:
        self._changes += 1
        _log.warning("the group took partitions of %s away from this process", self.topic)
        self._let_go()

    def _let_go(self) -> None:
        self._discard()
        self.next = {}
        self.joined = False  # until the group says again what is this process's
        self._unplaced = False
        self.ended.clear()

    def tell_group(self, ends: Mapping[int, int]) -> None:
        """Let the group know, for tools that show its lag; nobody reads it to go on."""
        made = self._kafka.TopicPartition
        offsets = [made(self.topic, p, end) for p, end in sorted(ends.items())]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except self._kafka.KafkaException as error:
            _log.debug("the group does not take offsets: %s", error)

    def lag(self) -> dict[int, int]:
        """Partition -> records that are there and not read yet, as far as the client knows."""
        found = {}
        for partition, at in sorted(self.next.items()):
            where = self._kafka.TopicPartition(self.topic, partition)
            _, high = self._consumer.get_watermark_offsets(where, cached=True)
            ended = partition in self.ended or high < 0  # markers of transactions are no records
            found[partition] = 0 if ended else max(0, high - at)
        return found

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
