"""Tells a web server or a Kafka topic of each commit, as Hudi's ``HoodieWriteCommitHttpCallback`` and
``HoodieWriteCommitKafkaCallback`` do.

The commit is visible and the lock free before anything is sent. A server that does not answer, or answers
with an error, is a warning: the commit stands, and nothing is sent again. The process that committed waits
for the answer, nobody else does.
"""

from __future__ import annotations

import json
import logging
import os
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mainstem.errors import Invalid, MainstemError, Unsupported
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.options.writing import (
    CALLBACK_CLASS,
    CALLBACK_HEADERS,
    CALLBACK_KEY,
    CALLBACK_ON,
    CALLBACK_TIMEOUT,
    CALLBACK_URL,
    HTTP_CLASS,
    KAFKA_ACKS,
    KAFKA_CLASS,
    KAFKA_PARTITION,
    KAFKA_RETRIES,
    KAFKA_SERVERS,
    KAFKA_TOPIC,
)
from mainstem.storage import paths
from mainstem.storage.final_files import read_final
from mainstem.storage.protocol import Storage
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.timeline.instant import parse_instant

_KEY_HEADER = "HUDI-CALLBACK-KEY"
_JSON = "application/json; charset=UTF-8"
_FROM_ENVIRONMENT = "env:"


class CallbackWarning(UserWarning):
    """A commit could not be told to the server of the commit callback; the commit stands."""


class Receiver(Protocol):
    """Whom commits are told."""

    @property
    def name(self) -> str:
        """Where, without user, password and query, which may be secrets."""

    def send(self, message: bytes) -> None:
        """Send and wait for the answer. Raises ``OSError`` or ``ValueError``."""


@dataclass(frozen=True)
class WebServer:
    """Takes each message by POST."""

    url: str
    timeout_s: int
    headers: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, properties: Mapping[str, str], table: str) -> WebServer:
        """Raises ``Invalid`` for a URL, a key or headers that cannot be used."""
        url = CALLBACK_URL.read(properties)
        parsed = urllib.parse.urlsplit(url)
        if parsed.scheme not in ("http", "https") or not parsed.netloc:
            raise Invalid(
                f"{CALLBACK_ON}=true needs {CALLBACK_URL}, found {url!r}; expected http://host:port/path or"
                " https://...", table=table,
            )  # fmt: skip
        headers = {_KEY_HEADER: _secret(CALLBACK_KEY.read(properties)), "Content-Type": _JSON}
        headers |= _headers(CALLBACK_HEADERS.read(properties))
        return cls(url, CALLBACK_TIMEOUT.read(properties), headers)

    @property
    def name(self) -> str:
        return urllib.parse.urlsplit(self.url).hostname or ""

    def send(self, message: bytes) -> None:
        request = urllib.request.Request(self.url, message, dict(self.headers), method="POST")
        with urllib.request.urlopen(request, timeout=self.timeout_s):
            return


@dataclass(frozen=True)
class KafkaTopic:
    """Takes each message as a record, whose key is the table's name."""

    topic: str
    partition: int | None
    key: str
    timeout_s: int
    servers: str
    producer: Any = field(repr=False)

    @classmethod
    def of(cls, properties: Mapping[str, str], key: str, table: str) -> KafkaTopic:
        """Raises ``Invalid`` for options that are missing or wrong, and without the client."""
        servers, topic = KAFKA_SERVERS.read(properties), KAFKA_TOPIC.read(properties)
        if not servers or not topic:
            raise Invalid(
                f"callbacks to Kafka need {KAFKA_SERVERS} (host:port,...) and {KAFKA_TOPIC}", table=table
            )
        number = KAFKA_PARTITION.read(properties)
        if number and not (number.isascii() and number.isdigit()):
            raise Invalid(f"{KAFKA_PARTITION}={number!r}; expected a whole number from 0", table=table)
        try:
            from confluent_kafka import Producer
        except ImportError as error:
            raise Invalid("callbacks to Kafka need pip install 'mainstem[kafka]'", table=table) from error
        timeout_s = CALLBACK_TIMEOUT.read(properties)
        producer = Producer({
            "bootstrap.servers": servers, "acks": KAFKA_ACKS.read(properties),
            "retries": KAFKA_RETRIES.read(properties), "message.timeout.ms": timeout_s * 1000,
            "logger": logging.getLogger(__name__),
        })  # fmt: skip
        return cls(topic, int(number) if number else None, key, timeout_s, servers, producer)

    @property
    def name(self) -> str:
        return f"the topic {self.topic} at {self.servers}"

    def send(self, message: bytes) -> None:
        failed: list[object] = ["no answer"]

        def answered(error: object, _record: object) -> None:
            failed[:] = [] if error is None else [error]

        where = {} if self.partition is None else {"partition": self.partition}
        try:
            self.producer.produce(self.topic, message, self.key, on_delivery=answered, **where)
        except BufferError as error:
            raise OSError(str(error)) from error
        self.producer.flush(self.timeout_s + 1)
        if failed:
            raise OSError(str(failed[0]))


@dataclass
class CommitCallback:
    """Called with the name of the completed file of a write; raises nothing."""

    storage: Storage
    table_name: str
    receiver: Receiver
    _last: str = ""

    @classmethod
    def of(cls, storage: Storage, properties: Mapping[str, str], table_name: str) -> CommitCallback:
        """By the options. Raises ``Invalid`` for those that are missing or wrong."""
        kind, table = CALLBACK_CLASS.read(properties), storage.base
        if kind == KAFKA_CLASS:
            return cls(storage, table_name, KafkaTopic.of(properties, table_name, table))
        if kind != HTTP_CLASS:
            raise Unsupported(
                f"{CALLBACK_CLASS}={kind!r}: classes of Java do not run here; expected {HTTP_CLASS} or"
                f" {KAFKA_CLASS}", table=table,
            )  # fmt: skip
        return cls(storage, table_name, WebServer.of(properties, table))

    def __call__(self, name: str) -> None:
        if name == self._last:
            return  # a write that was made again tells of itself, too
        self._last = name
        try:
            self.receiver.send(json.dumps(self._message(name)).encode())
        except (OSError, ValueError, MainstemError) as error:
            warnings.warn(
                f"the commit {name} of {self.storage.base} stands, but {self.receiver.name} was not told of"
                f" it: {error}",
                CallbackWarning,
                stacklevel=4,
            )

    def _message(self, name: str) -> dict[str, Any]:
        """``HoodieWriteCommitCallbackMessage`` as JSON. Of its last two fields Java tells only that they are
        there; here they have their values, too."""
        path = paths.timeline_file(name)
        metadata = decode_commit(read_final(self.storage, path, max_bytes=TIMELINE_FILE_BYTES_MAX), path=path)
        instant = parse_instant(name)
        assert instant is not None
        return {
            "commitTime": instant.requested,
            "tableName": self.table_name,
            "basePath": self.storage.base,
            "hoodieWriteStat": [stat for stats in metadata.stats.values() for stat in stats],
            "commitActionType": _present(instant.action),
            "extraMetadata": _present(metadata.extra),
        }


def _present(value: object) -> dict[str, object]:
    return {"empty": False, "present": True, "value": value}


def _secret(text: str) -> str:
    if not text.startswith(_FROM_ENVIRONMENT):
        return text
    name = text.removeprefix(_FROM_ENVIRONMENT)
    if name not in os.environ:
        raise Invalid(f"{CALLBACK_KEY}={text!r}: the environment has no variable {name}")
    return os.environ[name]


def _headers(text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, colon, value = (piece.strip() for piece in part.partition(":"))
        if not colon or not name or not value or not (name + value).isprintable():
            # The value may be a secret.
            raise Invalid(
                f"{CALLBACK_HEADERS}: a header called {name!r} has no value; expected Name:value;Name:value"
            )
        found[name] = value
    return found
