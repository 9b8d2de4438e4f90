"""Private files: content that appears only after a last look, or under the lock, is written here first.

(Other files do not need this: ``Storage.put_new`` and ``put`` show a file whole or not at all.)

A private file has a unique name (``private_name``), which begins with its owner: an instant's time, or a
word. It gets its final name in one step:

- ``put``, ``put_once``, ``put_whole``: a new file. If several processes make it at once, the first one's
  stays.
- ``put_over``: replaces the file that is there; ``replace_guarded``: the same behind the fence.
- ``prepared``, ``preparing``: the content of an instant, for ``publish.publisher``.

**Durability.** The content is durable before the file gets its final name (where ``durable`` says so). The
final name is durable once the caller has synced its folder.

**On an object store** private files stay in this process (``storage.private_files``), and a final name is a
put of the content, on the condition that there is no such object. **On HDFS** a private file is renamed to
its final name (``storage.renames``).

**A crash** leaves the private file, which no reader looks at. The process that completes the plan it was made
for removes it (``services.other_attempts``); ``writers.leftovers`` removes old ones.

**A process that was stopped and wakes up** may find its private file removed, and then cannot give it a final
name (``Swept``). So removing private files ends every attempt that is still under way.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from mainstem.storage import maps, paths
from mainstem.storage import protocol as storage_protocol
from mainstem.storage.links import has_links, links
from mainstem.storage.protocol import Storage, Upload
from mainstem.storage.renames import has_renames, move_new, move_over, was_moved
from mainstem.storage.swaps import has_swaps, swappable
from mainstem.truetime.seams import Randomness, Seams

#: what a private file holds: bytes, or what fills it
Content = storage_protocol.Content | Callable[[Upload], object]


class Swept(FileNotFoundError):
    """The private file was removed before it got its final name: another process ended its plan."""


class Replacing(Protocol):
    """What ``replace_guarded`` needs of ``publisher.Guarded``."""

    @property
    def storage(self) -> Storage: ...

    def replace(self, prepared: str, target: str) -> None: ...


# -- private files ---------------------------------------------------------------------------------


def private_name(random: Randomness, owner: str) -> str:
    """A new, unique path of a private file. ``owner``: an instant's time, or a word for what it is."""
    return paths.prepared(owner, f"{random.getrandbits(64):016x}")


def prepare(seams: Seams, owner: str, data: bytes) -> str:
    """Write a durable private file with this content. The caller removes it (``delete_quietly``)."""
    path = private_name(seams.random, owner)
    seams.storage.put_new(path, data, durable=True)
    return path


@contextmanager
def preparing(seams: Seams, owner: str) -> Iterator[Callable[[bytes], str]]:
    """A function that makes private files as ``prepare`` does; all are removed when the block ends.

    For content that is made under the lock, and made again if the section is superseded.
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
    """A durable private file that is removed when the block ends: the content of a file to publish."""
    with preparing(seams, owner) as make:
        yield make(data)


def begin(seams: Seams, owner: str, data: bytes) -> tuple[str, Upload]:
    """As ``prepare``, but durable only once the caller settles the sink, together with others."""
    path = private_name(seams.random, owner)
    sink = seams.storage.upload(path)
    sink.append([data])
    return path, sink


def delete_quietly(storage: Storage, path: str) -> None:
    """Remove a private file. If that fails, a later sweep removes it: no publication fails because of it."""
    try:
        storage.delete(path)
    except OSError:
        return


# -- new files -------------------------------------------------------------------------------------


def create_once(
    storage: Storage, path: str, data: storage_protocol.Content = b"", *, durable: bool = False
) -> bool:
    """Create a file whole; False if it exists already."""
    try:
        storage.put_new(path, data, durable=durable)
    except FileExistsError:
        return False
    return True


def put(storage: Storage, private: str, target: str) -> None:
    """Give a private file its final name in one step; the private name may stay.

    ``FileExistsError`` if the name is taken, ``FileNotFoundError`` if the private file was removed.
    """
    if has_links(storage):
        links(storage).link(private, target)
    elif has_renames(storage):
        move_new(storage, private, target)
    else:
        storage.put_new(target, [maps.view(storage, private)], durable=True)


def is_same(storage: Storage, private: str, target: str) -> bool:
    """Whether both names exist and name one file: then a ``put`` that failed took effect after all."""
    if has_links(storage):
        return links(storage).same_file(private, target)
    if has_renames(storage) and was_moved(storage, private, target):
        return True
    try:
        return maps.view(storage, private) == maps.view(storage, target)
    except FileNotFoundError:
        return False


def put_once(storage: Storage, private: str, target: str) -> bool:
    """As ``put``; False if the target exists already."""
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
    """Make a file that another process may call off: write it privately, ask ``wanted``, give it its name.

    ``private``: a name that no other attempt has; removed afterwards. ``wanted`` is called when the private
    file is whole, just before the file appears. ``marker``: an empty file that is created in between, for
    rollbacks. Returns True if this call made the file appear; False if it is not wanted, or if the name is
    taken: every attempt makes the same content. Raises ``Swept``, and what writing raises.
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
    """Give a private file its final name in one step, replacing a file that is there; the private name goes.
    """
    if has_links(storage):
        links(storage).rename(private, target)
        return
    if has_renames(storage):
        move_over(storage, private, target)
        return
    storage.put(target, [maps.view(storage, private)], durable=True)
    delete_quietly(storage, private)


def put_anew(storage: Storage, private: str, target: str) -> None:
    """As ``put``, also where an earlier attempt of this process has put other content there.

    Call it only where nobody else makes this file. On a store the old content is swapped: a removal that
    arrives late would take the new one away.
    """
    if put_once(storage, private, target) or is_same(storage, private, target):
        return
    if not has_swaps(storage):
        storage.delete(target)
        put(storage, private, target)
        return
    found = swappable(storage).read_tagged(target, max_bytes=sys.maxsize)
    tag = None if found is None else found[1]
    if swappable(storage).swap(target, [maps.view(storage, private)], tag) is None:
        raise FileExistsError(errno.EEXIST, "it changed while it was replaced", target)


def replace_guarded(section: Replacing, random: Randomness, owner: str, target: str, data: bytes) -> None:
    """Replace a file's content, durably and behind the fence.

    Deletes Hadoop's checksum of the old content first. Raises ``LeaseLost`` if another section took over;
    after any other ``OSError`` the replacement may or may not have taken effect.
    """
    storage = section.storage
    private = private_name(random, owner)
    try:
        storage.put_new(private, data, durable=True)
        if has_links(storage):  # Hadoop keeps checksums on local disks only
            storage.delete(paths.checksum_file(target))
        section.replace(private, target)
    finally:
        delete_quietly(storage, private)
