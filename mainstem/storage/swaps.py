"""Compare-and-swap of one small object, for stores that have conditional puts.

A lock object, a gate and numbered state live in one object each, which is replaced only by whoever read its
newest content. A store with conditional puts has both verbs (S3: ``If-None-Match`` and ``If-Match``; Google:
``ifGenerationMatch``; Azure: ETags); a local disk has neither.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Swappable(Protocol):
    """What a store offers beside ``storage.protocol`` if it has conditional puts.

    A *tag* names one content of an object (an ETag, a generation). Trouble is an ``OSError`` as in
    ``storage.protocol``. After trouble in ``swap`` the outcome is open: the content may be in place, or may
    arrive later, as long as the object still has ``tag``.
    """

    def read_tagged(self, path: str) -> tuple[bytes, str] | None:
        """The newest content and its tag; None if there is no such object."""

    def swap(self, path: str, data: bytes, tag: str | None) -> str | None:
        """Replace the content if the object still has ``tag`` (None: create it if absent).

        The tag of the new content, or None if the race is lost. None does not say who won: if a reply was
        lost and the client repeated the call, the winner may be this very call. Read the object to know.
        """
