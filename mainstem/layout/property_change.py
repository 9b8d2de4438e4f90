"""Changing ``hoodie.properties`` of a table in use, in one step and under the table lock.

Java's rules (``HoodieTableConfig.modify``): a writer saves the old file as ``hoodie.properties.backup``,
deletes it, writes the new one and deletes the backup; readers that find no valid file take the backup.
Whoever changes the properties first repairs what a dead writer left. Here a rename replaces the old file,
so there is always a whole one, and a backup is nothing but what a dead Java writer left:

  1. read the properties, from the backup if the file itself is missing or damaged
  2. write the new ones to a private file, durable
  3. remove the checksum that Hadoop keeps beside a file that Java wrote: it would not match
  4. rename the fence's ticket, which is that private file, over ``hoodie.properties``
  5. make the folder durable, then remove a backup that was there at step 1

A crash leaves: before 4 the old properties (without Hadoop's checksum nothing is verified, which is
harmless), after 4 the new ones, perhaps beside an old backup, which nobody reads while the file itself is
there and which whoever changes the properties next removes. A process that stopped anywhere and wakes up
has lost its ticket if somebody had the lock meanwhile, so step 4 does nothing; steps 3 and 5 remove what
at most saves a check or was stale already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mainstem.errors import Unavailable
from mainstem.layout.properties import TableConfig, encode_config, load_config
from mainstem.publish.publisher import Guarded
from mainstem.publish.staging import replace_guarded
from mainstem.storage import paths
from mainstem.truetime.seams import Randomness

_OWNER = "properties"  # whose private files


def change_properties(
    section: Guarded,
    random: Randomness,
    change: Callable[[TableConfig], Mapping[str, str | None]],
    when: str,
) -> TableConfig:
    """Apply what ``change`` says about the properties found under the lock: key -> new value, None to remove
    it. Returns the table's properties from now on.

    ``when``: a text for people, the date that Java puts into the first lines. Nothing is written if nothing
    changes. Raises ``LeaseLost`` when the lock was taken over (nothing changed, or the change is visible to
    whoever took it over), ``Unavailable`` for trouble with storage.
    """
    storage = section.storage
    before = load_config(storage)
    wanted = change(before)
    raw = {k: v for k, v in {**before.raw, **wanted}.items() if v is not None}
    repairs = before.path != paths.PROPERTIES
    if raw == dict(before.raw) and not repairs:
        return before
    left_over = storage.stat(paths.PROPERTIES_BACKUP) is not None
    _replace(section, random, raw, encode_config(raw, when, updated=True))
    storage.settle([], [paths.HOODIE], durable=True)
    if left_over:
        section.check()
        storage.delete(paths.PROPERTIES_BACKUP)
        storage.delete(paths.checksum_file(paths.PROPERTIES_BACKUP))
    return TableConfig(raw)


def _replace(section: Guarded, random: Randomness, raw: Mapping[str, str], data: bytes) -> None:
    try:
        replace_guarded(section, random, _OWNER, paths.PROPERTIES, data)
    except OSError as error:
        # Either the reply was lost, or the effect: what is there now tells.
        if dict(load_config(section.storage).raw) != dict(raw):
            raise Unavailable(
                f"{paths.PROPERTIES} could not be replaced: {error}; nothing changed, try again",
                table=section.storage.base,
            ) from error
