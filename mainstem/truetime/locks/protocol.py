"""The lock seam: a table lock gives a ``Lease``; a lease can be lost, so it is checked before publishing.

``hoodie.write.lock.provider`` chooses the provider, under Hudi's class names. The lock only makes
waiting orderly; that a superseded holder publishes nothing is the fence's work (``publish.link_fence``).
"""

from __future__ import annotations

from typing import Protocol


class Lease(Protocol):
    """The right to publish, until released or lost."""

    def check(self) -> None:
        """Raise ``LeaseLost`` unless this holder still owns the lock (storage is asked, not memory)."""

    def release(self) -> None:
        """Give the lock back; never removes a lock that somebody else holds by now."""


class LockProvider(Protocol):
    """A table lock. ``identity`` is what writers of one table must agree on."""

    identity: str

    def acquire(self) -> Lease:
        """Wait for the lock; raises ``LockUnavailable`` after the configured time and retries."""
