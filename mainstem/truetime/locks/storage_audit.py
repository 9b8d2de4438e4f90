"""The audit of the storage lock: who held it when, in files that Hudi's audit procedures read.

Hudi: ``AuditServiceFactory`` and ``StorageLockProviderAuditService``. It is on if
``.hoodie/.locks/audit_enabled.json`` says so. Each acquisition has one file, which is rewritten with one
more line at each event. An audit that cannot be written is logged and stops nobody.
"""

from __future__ import annotations

import json
import logging

from mainstem.errors import MainstemError
from mainstem.limits import LOCK_FILE_BYTES_MAX
from mainstem.storage.swaps import Swappable, Tag
from mainstem.truetime.clock import Clock
from mainstem.truetime.locks.storage_record import LOCK_FOLDER

AUDIT_CONFIG_PATH = f"{LOCK_FOLDER}/audit_enabled.json"
AUDIT_FOLDER = f"{LOCK_FOLDER}/audit"
_ENABLED = "STORAGE_LOCK_AUDIT_SERVICE_ENABLED"
# Java looks at each acquisition, which costs a request under the lock.
_LOOK_AGAIN_MS = 300_000

_log = logging.getLogger(__name__)


class AuditSwitch:
    """Whether the table wants an audit; looked up at the first acquisition and every five minutes."""

    def __init__(self, storage: Swappable, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._on = False
        self._looked_ms: float | None = None

    def is_on(self) -> bool:
        """The last answer; False if it cannot be read."""
        now = self._clock.monotonic_ms()
        if self._looked_ms is None or now - self._looked_ms >= _LOOK_AGAIN_MS:
            self._looked_ms = now
            self._on = self._look()
        return self._on

    def _look(self) -> bool:
        try:
            found = self._storage.read_tagged(AUDIT_CONFIG_PATH, max_bytes=LOCK_FILE_BYTES_MAX)
            if found is None:
                return False
            fields = json.loads(found[0])
        except (OSError, MainstemError, ValueError, RecursionError) as error:
            _log.warning("%s cannot be read (%s): the lock is not audited", AUDIT_CONFIG_PATH, error)
            return False
        return isinstance(fields, dict) and fields.get(_ENABLED) is True


class AuditFile:
    """The events of one acquisition, by ``owner`` from ``started_ms`` on."""

    def __init__(self, storage: Swappable, owner: str, started_ms: int, validity_ms: int) -> None:
        self._storage = storage
        self._path = f"{AUDIT_FOLDER}/{started_ms}_{owner}.jsonl"
        self._owner = owner
        self._started_ms = started_ms
        self._validity_ms = validity_ms
        self._lines = ""
        self._tag: Tag | None = None

    def note(self, state: str, at_ms: int) -> None:
        """Add START, RENEW or END; raises nothing but interrupts."""
        event = {
            "ownerId": self._owner,
            "transactionStartTime": self._started_ms,
            "timestamp": at_ms,
            "state": state,
            "lockExpiration": at_ms + self._validity_ms,
            "lockHeld": True,
        }
        self._lines += json.dumps(event, separators=(",", ":")) + "\n"
        try:
            tag = self._storage.swap(self._path, self._lines.encode(), self._tag)
            if tag is None:  # an earlier reply was lost: nobody else writes this file
                found = self._storage.read_tagged(self._path)
                tag = self._storage.swap(self._path, self._lines.encode(), found[1] if found else None)
            self._tag = tag or self._tag
        except (OSError, MainstemError) as error:
            _log.warning("%s could not be written: %s", self._path, error)
