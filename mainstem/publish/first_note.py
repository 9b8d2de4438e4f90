"""Notes by which the first writer of a table says what all later ones must do alike."""

from __future__ import annotations

from mainstem.publish.staging import create_once
from mainstem.storage.protocol import Storage


def first_note(storage: Storage, path: str, text: str, *, max_bytes: int) -> str:
    """What the first writer noted at ``path``: ``text``, if that is this one."""
    if create_once(storage, path, text.encode(), durable=True):
        return text
    return storage.read(path, max_bytes=max_bytes).decode("utf-8", "replace")
