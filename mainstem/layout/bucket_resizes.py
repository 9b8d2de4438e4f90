"""What ``hoodie.properties`` say about the bucket counts that a table had, and is about to get.

Each resize is ``before>after@instant``, oldest first; ``!`` behind it closes the table
(``services.resizing``). The last one is *open* as long as the bucket count is the one before it. While it is
open, the completion of its instant decides: once that is completed, every row lies by the count after it, and
whoever finds that writes the new count into the properties. An instant that is neither pending nor completed
never will be.

A reader may have listed the timeline before or after that completion, or ask for an earlier moment. So it
looks for a key in the buckets of every count that the table had.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from mainstem.errors import CorruptTable

_RESIZE = re.compile(r"^([0-9]{1,6})>([0-9]{1,6})@([0-9]{17})(!?)\Z")


@dataclass(frozen=True)
class Resize:
    """From ``before`` to ``after`` buckets, by the delta commit that was requested at ``instant``.

    ``closed``: mainstem's writers wait until it has ended, and complete nothing before.
    """

    before: int
    after: int
    instant: str
    closed: bool = False

    def __str__(self) -> str:
        return f"{self.before}>{self.after}@{self.instant}{'!' if self.closed else ''}"


def parse_resizes(text: str, *, path: str) -> tuple[Resize, ...]:
    """The resizes in a property's text. Raises ``CorruptTable`` for any other text."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _RESIZE.match(part)
        if match is None or int(match[1]) == int(match[2]) or 0 in (int(match[1]), int(match[2])):
            raise CorruptTable(
                f"a resize {part[:80]!r}, expected before>after@instant; it says which bucket counts the"
                " table had: restore the properties from a copy",
                path=path,
            )
        found.append(Resize(int(match[1]), int(match[2]), match[3], bool(match[4])))
    return tuple(found)


def resizes_text(resizes: Iterable[Resize]) -> str:
    """The property's text."""
    return ",".join(map(str, resizes))


def open_resize(resizes: tuple[Resize, ...], buckets: int | None) -> Resize | None:
    """The last resize, if the properties do not have its new count yet."""
    return resizes[-1] if resizes and resizes[-1].before == buckets else None


def with_resize(resizes: tuple[Resize, ...], buckets: int, resize: Resize | None) -> tuple[Resize, ...]:
    """``resizes`` with ``resize`` in place of an open one, which came to nothing."""
    done = resizes[:-1] if open_resize(resizes, buckets) is not None else resizes
    return done if resize is None else (*done, resize)
