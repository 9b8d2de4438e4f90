"""Changes the list of a table's vector indexes, under the table lock.

  [[ 1. read ``vector-index.properties``, or the copy if the folder of the metadata table is gone
     2. write the new content to private files, durable
     3. rename the fence's ticket over each of the two files that differs: the copy last if an index is added,
     the
        copy first if one is removed ]]

So the copy never names an index that the list lacks: if Java removes the folder, no dropped index comes back.
A crash in between leaves an index missing from the copy; the next change completes it. A process that stalls
and resumes has lost its ticket and changes nothing.
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

_OWNER = "vectors"  # owner in the names of private files


def change_indexes(ctx: WriterContext, wanted: Callable[[VectorIndexes], VectorIndexes]) -> VectorIndexes:
    """Replace the table's vector indexes by ``wanted`` of those found under the lock; ``wanted`` may raise.

    Returns the indexes afterwards. Raises what the lock raises, ``CorruptTable`` for damaged lists, and
    ``Unavailable`` for trouble with storage, after which it is unknown whether the change was made.
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
    if make_folder(storage, folder):  # possibly with the metadata table's folder around it
        above = folder.rpartition("/")[0]
        storage.settle([], filter(None, [above, above.rpartition("/")[0]]), durable=True)
    replace_guarded(section, ctx.seams.random, _OWNER, path, data)
    storage.settle([], [folder], durable=True)


def _content(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path, max_bytes=PROPERTIES_BYTES_MAX)
    except FileNotFoundError:
        return None
