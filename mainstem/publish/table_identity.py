"""Tells which table lies at a path: a table that was deleted and made anew there is another table.

The identity is a note in the fence's folder, an empty file ``table-<random text>``. No process changes or
removes it, so it lasts as long as the table, and no other table gets it. A process remembers the note of the
table that it opens, and looks for it whenever it begins or publishes something, in listings of the folder
that are made anyway. If the table was replaced, the note is missing there, and the process publishes, cleans
and archives nothing (``TableReplaced``).

On an object store the identity is in the gate (``publish.gate``), which every section reads anyway.

The note is made with the table, before ``hoodie.properties``; for a table of another engine, by the first
mainstem writer. Two writers that do this at once may each make a note; both stay and are valid. A copy of the
table's folder has the same notes.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainstem.publish import gate_object
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import has_swaps
from mainstem.truetime.seams import Randomness


def known_identity(storage: Storage) -> str | None:
    """The identity of the table there; None if no mainstem writer was there yet. Raises ``OSError``."""
    if has_swaps(storage):
        return gate_object.known_identity(storage)
    found = filter(None, map(paths.parse_table_note, storage.names(paths.FENCE)))
    return min(found, default=None)


def note_identity(storage: Storage, random: Randomness) -> str:
    """As ``known_identity``, but makes a note, durably, if there is none. Raises ``OSError``."""
    if has_swaps(storage):
        return gate_object.note_identity(storage, random)
    known = known_identity(storage)
    if known is not None:
        return known
    made = f"{random.getrandbits(128):032x}"
    storage.put_new(paths.table_note(made), b"", durable=True)
    storage.settle([], [paths.FENCE, paths.OWN], durable=True)
    return made


def check_same(names: Iterable[str], identity: str | None, base: str) -> None:
    """Raises ``TableReplaced`` if the table does not have this identity (None: any table passes).

    ``names``: a listing of the fence's folder.
    """
    if identity is not None and f"table-{identity}" not in names:
        raise gate_object.replaced(f"the note {paths.table_note(identity)} is missing", base)


def check_table(storage: Storage, identity: str | None) -> None:
    """As ``check_same``, with a listing made now; on an object store with the gate as it is now."""
    if identity is None:
        return
    if not has_swaps(storage):
        check_same(storage.names(paths.FENCE), identity, storage.base)
    elif (known := gate_object.known_identity(storage)) != identity:
        what = "is missing" if known is None else "is of another table"
        raise gate_object.replaced(f"{paths.GATE} {what}", storage.base)
