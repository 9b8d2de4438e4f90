"""Base files that lie beside files of others get their names only when their instant completes.

An overwrite T, a resize and a load into empty buckets put base files into file groups that others append to.
Under their names such files begin file slices of an instant that is not completed yet. mainstem passes them
by. Java's file-system view of a table without a metadata table hides with them what others complete
meanwhile, and a compaction that Java plans then loses it for good (SAFETY.md). So where others may write, and
a name costs little (hard links, the renames of HDFS), these files are written beside the table:

  write    ``.hoodie/.mainstem/unshown/<T>/<partition>/<name>``, durable before the lock is taken
  commit   [[ the checks of the section, all of them; then
           1. ``showing-<T>`` in the fence's folder, with the names; durable
           2. list that folder: has somebody entered since? then nothing is shown
           3. give each file its name (``link``); make the folders durable
           4. ask the lock whether it is still ours; T_C.deltacommit; remove the note ]]

**Whoever enters the fence next and finds the note** looks at the timeline first. If T is completed, it
removes the note. Else T can never complete by that section, whose marker is swept, and what T showed goes:
the files beside the table first, so that a name which is about to be given finds no file, then the names,
then the note.

**T has one attempt.** A section that comes after may still be removing names when T's process has the lock
again. So once there was a note, T never completes in another section, whoever tries: an overwrite is made
again under a later T, a resize begins another round, a bulk insert is undone. By 2 it is also one section
that shows T, if two processes took it over: the later one finds the note, and takes T's files away.

Java sweeps nothing. What is left of the time in which it could lose rows is the time from 1 to the end of the
section, and until the next section of mainstem if the process dies there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mainstem.errors import CorruptTable, LeaseLost
from mainstem.limits import MARKERS_BYTES_MAX
from mainstem.publish.fence import Epoch
from mainstem.publish.staging import is_same, put
from mainstem.storage import paths
from mainstem.storage.links import has_links
from mainstem.storage.protocol import Storage
from mainstem.storage.renames import has_renames, move_new
from mainstem.storage.side_by_side import in_turn, side_by_side

#: (partition, file name)
Shown = tuple[str, str]


def can_show(storage: Storage) -> bool:
    """Whether giving many files their names is no matter of copying them."""
    return has_links(storage) or has_renames(storage)


def note_of(files: Sequence[Shown]) -> bytes:
    """The content of a note."""
    return "".join(f"{paths.in_partition(*one)}\n" for one in files).encode()


class Showing:
    """The files of one instant, in one attempt to publish it. ``note``: a durable private file of
    ``note_of(files)``; the files beside the table are durable."""

    def __init__(
        self, storage: Storage, instant: str, files: Sequence[Shown], note: str, *, durable: bool
    ) -> None:
        self._storage = storage
        self._instant = instant
        self._files = files
        self._note = note
        self._durable = durable
        #: there may have been a note: the instant completes in this section, or never
        self.tried = False
        self._alone = False

    def show(self, epoch: Epoch) -> None:
        """Steps 1 to 3. Raises ``LeaseLost`` if another section entered, or has taken the files away."""
        storage = self._storage
        if self.tried:
            raise LeaseLost(f"the files of {self._instant} were shown by an earlier section")
        self.tried = True
        try:
            put(storage, self._note, paths.showing_note(self._instant))
        except FileExistsError as error:
            raise LeaseLost(f"another section shows the files of {self._instant}") from error
        storage.settle([], [paths.FENCE], durable=self._durable)
        epoch.check()
        self._alone = True
        self.name_files()
        storage.settle([], self._folders, durable=self._durable)

    def name_files(self) -> None:
        """Give each file its name. Raises ``LeaseLost`` if one is gone."""
        try:
            self._each(self._name)
        except FileNotFoundError as error:
            raise LeaseLost(f"a later section took the files of {self._instant} away") from error

    def _name(self, one: Shown) -> None:
        private, target = paths.unshown(self._instant, *one), paths.in_partition(*one)
        try:
            put(self._storage, private, target)
        except FileExistsError:  # named before, for a metadata table
            if not is_same(self._storage, private, target):
                raise

    def take_away(self) -> None:
        """After a failure by which the instant is not published, and never will be: take the names back.

        The files stay beside the table, from which the instant's writer can read them.
        """
        if self._alone:
            self._each(self._take_back)
            self._storage.settle([], self._folders, durable=self._durable)
            self.forget()
        elif self.tried and is_same(self._storage, self._note, paths.showing_note(self._instant)):
            self.forget()

    def _take_back(self, one: Shown) -> None:
        storage, target = self._storage, paths.in_partition(*one)
        if has_links(storage):
            storage.delete(target)
            return
        try:
            move_new(storage, target, paths.unshown(self._instant, *one))
        except FileNotFoundError:
            return  # never named, or taken away

    def forget(self) -> None:
        """Remove the note: the instant is completed, or shows nothing any more."""
        self._storage.delete(paths.showing_note(self._instant))

    def _each(self, work: object) -> None:
        assert callable(work)
        if has_links(self._storage):  # a name is made faster than it is handed to a thread
            in_turn(work, self._files)
        else:
            side_by_side(self._storage, work, self._files)

    @property
    def _folders(self) -> list[str]:
        return sorted({partition for partition, _ in self._files})


def unshown_names(storage: Storage, partition: str) -> list[str]:
    """The names that pending instants may give to base files in a partition. They may have got them, or be
    gone, when this returns: whoever goes by it looks at what completed under the lock."""
    found: list[str] = []
    if can_show(storage):
        for instant in sorted(storage.names(paths.UNSHOWN)):
            found += storage.names(f"{paths.unshown_folder(instant)}/{partition}".rstrip("/"))
    return found


def take_back(storage: Storage, instant: str) -> None:
    """Take away what an instant shows that is not completed and, once this has begun, never will be.

    Only names of the note that are those of base files of this instant go. What a damaged note does not tell
    is found by the instant's rollback, which lists the partitions.
    """
    storage.delete_tree(paths.unshown_folder(instant))
    folders = set()
    for partition, name in _noted(storage, instant):
        storage.delete(paths.in_partition(partition, name))
        folders.add(partition)
    there = [folder for folder in sorted(folders) if not folder or storage.stat(folder) is not None]
    storage.settle([], there, durable=True)
    storage.delete(paths.showing_note(instant))


def _noted(storage: Storage, instant: str) -> Iterator[Shown]:
    try:
        text = storage.read(paths.showing_note(instant), max_bytes=MARKERS_BYTES_MAX)
    except (FileNotFoundError, CorruptTable):  # gone, or longer than any of ours
        return
    for line in text.decode("utf-8", "replace").split("\n"):
        partition, _, name = line.rpartition("/")
        parsed = paths.parse_base_name(name)
        if parsed is not None and parsed.instant == instant and (not partition or paths.is_inside(partition)):
            yield partition, name
