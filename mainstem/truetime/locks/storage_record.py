"""The lock object of ``StorageBasedLockProvider`` (RFC-91): who holds the table lock, and until when.

Hudi: ``StorageLockData``, ``{"expired":false,"validUntil":1795433443614,"owner":"<uuid>"}``. The object is
never deleted; ``expired`` frees it. Bytes from the store are untrusted.

Java compares owners and never looks inside them, and for an object with ``expired`` it ignores
``validUntil``. mainstem uses both, so that its processes, on all machines, can leave Java a turn:

* Its owners are UUIDs of version 8 (RFC 9562: contents of one's own) with a fixed mark. Their first 48 bits
  are the time since when mainstem has used the lock without a pause that Java would notice.
* In an object that mainstem freed, ``validUntil`` is the time from which mainstem writers may take it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from mainstem.errors import CorruptTable
from mainstem.limits import LOCK_FILE_BYTES_MAX
from mainstem.truetime.locks.option_values import shown

LOCK_FOLDER = ".hoodie/.locks"
LOCK_PATH = f"{LOCK_FOLDER}/table_lock.json"

_MARK = "6d5"
_OURS = re.compile(rf"([0-9a-f]{{8}})-([0-9a-f]{{4}})-8{_MARK}-[89ab][0-9a-f]{{3}}-[0-9a-f]{{12}}")
_OWNER_MAX = 512
_LONG = 2**63
_EXPECTED = 'expected {"expired": true or false, "validUntil": milliseconds, "owner": text}'


def new_owner(busy_since_ms: int, bits: int) -> str:
    """An owner of ours: 48 bits of milliseconds since the epoch, and 62 of ``bits`` (random)."""
    since = f"{min(max(busy_since_ms, 0), 2**48 - 1):012x}"
    rest = f"{0b10 << 62 | bits & (2**62 - 1):016x}"
    return f"{since[:8]}-{since[8:]}-8{_MARK}-{rest[:4]}-{rest[4:]}"


@dataclass(frozen=True, slots=True)
class LockRecord:
    """The content of the lock object; ``valid_until_ms`` is by the clock of its writer."""

    expired: bool
    valid_until_ms: int
    owner: str

    def encode(self) -> bytes:
        """The bytes that Java would write."""
        fields = {"expired": self.expired, "validUntil": self.valid_until_ms, "owner": self.owner}
        return json.dumps(fields, separators=(",", ":")).encode()

    @property
    def busy_since_ms(self) -> int | None:
        """Since when mainstem uses the lock without a pause; None if another engine wrote this record."""
        match = _OURS.fullmatch(self.owner)
        return int(match[1] + match[2], 16) if match else None

    def describe(self, now_ms: int) -> str:
        """The holder as text for messages."""
        kind = "another engine" if self.busy_since_ms is None else "a mainstem writer"
        left_s = (self.valid_until_ms - now_ms) / 1000
        return f"{kind} (owner {_plain(self.owner)}, valid for {left_s:.0f} s more)"


def parse_record(content: bytes, base: str) -> LockRecord:
    """The record in ``content``. Raises ``CorruptTable`` for anything else, as no writer may guess."""
    found = f"{len(content)} bytes"
    if len(content) <= LOCK_FILE_BYTES_MAX:
        found = shown(content[:200].decode("utf-8", "replace"))
        try:
            fields = json.loads(content)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict):
            expired, until, owner = (fields.get(name) for name in ("expired", "validUntil", "owner"))
            if (
                isinstance(expired, bool)
                and isinstance(until, int)
                and not isinstance(until, bool)
                and -_LONG <= until < _LONG
                and isinstance(owner, str)
                and 0 < len(owner) <= _OWNER_MAX
            ):
                return LockRecord(expired, until, owner)
    raise CorruptTable(
        f"the lock object holds no lock: {_EXPECTED}, found {found}. Delete it if no writer runs; the"
        " next one makes it anew",
        path=LOCK_PATH,
        table=base,
    )


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:80]
