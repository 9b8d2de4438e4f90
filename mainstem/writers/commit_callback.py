"""Tells a web server of each commit, as Hudi's ``HoodieWriteCommitHttpCallback`` does.

The commit is visible and the lock free before anything is sent. A server that does not answer, or answers
with an error, is a warning: the commit stands, and nothing is sent again. The process that committed waits
for the answer, nobody else does.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mainstem.errors import Invalid, MainstemError
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.options.writing import (
    CALLBACK_HEADERS,
    CALLBACK_KEY,
    CALLBACK_ON,
    CALLBACK_TIMEOUT,
    CALLBACK_URL,
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


@dataclass
class CommitCallback:
    """Called with the name of the completed file of a write; raises nothing."""

    storage: Storage
    table_name: str
    url: str
    timeout_s: int
    headers: Mapping[str, str] = field(repr=False)
    _last: str = ""

    @classmethod
    def of(cls, storage: Storage, properties: Mapping[str, str], table_name: str) -> CommitCallback:
        """By the options. Raises ``Invalid`` for a URL, a key or headers that cannot be used."""
        url = CALLBACK_URL.read(properties)
        parsed = urllib.parse.urlsplit(url)
        if parsed.scheme not in ("http", "https") or not parsed.netloc:
            raise Invalid(
                f"{CALLBACK_ON}=true needs {CALLBACK_URL}, found {url!r}; expected http://host:port/path or"
                " https://...", table=storage.base,
            )  # fmt: skip
        headers = {_KEY_HEADER: _secret(CALLBACK_KEY.read(properties)), "Content-Type": _JSON}
        headers |= _headers(CALLBACK_HEADERS.read(properties))
        return cls(storage, table_name, url, CALLBACK_TIMEOUT.read(properties), headers)

    def __call__(self, name: str) -> None:
        if name == self._last:
            return  # a write that was made again tells of itself, too
        self._last = name
        try:
            message = json.dumps(self._message(name)).encode()
            request = urllib.request.Request(self.url, message, dict(self.headers), method="POST")
            with urllib.request.urlopen(request, timeout=self.timeout_s):
                return
        except (OSError, ValueError, MainstemError) as error:
            warnings.warn(
                f"the commit {name} of {self.storage.base} stands, but {self._host} was not told of it:"
                f" {error}",
                CallbackWarning,
                stacklevel=4,
            )

    @property
    def _host(self) -> str:
        """Without user, password and query, which may be secrets."""
        return urllib.parse.urlsplit(self.url).hostname or ""

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
