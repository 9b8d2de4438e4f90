"""The owner record: what the holder of the file-system lock writes about itself into ``lock``.

It is one JSON object, and untrusted when read. Only a file with such a record may be judged by its OS lock:
Java's lock files (empty, or JSON of ``LockInfo``) never contain one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from mainstem.limits import LOCK_FILE_BYTES_MAX
from mainstem.options.locks import EXPIRE_MS

KIND = "mainstem-lock"
VERSION = 1
_TEXT_MAX = 255
_INT_MAX = 2**53


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """The owner of a lock file.

    ``boot`` identifies one boot of one kernel: processes that agree on it share OS locks. ``created_ms`` is
    the owner's clock (shown to people, never compared). After ``expire_ms`` without a refresh, others may
    take the file over.
    """

    owner: str
    host: str
    boot: str
    pid: int
    created_ms: int
    expire_ms: int

    def encode(self) -> bytes:
        fields = {
            "kind": KIND,
            "version": VERSION,
            "owner": self.owner,
            "host": self.host,
            "boot": self.boot,
            "pid": self.pid,
            "created": self.created_ms,
            "expire_ms": self.expire_ms,
        }
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"

    @property
    def patience_ms(self) -> int:
        """``expire_ms`` within sane bounds, whatever the file says."""
        return min(max(self.expire_ms, EXPIRE_MS.low), EXPIRE_MS.high)

    def describe(self) -> str:
        """The owner as text for messages; control characters of a hostile record are replaced."""
        return (
            f"mainstem process {self.pid} on host {_plain(self.host)} (owner {_plain(self.owner)})"
        )


def parse_owner_record(content: bytes) -> OwnerRecord | None:
    """The record in ``content``; None for anything else, including broken records."""
    if len(content) > LOCK_FILE_BYTES_MAX or KIND.encode() not in content:
        return None
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    if fields.get("kind") != KIND or not _is_int(fields.get("version"), VERSION, VERSION):
        return None
    if not all(_is_text(fields.get(name)) for name in ("owner", "host", "boot")):
        return None
    if not all(_is_int(fields.get(name), 0, _INT_MAX) for name in ("pid", "created", "expire_ms")):
        return None
    return OwnerRecord(
        owner=fields["owner"],
        host=fields["host"],
        boot=fields["boot"],
        pid=fields["pid"],
        created_ms=fields["created"],
        expire_ms=fields["expire_ms"],
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _TEXT_MAX


def _is_int(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:80]
