"""Turns a path or URL into a store: the only module that reads schemes and creates stores.

``BACKENDS`` maps each scheme to its store. To add a store, write one module with a class that implements
``storage.protocol``, and add one line here. Text without a scheme is a path on this machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from mainstem.errors import Invalid, Unsupported
from mainstem.storage import hdfs_options, store_options
from mainstem.storage.local import LocalStorage
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage

#: what users and engines pass in: a path, a URL, or a ``Location`` made from one
Place = str | os.PathLike[str] | Location

# RFC 3986: the text before the first colon is a scheme, unless it contains a slash.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_LOCAL_HOSTS = ("", "localhost")
_NO_KEY = re.compile(r"[\x00-\x1f\x7f\\]")
# All that buckets, containers and accounts may be called by; "$root" is a container.
_AUTHORITY = re.compile(r"[\w.$-]+(@[\w.-]+)?", re.ASCII)
_PASSWORD = re.compile(r"//[^/]*:[^/]*@")
_SIGNATURE = re.compile(
    r"[?&](sig|signature|x-(amz|goog)-(signature|credential|security-token))=", re.IGNORECASE
)
_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


def _local(location: Location, sync: bool) -> Storage:
    return LocalStorage(location.path, sync=sync)


def _object_store(location: Location, sync: bool) -> Storage:
    store = store_options.open_store(location)
    from mainstem.storage.object_store import ObjectStorage
    from mainstem.storage.private_files import PrivateFiles

    real = ObjectStorage(
        store,
        location,
        width=store_options.width(location),
        suffix=store_options.serves_suffixes(location),
        kept_bytes=store_options.kept_bytes(location),
        cache=store_options.cache(location),
    )
    return PrivateFiles(real)


def _hdfs(location: Location, sync: bool) -> Storage:
    client = hdfs_options.open_client(location)
    from mainstem.storage.hdfs import HdfsStorage

    return HdfsStorage(client, location, sync=sync)


#: scheme -> function that makes its store from a location and ``sync`` (whether files are made durable)
BACKENDS: dict[str, Callable[[Location, bool], Storage]] = {
    "file": _local, hdfs_options.SCHEME: _hdfs, **dict.fromkeys(store_options.KINDS, _object_store)
}  # fmt: skip


def storage_of(location: Location, *, sync: bool = True) -> Storage:
    """The store that holds a table. ``sync``: honour requests for durability (``hoodie.mainstem.fsync``).

    Raises ``Unsupported`` for a scheme without a store, ``Invalid`` for a secret that this process lacks.
    """
    return _backend(location.scheme, location.base)(location, sync)


def reopens(storage: Any) -> bool:
    """Whether ``storage_of(storage.location)`` opens the same files, here and in other processes."""
    if isinstance(storage, LocalStorage):
        return True
    from mainstem.storage.private_files import PrivateFiles

    if isinstance(storage, PrivateFiles):
        return storage.location.scheme != store_options.MEMORY
    from mainstem.storage.hdfs import HdfsStorage

    return isinstance(storage, HdfsStorage)


def is_local(location: Location) -> bool:
    """Whether the location is a folder of this machine."""
    return location.scheme == "file"


def location_of(
    place: Place,
    *,
    absolute: bool = False,
    options: Mapping[str, str] = _NO_OPTIONS,
    below: Mapping[str, str] = _NO_OPTIONS,
) -> Location:
    """The location that a path or URL names.

    ``file:/x``, ``file:///x`` and ``/x`` are the same; schemes are case-insensitive; characters are taken
    literally, even ``%``, as in Hadoop. ``absolute``: refuse a relative path, which would mean a different
    folder in another process. ``options``: those of stores (``store_options.split``); a local path has none.
    ``below``: options that count where neither ``options`` nor a ``Location`` say anything.
    Raises ``Invalid`` for text that names no place and for wrong options, ``Unsupported`` for a scheme or a
    host that no store serves.
    """
    location = place if isinstance(place, Location) else _parsed(place, absolute)
    store_options.check_names(options)
    if location.scheme == hdfs_options.SCHEME:
        of_hdfs = {**below, **dict(location.options), **options}
        return replace(location, options=hdfs_options.kept(of_hdfs))
    options = {name: text for name, text in options.items() if not hdfs_options.is_of_hdfs(name)}
    if not (options or below) or location.scheme not in store_options.KINDS:
        return location
    known = store_options.settled(location, store_options.given_again(location), below)
    kept = store_options.settled(location, options, store_options.given_again(_keeping(location, known)))
    return _keeping(location, kept)


def _keeping(location: Location, kept: store_options.Settled) -> Location:
    return replace(location, options=kept.options, secrets=kept.variables, texts=kept.texts)


def _parsed(place: str | os.PathLike[str], absolute: bool) -> Location:
    text = os.fspath(place)
    if not isinstance(text, str) or not text or "\0" in text:
        raise Invalid(f"path {text!r}: expected the folder of a table, a path or a URL such as file:///tmp/t")
    scheme, rest = split_scheme(text)
    if scheme is None:
        return _of_path(text, absolute)
    _check_no_credentials(scheme, rest)
    if scheme in store_options.KINDS:
        return _of_store_url(scheme, rest)
    if scheme == hdfs_options.SCHEME:
        return _of_hdfs_url(rest, text)
    _backend(scheme, text)
    return _of_file_url(rest, text)


def _check_no_credentials(scheme: str, rest: str) -> None:
    """Raises ``Invalid``, which does not repeat them."""
    azure = store_options.KINDS.get(scheme) == store_options.AZURE
    at_sign = scheme in store_options.KINDS and not azure and "@" in rest[2:].partition("/")[0]
    if rest.startswith("//") and (at_sign or _PASSWORD.match(rest)):
        held = "...@BUCKET holds credentials" if at_sign else "... holds a password"
    elif scheme != "file" and _SIGNATURE.search(rest):
        held = "...?... holds a signature"
    else:
        return
    raise Invalid(
        f"a URL {scheme}://{held}, which would end in logs and plans: give credentials by the environment or"
        " as options"
    )


def names_place(text: str) -> bool:
    """Whether a text is an absolute path or a URL rather than some other kind of name."""
    return text.startswith("/") or split_scheme(text)[0] is not None


def split_scheme(text: str) -> tuple[str | None, str]:
    """The scheme in lower case and the text after its colon; None and the whole text without a scheme."""
    match = _SCHEME.fullmatch(text)
    return (match.group(1).lower(), match.group(2)) if match else (None, text)


def _backend(scheme: str, text: str) -> Callable[[Location, bool], Storage]:
    backend = BACKENDS.get(scheme)
    if backend is None:
        raise Unsupported(
            f"path {text!r} has the scheme {scheme!r}, for which there is no storage: known are"
            f" {', '.join(BACKENDS)} and paths without a scheme. A local folder of that name is given as"
            f" './{text}' or as an absolute path"
        )
    return backend


def _of_store_url(scheme: str, rest: str) -> Location:
    """``//BUCKET/PATH``; for Azure ``//CONTAINER@ACCOUNT.dfs.core.windows.net/PATH``, or as the others."""
    authority, _, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", "")
    azure = store_options.KINDS[scheme] == store_options.AZURE
    if not authority or authority.startswith("@"):
        raise Invalid(
            f"path {scheme + ':' + rest!r} names no bucket: expected {scheme}://BUCKET/PATH. A local folder"
            f" of that name is given as './{scheme}:{rest}' or as an absolute path"
        )
    if scheme != store_options.MEMORY and not _AUTHORITY.fullmatch(authority):
        raise Invalid(
            f"path {scheme + ':' + rest!r}: {authority!r} is no name of a bucket"
            f"{' or container' if azure else ''}: expected letters, digits, '.', '-' and '_'"
        )
    parts = [part for part in path.split("/") if part]
    if _NO_KEY.search(rest) or any(part in (".", "..") for part in parts):
        raise Invalid(f"path {scheme + ':' + rest!r}: expected no '.', no '..' and no control characters")
    return Location(scheme, authority, "".join(f"/{part}" for part in parts))


def _of_hdfs_url(rest: str, text: str) -> Location:
    """``//HOST:PORT/PATH``, ``//NAMESERVICE/PATH``, or ``///PATH`` where ``fs.defaultFS`` says the rest."""
    authority, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", rest[:1], rest[1:])
    parts = [part for part in path.split("/") if part]
    if slash != "/" or "@" in authority:
        raise Invalid(
            f"path {text!r}: expected hdfs://HOST:PORT/PATH, hdfs://NAMESERVICE/PATH or hdfs:///PATH; the"
            " user is that of the Kerberos ticket, or HADOOP_USER_NAME"
        )
    if _NO_KEY.search(rest) or any(part in (".", "..") or ":" in part for part in parts):
        raise Invalid(f"path {text!r}: expected no '.', no '..', no ':' and no control characters")
    return Location(hdfs_options.SCHEME, authority, "".join(f"/{part}" for part in parts))


def _of_file_url(rest: str, text: str) -> Location:
    host, path = "", rest
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        path = slash + path
    if host.lower() not in _LOCAL_HOSTS:
        raise Unsupported(
            f"path {text!r} names the host {host!r}: expected a folder of this machine, file://{path} or"
            f" {path}; mount what lies elsewhere"
        )
    if not path.startswith("/"):
        raise Invalid(f"path {text!r} is relative: expected an absolute path, such as file:///tmp/t")
    return _of_path(path, absolute=True)


def _of_path(path: str, absolute: bool) -> Location:
    if absolute and not path.startswith("/"):
        raise Invalid(
            f"path {path!r} is relative; expected an absolute path: driver and workers have different working"
            " folders"
        )
    # POSIX allows a special meaning for two leading slashes; here they mean the same as one.
    return Location("file", "", "/" + os.path.abspath(path).lstrip("/"))
