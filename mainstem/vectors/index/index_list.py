"""Changing which vector indexes a table has, under the table lock.

  [[ 1. ``vector-index.properties`` is read; of a table whose metadata table's folder is gone, the copy
     2. what is wanted is put to private files, durable
     3. the fence's ticket is renamed over each of the two files that differs: of an index that comes the copy
        last, of one that goes the copy first ]]

So the copy never names an index that the list has not: should Java remove the folder, nothing that was
dropped comes back. A crash in between leaves the copy without an index; the next change makes it whole.
A process that was stopped and wakes up has lost its ticket, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from mainstem.errors import naming
from mainstem.limits import PROPERTIES_BYTES_MAX
from mainstem.publish.publisher import Guarded
from mainstem.publish.staging import replace_guarded
from mainstem.storage import paths
from mainstem.storage.folders import make_folder
from mainstem.storage.protocol import Storage
from mainstem.vectors.index.version_manifest import VectorIndexes, encode_indexes
from mainstem.vectors.index.versions import read_indexes
from mainstem.writers.context import WriterContext

_OWNER = "vectors"  # whose private files


def change_indexes(ctx: WriterContext, wanted: Callable[[VectorIndexes], VectorIndexes]) -> VectorIndexes:
    """Make the table's vector indexes what ``wanted`` makes of those found under the lock; it may raise.

    Returns what they are from now on. Raises what the lock raises, ``CorruptTable`` for damaged lists,
    ``Unavailable`` for trouble with storage, which leaves open whether the change was made.
    """

    def work(section: Guarded) -> VectorIndexes:
        before = read_indexes(ctx.seams.storage)
        after = wanted(before)
        order = [paths.VECTOR_PROPERTIES, paths.VECTOR_PROPERTIES_COPY]
        if {index.token for index in before.found} - {index.token for index in after.found}:
            order.reverse()
        for path in order:
            _put(ctx, section, path, encode_indexes(after))
        return after

    advice = "look at the table's indexes, and try again"
    with naming(ctx.base, "the list of vector indexes could not be changed", advice):
        return ctx.publisher.guarded(work)


def _put(ctx: WriterContext, section: Guarded, path: str, data: bytes) -> None:
    storage = section.storage
    if _content(storage, path) == data:
        return
    folder = path.rpartition("/")[0]
    if make_folder(storage, folder):  # maybe with the metadata table's, in which it is
        above = folder.rpartition("/")[0]
        storage.settle([], filter(None, [above, above.rpartition("/")[0]]), durable=True)
    replace_guarded(section, ctx.seams.random, _OWNER, path, data)
    storage.settle([], [folder], durable=True)


def _content(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path, max_bytes=PROPERTIES_BYTES_MAX)
    except FileNotFoundError:
        return None
