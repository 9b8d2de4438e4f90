"""Changes ``hoodie.properties`` of a table in use, in one step and under the table lock.

Java's rules (``HoodieTableConfig.modify``): a writer saves the old file as ``hoodie.properties.backup``,
deletes the file, writes the new one and deletes the backup; readers that find no valid file read the backup.
The next writer that changes the properties first repairs what a dead writer left. Here a rename replaces the
file, so there is always a whole one, and a backup can only be left over from a dead Java writer:

  1. read the properties, from the backup if the file itself is missing or damaged
  2. write the new ones to a private file, durable
  3. remove the checksum that Hadoop keeps beside a file written by Java: it would no longer match
  4. rename the fence's ticket, which is that private file, over ``hoodie.properties``
  5. make the folder durable, then remove the backup if there was one at step 1

A crash before step 4 leaves the old properties (without Hadoop's checksum nothing is verified, which is
harmless). A crash after it leaves the new ones, perhaps beside an old backup; readers ignore the backup while
the file is there, and the next change removes it. A process that stalls at any step and resumes has lost its
ticket if another took the lock meanwhile, so its step 4 does nothing; its steps 3 and 5 remove at most a
checksum, or a backup that was already stale.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from mainstem.errors import Unavailable
from mainstem.layout.properties import TableConfig, encode_config, load_config
from mainstem.publish.publisher import Guarded
from mainstem.publish.staging import replace_guarded
from mainstem.storage import paths
from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.protocol import Storage
from mainstem.truetime.seams import Randomness, Seams

_OWNER = "properties"  # owner in the names of private files


def change_properties(
    section: Guarded,
    random: Randomness,
    change: Callable[[TableConfig], Mapping[str, str | None]],
    when: str,
    folder: str = "",
) -> TableConfig:
    """Apply ``change`` to the properties found under the lock; return the table's properties afterwards.

    ``change`` maps keys to new values, None to remove a key. ``when``: the date, as text, that Java writes
    into the file's first lines. ``folder``: of a table inside this one (the metadata table, whose properties
    are guarded by the table's lock and fence), "" for the table itself. Writes nothing if nothing changes.
    Raises ``LeaseLost`` if the lock was taken over (nothing has changed, or the new holder of the lock sees
    the change), ``Unavailable`` for trouble with storage.
    """
    storage = section.storage
    inner = FolderStorage(storage, folder) if folder else storage
    before = load_config(inner)
    wanted = change(before)
    raw = {k: v for k, v in {**before.raw, **wanted}.items() if v is not None}
    repairs = before.path != paths.PROPERTIES
    if raw == dict(before.raw) and not repairs:
        return before
    left_over = inner.stat(paths.PROPERTIES_BACKUP) is not None
    _replace(section, random, raw, encode_config(raw, when, updated=True), inner, folder)
    inner.settle([], [paths.HOODIE], durable=True)
    if left_over:
        section.check()
        inner.delete(paths.PROPERTIES_BACKUP)
        inner.delete(paths.checksum_file(paths.PROPERTIES_BACKUP))
    return TableConfig(raw)


def date_text(seams: Seams) -> str:
    """Now, as Java writes it into properties for people."""
    return time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(seams.clock.now_ms() / 1000))


def _replace(
    section: Guarded, random: Randomness, raw: Mapping[str, str], data: bytes, inner: Storage, folder: str
) -> None:
    target = paths.in_partition(folder, paths.PROPERTIES)
    try:
        replace_guarded(section, random, _OWNER, target, data)
    except OSError as error:
        # Either the request or only its reply was lost: the file's content tells which.
        if dict(load_config(inner).raw) != dict(raw):
            raise Unavailable(
                f"{target} could not be replaced: {error}; nothing changed, try again",
                table=section.storage.base,
            ) from error
