"""Private files: what gets its place only after a look, or under the lock, is written here first.

(What needs neither is the store's business: ``put_new`` and ``put`` show a file whole or not at all.)

A private file has a name that nobody else has (``private_name``; whose it is stands first in it), and gets
its place from there in one step:

- ``put``, ``put_once``, ``put_whole``: a new file. Several may make it at once; the first one's stays.
- ``put_over``: in the place of what is there; ``replace_guarded``: the same behind the fence.
- ``prepared``, ``preparing``: the content of an instant, for ``publish.publisher``.

**Durable** is the content, before the file gets its place (where ``durable`` says so); the name in its place
is when the caller has made the folder durable.

**A crash** leaves the private file. Nobody reads it. Whoever ends the plan in whose name it stands removes it
(``services.other_attempts``), and the sweep of leftovers what is old (``writers.leftovers``).

**A process that was stopped and wakes up** may find its private file removed: then nothing gets a place any
more (``Swept``). So removing private files ends whatever is still on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from mainstem.storage import paths
from mainstem.storage import protocol as storage_protocol
from mainstem.storage.links import links
from mainstem.storage.protocol import Storage, Upload
from mainstem.truetime.seams import Randomness, Seams

#: what a private file holds: bytes, or what fills it
Content = storage_protocol.Content | Callable[[Upload], object]


class Swept(FileNotFoundError):
    """The private file was removed before it got its place: somebody ended what it was made for."""


class Replacing(Protocol):
    """What ``replace_guarded`` needs of ``publisher.Guarded``."""

    @property
    def storage(self) -> Storage: ...

    def replace(self, prepared: str, target: str) -> None: ...


# -- private files ---------------------------------------------------------------------------------


def private_name(random: Randomness, owner: str) -> str:
    """Path of a private file that nobody else has. ``owner``: an instant's time, or a word for what it is."""
    return paths.prepared(owner, f"{random.getrandbits(64):016x}")


def prepare(seams: Seams, owner: str, data: bytes) -> str:
    """A durable private file with this content; whoever asks for it removes it (``delete_quietly``)."""
    path = private_name(seams.random, owner)
    seams.storage.put_new(path, data, durable=True)
    return path


@contextmanager
def preparing(seams: Seams, owner: str) -> Iterator[Callable[[bytes], str]]:
    """Makes private files as ``prepare``, as often as it is called; all of them go when the block ends.

    For content that is made under the lock, and anew when the section was superseded.
    """
    made: list[str] = []

    def make(data: bytes) -> str:
        made.append(prepare(seams, owner, data))
        return made[-1]

    try:
        yield make
    finally:
        for path in made:
            delete_quietly(seams.storage, path)


@contextmanager
def prepared(seams: Seams, owner: str, data: bytes) -> Iterator[str]:
    """A durable private file for the time of the block: the content of a file about to be published."""
    with preparing(seams, owner) as make:
        yield make(data)


def begin(seams: Seams, owner: str, data: bytes) -> tuple[str, Upload]:
    """As ``prepare``, but not durable before its sink is settled, with others."""
    path = private_name(seams.random, owner)
    sink = seams.storage.upload(path)
    sink.append([data])
    return path, sink


def forget(seams: Seams, private: str) -> None:
    """Remove a private file after its publication, which must not fail for that any more."""
    delete_quietly(seams.storage, private)


def delete_quietly(storage: Storage, path: str) -> None:
    """Remove a private file, now or, if that fails, with a later sweep."""
    try:
        storage.delete(path)
    except OSError:
        return


# -- new files -------------------------------------------------------------------------------------


def create_once(
    storage: Storage, path: str, data: storage_protocol.Content = b"", *, durable: bool = False
) -> bool:
    """A new file, whole; False if somebody made it before."""
    try:
        storage.put_new(path, data, durable=durable)
    except FileExistsError:
        return False
    return True


def put(storage: Storage, private: str, target: str) -> None:
    """Give a private file its place, in one step; the private name stays.

    ``FileExistsError`` if the name is taken, ``FileNotFoundError`` if the private file was removed.
    """
    links(storage).link(private, target)


def is_same(storage: Storage, private: str, target: str) -> bool:
    """Whether both names are there and are names of one file: ``put`` took effect although it failed."""
    return links(storage).same_file(private, target)


def put_once(storage: Storage, private: str, target: str) -> bool:
    """As ``put``; False if somebody made it before."""
    try:
        put(storage, private, target)
    except FileExistsError:
        return False
    return True


def put_whole(
    storage: Storage,
    private: str,
    target: str,
    content: Content,
    *,
    durable: bool,
    wanted: Callable[[], bool],
    marker: str | None = None,
) -> bool:
    """Make a file that somebody may end: private file, a look whether it is wanted, its place.

    ``private``: a name that no other attempt has; it is gone afterwards. ``wanted`` is asked when the private
    file is whole, just before the file appears; ``marker``: an empty file that is made in between, for
    rollbacks. True if the file appeared by this call; False if it is not wanted, or the name is taken:
    whoever makes it, it is the same. Raises ``Swept``, and what writing raises.
    """
    try:
        _fill(storage, private, content, durable)
        if not wanted():
            return False
        if marker is not None:
            create_once(storage, marker)
        return put_once(storage, private, target)
    except FileNotFoundError as error:
        if storage.stat(private) is not None:
            raise
        raise Swept(f"{private} was removed before it became {target}") from error
    finally:
        delete_quietly(storage, private)


def _fill(storage: Storage, private: str, content: Content, durable: bool) -> None:
    if not callable(content):
        storage.put_new(private, content, durable=durable)
        return
    sink = storage.upload(private)
    try:
        content(sink)
    finally:
        storage.settle([sink], [paths.PREPARED], durable=durable)


# -- in the place of another -----------------------------------------------------------------------


def put_over(storage: Storage, private: str, target: str) -> None:
    """Put a private file in the place of what is there, if anything is, in one step."""
    links(storage).rename(private, target)


def replace_guarded(section: Replacing, random: Randomness, owner: str, target: str, data: bytes) -> None:
    """This content in the place of a file's, durable and behind the fence.

    Hadoop's checksum of the old content goes first. ``LeaseLost`` where the lock was taken over; another
    ``OSError`` leaves open whether it took effect.
    """
    storage = section.storage
    private = private_name(random, owner)
    try:
        storage.put_new(private, data, durable=True)
        storage.delete(paths.checksum_file(target))
        section.replace(private, target)
    finally:
        delete_quietly(storage, private)
