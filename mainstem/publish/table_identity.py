"""Which table lies at a path: one that was deleted and made anew there is another one.

A note in the fence's folder, ``table-<random text>``, which nobody changes or removes: it is there as long
as the table is and comes to no other one. Whoever opens a table remembers a note, and whatever is published
looks for that note in the listings of the folder that the fence makes anyway. So nobody who opened the one
table publishes on, cleans or archives the other: he does not find his note there.

Made with a table, before its ``hoodie.properties``; for a table of another engine by the first writer of
ours. Two that begin at once may each make one, and both notes stay and are right. A copy of the table's
folder has its notes too.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainstem.errors import TableReplaced
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.truetime.seams import Randomness


def known_identity(storage: Storage) -> str | None:
    """Of the table there; None where no writer of ours was yet. Raises ``OSError``."""
    found = filter(None, map(paths.parse_table_note, storage.names(paths.FENCE)))
    return min(found, default=None)


def note_identity(storage: Storage, random: Randomness) -> str:
    """As ``known_identity``; where there is none it is made, durably. Raises ``OSError``."""
    known = known_identity(storage)
    if known is not None:
        return known
    made = f"{random.getrandbits(128):032x}"
    storage.put_new(paths.table_note(made), b"", durable=True)
    storage.settle([], [paths.FENCE, paths.OWN], durable=True)
    return made


def check_same(names: Iterable[str], identity: str | None, base: str) -> None:
    """``names``: a listing of the fence's folder. Raises ``TableReplaced`` if the table is not (any more) the
    one of this identity; None is any."""
    if identity is not None and f"table-{identity}" not in names:
        raise TableReplaced(
            "the table that was opened here is gone: it was deleted, and perhaps another one made at its"
            f" path (the note {paths.table_note(identity)} is missing). Nothing was published on what is"
            " there now; open the table again",
            table=base,
        )


def check_table(storage: Storage, identity: str | None) -> None:
    """The same with a listing made now."""
    if identity is not None:
        check_same(storage.names(paths.FENCE), identity, storage.base)
