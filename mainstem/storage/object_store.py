"""Storage in an object store (S3, Google Cloud Storage, Azure Blob), by the library obstore.

Every object is written whole by one request, or not at all, and is durable once the call returns; a folder
is what its objects' names say. Beyond ``Storage`` it offers ``storage.swaps``. No ``storage.links``, no
``storage.folders``, no ``storage.maps``.

**A refused condition may be one's own success.** obstore repeats a request whose reply was lost. If the first
try of a conditional put took effect, the second is refused, because of the object that the first one made. So
every put carries a nonce as metadata of the object, and a refusal counts as a refusal only after the nonce of
the object that is there was compared. Comparing contents would not do: many of Hudi's files that claim
something exclusively are empty.

**An ``OSError`` of a write means that its outcome is unknown**: the object may be there, and may even appear
later, when a request that was given up arrives at the store after all.

obstore's threads do not survive ``fork``: in a forked child of a process that used a store every call would
hang, so each refuses.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.forks import LibraryThreads
from mainstem.limits import (
    KEPT_END_BYTES,
    MIB,
    STORE_PUT_BYTES_MAX,
    STORE_UPLOAD_BYTES_MAX,
    SWAPPED_BYTES_MAX,
)
from mainstem.options.stores import KEPT_BYTES
from mainstem.storage import paths
from mainstem.storage.kept_reads import End, KeptReads
from mainstem.storage.location import Location
from mainstem.storage.one_by_one import create_each
from mainstem.storage.protocol import Content, FileInfo, Upload
from mainstem.storage.side_by_side import side_by_side
from mainstem.storage.store_errors import said
from mainstem.storage.store_options import KINDS, MEMORY, S3, attributes
from mainstem.storage.swaps import Tag
from mainstem.telemetry import steps

if TYPE_CHECKING:
    import pyarrow as pa

    from mainstem.storage.local_cache import LocalCache
    from mainstem.storage.range_file import Ranges

Item = TypeVar("Item")
Result = TypeVar("Result")
#: name of the metadata that tells one's own put; letters only, as Azure takes names of variables
NONCE = "mainstemnonce"
# A busy store answers 409 to a conditional write that met another one; a renewal may meet another renewal.
_TRIES_MAX = 5
# How often in all a request is made whose reply breaks off, and how obstore says that one did.
_REPLIES_MAX = 4
_BROKEN_OFF = "response body error"
_REMOVED_AT_ONCE = 1000
# What is longer than one of these is fetched in parts.
_PART_BYTES = 8 * MIB
_PARTS_AT_ONCE = 4
# S3 takes 10,000 parts.
_PUT_PART_BYTES = 16 * MIB
_NO_BUCKET = re.compile(r"<Code>(NoSuchBucket|ContainerNotFound)</Code>|The specified bucket does not exist")

_threads = LibraryThreads()


class StoreUpload:
    """A file that grows in memory; ``close`` puts it."""

    def __init__(self, storage: ObjectStorage, path: str) -> None:
        self._storage = storage
        self._path = path
        # ``close`` empties it in one step, as ``LocalUpload`` does.
        self._contents = [bytearray()]
        self.size = 0

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        if not self._contents:
            raise ValueError("the file was closed")
        total = self.size + sum(memoryview(part).nbytes for part in buffers)
        if total > STORE_UPLOAD_BYTES_MAX:
            raise OSError(
                errno.EFBIG,
                f"a file for an object store is held in memory, at most {STORE_UPLOAD_BYTES_MAX} bytes",
                self._path,
            )
        for part in buffers:  # the caller may use the buffers again
            self._contents[0] += memoryview(part).cast("B")
        self.size = total

    def forget(self) -> None:
        """Drop the content: nothing is put (``storage.protocol.drop``)."""
        self._contents.clear()

    def close(self, *, durable: bool) -> None:
        try:
            content = self._contents.pop()
        except IndexError:
            return
        self._storage.put_new(self._path, memoryview(content), durable=durable)


class ObjectStorage:
    """``Storage`` below one prefix of a bucket (Azure: of a container).

    ``store``: a store of obstore's; ``width``: the number of concurrent requests; ``suffix``: whether the
    store serves the last bytes of an object without being told its size (Azure does not). ``kept_bytes``: how
    much of files that never change again is kept in memory. ``cache``: where copies of large files are kept
    on this machine (``storage.local_cache``). ``calls``: the functions that make the requests, the module
    ``obstore``.

    Times are the store's, in whole seconds where ``stat`` asks for one object: HTTP knows no finer ones.
    """

    links = False
    swaps = True

    def __init__(
        self,
        store: Any,
        location: Location,
        *,
        width: int = 16,
        suffix: bool = True,
        kept_bytes: int = KEPT_BYTES.default,
        cache: LocalCache | None = None,
        calls: Any = None,
    ) -> None:
        if calls is None:
            import obstore

            calls = obstore
        self.base = location.base
        self._store = store
        self._location = location
        self._width = width
        self._suffix = suffix
        self._calls = calls
        self._attributes = attributes(location)
        self._takes_parts = KINDS.get(location.scheme) in (S3, MEMORY)
        #: whether each request is a round trip (``storage.unwaited``)
        self.remote = KINDS.get(location.scheme, MEMORY) != MEMORY
        self._kept = KeptReads(kept_bytes)
        self.cache = cache
        self._prefix = location.path.strip("/")

    @property
    def location(self) -> Location:
        return self._location

    @property
    def width(self) -> int:
        return self._width

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}".strip("/") if self._prefix else path

    # -- reading -----------------------------------------------------------------------------------

    def read(self, path: str, *, max_bytes: int) -> bytes:
        with self._requesting("GET", path):
            return self._whole(self._calls.get(self._store, self._key(path)), path, max_bytes)

    def _whole(self, found: Any, path: str, max_bytes: int) -> bytes:
        size = found.meta["size"]
        if size > max_bytes:
            raise CorruptTable(
                f"file of {size} bytes, at most {max_bytes} expected", path=path, table=self.base
            )
        return bytes(found.bytes())

    def view(self, path: str) -> memoryview:
        """Whole content of a large file (``storage.maps``): long ones in parts, at the same time."""
        first, size, same = self._beginning(path)
        if size <= _PART_BYTES:
            return first()
        content = _room(size)
        self._fill(path, content, first, same)
        return content.toreadonly()

    def private(self, path: str, size: int, *, spill: bool) -> memoryview:
        """A copy of the first bytes (``storage.maps``); in a nameless temporary file to ``spill``."""
        first, found, same = self._beginning(path)
        size = min(size, found)
        if spill and size:
            with TemporaryFile(prefix="mainstem-", buffering=0) as file:
                file.truncate(size)
                content = memoryview(mmap.mmap(file.fileno(), size))
        else:
            content = _room(size)
        self._fill(path, content, first, same)
        return content.toreadonly()

    def _beginning(self, path: str) -> tuple[Callable[[], memoryview], int, str | None]:
        """What waits for the file's first part, the file's size, and its ETag."""
        try:
            with self._requesting("GET", path):
                options = {"range": (0, _PART_BYTES)}
                found = self._calls.get(self._store, self._key(path), options=options)
        except FileNotFoundError:
            raise
        except OSError:
            if self._size(path):  # stores answer by an error that an empty file has no such bytes
                raise
            return lambda: memoryview(b""), 0, None

        def first() -> memoryview:
            with self._requesting("GET", path):
                return memoryview(found.bytes())

        return first, int(found.meta["size"]), found.meta["e_tag"]

    def _fill(
        self, path: str, content: memoryview, first: Callable[[], memoryview], same: str | None
    ) -> None:
        """Fetch the object's beginning into ``content``, in parts, as long as its ETag is the ``same``."""

        def part(start: int) -> memoryview:
            if not start:
                return first()[: len(content)]
            with self._requesting("GET", path):
                # Never parts of two contents.
                options = {"range": (start, min(start + _PART_BYTES, len(content))), "if_match": same}
                found = self._calls.get(self._store, self._key(path), options=options)
                return memoryview(found.bytes())

        def fetch(start: int) -> None:
            found = part(start)
            # NumPy copies without holding up the other threads.
            room = content[start : start + len(found)]
            np.copyto(np.frombuffer(room, np.uint8), np.frombuffer(found, np.uint8))

        self._some_at_once(fetch, range(0, len(content), _PART_BYTES))

    def _some_at_once(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """As ``side_by_side``, with few threads: several of its threads may call this."""
        return side_by_side(self, work, items, width=_PARTS_AT_ONCE)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if length <= 0:
            self._size(path)  # raises if there is no such object
            return b""
        try:
            with self._requesting("GET", path):
                part = self._calls.get_range(self._store, self._key(path), start=offset, length=length)
        except FileNotFoundError:
            raise
        except OSError:
            if self._size(path) <= offset:  # no bytes there, which stores answer by an error
                return b""
            raise
        return bytes(part)

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """The bytes of (offset, length > 0) each: a request for each, some of them at the same time."""

        def part(one: tuple[int, int]) -> memoryview:
            with self._requesting("GET", path):
                found = self._calls.get_range(self._store, self._key(path), start=one[0], length=one[1])
                return memoryview(found)

        return self._some_at_once(part, ranges)

    def read_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        """The last ``length`` bytes, fewer if the object is smaller, and the object's size."""
        if self._suffix:
            try:
                with self._requesting("GET", path):
                    options = {"range": {"suffix": length}}
                    found = self._calls.get(self._store, self._key(path), options=options)
                    return memoryview(found.bytes()), int(found.meta["size"])
            except FileNotFoundError:
                raise
            except OSError:  # an empty object has no last bytes
                if self._size(path):
                    raise
                return memoryview(b""), 0
        size = self._size(path)
        start = max(0, size - length)
        return memoryview(self.read_range(path, start, size - start)), size

    def open_input(self, path: str) -> pa.NativeFile:
        from mainstem.storage.range_file import open_ranges

        return open_ranges(self, path)

    # -- files that never change again (``storage.final_files``) -------------------------------------

    def read_final(self, path: str, *, max_bytes: int) -> bytes:
        end = self._kept.get((path, None))
        if end is not None and end.is_whole and end.size <= max_bytes:
            return bytes(end.data)
        data = self.read(path, max_bytes=max_bytes)
        self._keep_whole(path, None, data)
        return data

    def open_final(self, path: str, sign: object) -> pa.NativeFile:
        from mainstem.storage.range_file import open_ranges

        return open_ranges(self, path, self._end(path, sign))

    def view_final(self, path: str, sign: object) -> memoryview:
        end = self._kept.get((path, sign))
        if end is not None and end.is_whole:
            return end.data
        data = self.view(path)
        self._keep_whole(path, sign, data)
        return data

    def final_ranges(self, path: str, sign: object) -> Ranges:
        from mainstem.storage.range_file import Ranges

        return Ranges(self, path, self._end(path, sign))

    def forget_final(self) -> None:
        self._kept.forget()

    def _end(self, path: str, sign: object) -> End:
        """The file's end, kept if it was fetched before."""
        end = self._kept.get((path, sign))
        if end is None:
            end = End(*self.read_tail(path, KEPT_END_BYTES))
            self._kept.put((path, sign), end)
        return end

    def _keep_whole(self, path: str, sign: object, data: bytes | memoryview) -> None:
        if len(data) <= KEPT_END_BYTES:
            self._kept.put((path, sign), End(memoryview(data), len(data)))

    # -- listings -----------------------------------------------------------------------------------

    def names(self, folder: str, *, prefix: str = "", after: str = "") -> list[str]:
        return [entry.name for entry in self.entries(folder, prefix=prefix, after=after)]

    def entries(self, folder: str, *, prefix: str = "", after: str = "") -> list[FileInfo]:
        key = self._key(folder)
        found = self._answer(
            "LIST", folder, lambda: self._calls.list_with_delimiter(self._store, key or None)
        )
        start = len(key) + 1 if key else 0
        # Not every store honours where a listing is to begin, and obstore asks for that only without a
        # delimiter: names are chosen here.
        listed: dict[str, FileInfo] = {}
        for one in found["objects"]:
            name = one["path"][start:]
            if name:  # "": the folder's own marker, which Hadoop makes
                listed[name] = _info(name, one)
        for path in found["common_prefixes"]:
            name = path[start:]
            listed.setdefault(name, FileInfo(name, 0, 0, True))
        return [one for name, one in listed.items() if name > after and name.startswith(prefix)]

    def stat(self, path: str) -> FileInfo | None:
        name = path.rpartition("/")[2]
        try:
            if path:
                return _info(name, self._head(path))
        except FileNotFoundError:
            pass
        key = self._key(path) or None

        def first() -> object:
            return next(self._calls.list(self._store, key, chunk_size=1), None)

        below = self._answer("LIST", path, first)
        return FileInfo(name, 0, 0, True) if below else None

    def file_info(self, path: str) -> FileInfo | None:
        """``stat`` of what can only be a file (``storage.files``): no listing looks for a folder."""
        try:
            return _info(path.rpartition("/")[2], self._head(path))
        except FileNotFoundError:
            return None

    def _head(self, path: str) -> Any:
        with self._requesting("HEAD", path):
            return self._calls.head(self._store, self._key(path))

    def _size(self, path: str) -> int:
        return int(self._head(path)["size"])

    def read_tagged(self, path: str, *, max_bytes: int = SWAPPED_BYTES_MAX) -> tuple[bytes, Tag] | None:
        try:
            with self._requesting("GET", path):
                found = self._calls.get(self._store, self._key(path))
                return self._whole(found, path, max_bytes), _tag(found.meta)
        except FileNotFoundError:
            return None

    # -- writing -----------------------------------------------------------------------------------

    def put_new(self, path: str, data: Content | memoryview, *, durable: bool) -> None:
        if self.swap(path, data, None) is None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    def put(self, path: str, data: Content, *, durable: bool) -> None:
        self._put(path, _joined(data), "overwrite", secrets.token_hex(16))

    def upload(self, path: str) -> StoreUpload:
        return StoreUpload(self, path)

    def swap(self, path: str, data: Content | memoryview, tag: Tag | None) -> Tag | None:
        content, nonce = _joined(data), secrets.token_hex(16)
        if tag is None and len(content) > STORE_PUT_BYTES_MAX and self._takes_parts:
            return self._put_long(path, content, nonce)
        for _ in range(_TRIES_MAX):
            try:
                return self._put(path, content, "create" if tag is None else _condition(tag), nonce)
            except _Refused as refused:
                found = self._nonce_and_tag(path)
                if found is not None and found[0] == nonce:
                    return found[1]  # the reply to a first try was lost
                if refused.again and (None if found is None else found[1]) == tag:
                    continue
                if found is None and tag is None:
                    # Whose object it was can no longer be seen.
                    raise OSError(
                        errno.EIO, f"{self._full(path)} was there already, and is gone now", path
                    ) from None
                return None
        raise OSError(errno.EBUSY, f"{self._full(path)}: too many conditional writes at once", path)

    def swap_once(self, path: str, data: Content | memoryview, tag: Tag | None) -> Tag | None:
        """As ``swap``, for content that tells its writer: after None the caller reads it, so nothing is
        looked at here, and the put may have taken effect."""
        try:
            mode = "create" if tag is None else _condition(tag)
            return self._put(path, _joined(data), mode, secrets.token_hex(16))
        except _Refused:
            return None

    def renew(self, path: str) -> None:
        """Write the content again, if the object is still there."""
        for _ in range(_TRIES_MAX):
            found = self.read_tagged(path)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if self.swap(path, *found) is not None:
                return
        raise OSError(errno.EBUSY, f"{self._full(path)} changes all the time", path)

    def delete(self, path: str) -> bool:
        try:
            self._answer("DELETE", path, lambda: self._calls.delete(self._store, self._key(path)))
        except FileNotFoundError:
            return False
        return True

    def create_all(self, paths: Iterable[str]) -> None:
        create_each(self, paths)

    def delete_all(self, paths: Iterable[str]) -> None:
        self._delete_keys("", [self._key(path) for path in paths])

    def delete_tree(self, path: str) -> None:
        key = self._key(path)
        listed = self._answer("LIST", path, lambda: self._calls.list(self._store, key or None).collect())
        self._delete_keys(path, [one["path"] for one in listed])

    def _delete_keys(self, path: str, keys: list[str]) -> None:
        for start in range(0, len(keys), _REMOVED_AT_ONCE):
            self._delete_at_once(path, keys[start : start + _REMOVED_AT_ONCE])

    def _delete_at_once(self, path: str, keys: list[str]) -> None:
        try:
            self._answer("DELETE", path, lambda: self._calls.delete(self._store, keys))
            return
        except FileNotFoundError:  # somebody else deletes them too, which some stores call an error
            pass
        for key in keys:
            try:
                with self._requesting("DELETE", path):
                    self._calls.delete(self._store, key)
            except FileNotFoundError:
                continue

    def settle(self, uploads: Sequence[Upload], folders: Iterable[str] = (), *, durable: bool) -> None:
        def closed(upload: Upload) -> Exception | None:
            try:
                upload.close(durable=durable)
            except Exception as error:
                return error
            return None

        for failure in side_by_side(self, closed, uploads):
            if failure is not None:
                raise failure

    def nonce_at(self, path: str) -> str | None:
        """The nonce that the object's last put carried; None without one and without an object."""
        found = self._nonce_and_tag(path)
        return None if found is None else found[0]

    # -- requests ----------------------------------------------------------------------------------

    def _put(self, path: str, content: bytes | memoryview, mode: Any, nonce: str) -> Tag:
        with self._requesting("PUT", path):
            made = self._calls.put(
                self._store,
                self._key(path),
                content,
                attributes={NONCE: nonce, **self._attributes},
                mode=mode,
                use_multipart=False,
            )
        return _tag(made)

    def _put_long(self, path: str, content: bytes | memoryview, nonce: str) -> Tag | None:
        """Put a long object in parts; None if the name is taken by another content.

        obstore has no condition for parts: they are put under a name of their own, which is then copied by
        the store to the name that must be free. A process that dies between leaves the object in
        ``paths.LONG``.
        """
        own = f"{paths.LONG}/{nonce}"
        try:
            with self._requesting("PUT", path):
                self._calls.put(
                    self._store,
                    self._key(own),
                    content,
                    attributes=self._attributes,
                    use_multipart=True,
                    chunk_size=_PUT_PART_BYTES,
                    max_concurrency=_PARTS_AT_ONCE,
                )
            try:
                with self._requesting("PUT", path):
                    self._calls.copy(self._store, self._key(own), self._key(path), overwrite=False)
            except FileNotFoundError:
                raise OSError(errno.EIO, f"what was put for {self._full(path)} was swept", path) from None
            except _Refused:
                # The reply to a first try may be lost: S3's ETag of one part tells the content.
                found = self._nonce_and_tag(path)
                return found[1] if found and found[1][0] == _tag_of_one_part(content) else None
            found = self._nonce_and_tag(path)
            if found is None:
                raise OSError(errno.EIO, f"{self._full(path)} was put, and is gone", path)
            return found[1]
        finally:
            with suppress(OSError):
                self.delete(own)

    def _nonce_and_tag(self, path: str) -> tuple[str | None, Tag] | None:
        try:
            with self._requesting("HEAD", path):
                found = self._calls.get(self._store, self._key(path), options={"head": True})
                return found.attributes.get(NONCE), _tag(found.meta)
        except FileNotFoundError:
            return None

    def _full(self, path: str) -> str:
        return f"{self.base}/{path}" if path else self.base

    def _answer(self, method: str, path: str, ask: Callable[[], Result]) -> Result:
        """What ``ask`` gives. It is asked again if the reply broke off in the middle, which obstore repeats
        for files only. A listing changes nothing, and what is removed twice is gone."""
        for _ in range(_REPLIES_MAX - 1):
            try:
                with self._requesting(method, path):
                    return ask()
            except OSError as error:
                if _BROKEN_OFF not in str(error):
                    raise
        with self._requesting(method, path):
            return ask()

    @contextmanager
    def _requesting(self, method: str, path: str) -> Iterator[None]:
        """Turn obstore's errors into those of ``Storage``; nothing of a request's signature stays in them."""
        if not _threads.usable():
            raise Unsupported(
                "this process was forked from one that had used an object store, whose threads it does not"
                " have: start processes by 'spawn' (multiprocessing.set_start_method), or fork before the"
                " first use",
                table=self.base,
            )
        from obstore.exceptions import (
            AlreadyExistsError,
            BaseError,
            PermissionDeniedError,
            PreconditionError,
            UnauthenticatedError,
        )

        where = f"{method} {self._full(path)}"
        try:
            with steps.timed("storage.request", self.base, method=method):
                yield
        except (AlreadyExistsError, PreconditionError):
            raise _Refused(again=False) from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise PermissionError(errno.EACCES, f"{where}: {said(error, method)}", path) from None
        except FileNotFoundError as error:
            self._check_bucket(error)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        except BaseError as error:
            self._check_bucket(error)
            text = str(error)
            if method == "LIST" and "404 Not Found" in text:  # an empty folder is no error, anywhere
                raise self._no_bucket() from None
            if method == "PUT" and "409 Conflict" in text:
                raise _Refused(again=True) from None
            if "403 Forbidden" in text or "code: AccessDenied" in text:  # of one key of a bulk delete
                raise PermissionError(errno.EACCES, f"{where}: {said(error, method)}", path) from None
            raise OSError(errno.EIO, f"{where}: {said(error, method)}", path) from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # pyo3's, of a fault in the library
                raise
            raise OSError(errno.EIO, f"{where}: obstore failed: {said(error, method)}", path) from None

    def _check_bucket(self, error: Exception) -> None:
        if _NO_BUCKET.search(str(error)):
            raise self._no_bucket() from None

    def _no_bucket(self) -> Invalid:
        return Invalid(
            f"there is no bucket {self._location.authority!r} where the request went: create it, or check the"
            " name, the endpoint and the region",
            table=self.base,
        )


class _Refused(OSError):
    """A condition did not hold; ``again``: or the store was busy with another conditional write."""

    def __init__(self, *, again: bool) -> None:
        super().__init__(errno.EBUSY, "the store refused a condition: the object changed, or is changing")
        self.again = again


def _room(size: int) -> memoryview:
    """Memory that nobody has filled with zeros before it is written."""
    return memoryview(np.empty(size, np.uint8))


def _joined(data: Content | memoryview) -> bytes | memoryview:
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)):
        return memoryview(data).cast("B")
    if len(data) == 1:
        return _joined(data[0])
    return b"".join(data)


def _tag_of_one_part(content: bytes | memoryview) -> str:
    """The ETag that S3 gives an object of one part."""
    digest = hashlib.md5(content, usedforsecurity=False).digest()
    return f'"{hashlib.md5(digest, usedforsecurity=False).hexdigest()}-1"'


def _condition(tag: Tag) -> dict[str, str]:
    named = zip(("e_tag", "version"), tag, strict=True)
    return {name: value for name, value in named if value is not None}


def _tag(meta: Any) -> Tag:
    return meta["e_tag"], meta["version"]


def _info(name: str, meta: Any) -> FileInfo:
    return FileInfo(name, meta["size"], int(meta["last_modified"].timestamp() * 1000), False)
