"""The lock seam: a table lock grants a ``Lease``; a lease can be lost, so it is checked before publishing.

``hoodie.write.lock.provider`` selects the provider by Hudi's class name. The lock only makes writers wait in
an orderly way; the fence (``publish.link_fence``) ensures that a superseded holder publishes nothing.
"""

from __future__ import annotations

from typing import Protocol


class Lease(Protocol):
    """The right to publish, until released or lost."""

    def check(self) -> None:
        """Raise ``LeaseLost`` unless this holder still owns the lock; asks the store, not memory."""

    def release(self) -> None:
        """Release the lock; never removes a lock that another holder has taken since."""


class LockProvider(Protocol):
    """A table lock. All writers of one table must agree on ``identity``."""

    @property
    def identity(self) -> str:
        """Which lock it is, alike for all that exclude each other."""

    def acquire(self) -> Lease:
        """Wait for the lock; raises ``LockUnavailable`` after the configured time and retries."""
