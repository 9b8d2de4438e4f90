"""From a path or a URL to a store: the only reader of schemes, and the only maker of stores.

``BACKENDS`` says which scheme is served by which store; a store that is added is one file with a class that
does what ``storage.protocol`` asks for, and one line here. What has no scheme is a path of this machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from mainstem.errors import Invalid, Unsupported
from mainstem.storage.local import LocalStorage
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage

#: what users and engines give: a path, a URL, or what was made of one
Place = str | os.PathLike[str] | Location

# RFC 3986. What stands before a colon is a scheme, unless a slash comes before the colon.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_LOCAL_HOSTS = ("", "localhost")


def _local(location: Location, sync: bool) -> Storage:
    return LocalStorage(location.path, sync=sync)


#: scheme -> what makes its store, given a location and whether to make files durable
BACKENDS: dict[str, Callable[[Location, bool], Storage]] = {"file": _local}


def storage_of(location: Location, *, sync: bool = True) -> Storage:
    """The store in which a table lies. ``sync``: what is asked to be durable is (``hoodie.mainstem.fsync``).

    Raises ``Unsupported`` for a scheme that has no store, ``Invalid`` for a secret that is not set here.
    """
    return _backend(location.scheme, location.base)(location, sync)


def reopens(storage: Any) -> bool:
    """Whether ``storage_of(storage.location)`` gives the same files, here and in other processes."""
    return isinstance(storage, LocalStorage)


def location_of(place: Place, *, absolute: bool = False) -> Location:
    """The location that a path or URL names.

    ``file:/x``, ``file:///x`` and ``/x`` are one; schemes may be written in capitals; characters are taken as
    they are, also ``%``, as Hadoop does. ``absolute``: a relative path is refused, since it would mean
    another folder in another process. Raises ``Invalid`` for what names no place, ``Unsupported`` for a
    scheme or a host that no store serves.
    """
    if isinstance(place, Location):
        return place
    text = os.fspath(place)
    if not isinstance(text, str) or not text or "\0" in text:
        raise Invalid(f"path {text!r}: expected the folder of a table, a path or a URL such as file:///tmp/t")
    scheme, rest = split_scheme(text)
    if scheme is None:
        return _of_path(text, absolute)
    _backend(scheme, text)
    return _of_file_url(rest, text)


def names_place(text: str) -> bool:
    """Whether a text is an absolute path or a URL, and no name of another kind."""
    return text.startswith("/") or split_scheme(text)[0] is not None


def split_scheme(text: str) -> tuple[str | None, str]:
    """The scheme in small letters and what follows its colon; None and the text where there is none."""
    match = _SCHEME.fullmatch(text)
    return (match.group(1).lower(), match.group(2)) if match else (None, text)


def _backend(scheme: str, text: str) -> Callable[[Location, bool], Storage]:
    backend = BACKENDS.get(scheme)
    if backend is None:
        raise Unsupported(
            f"path {text!r} has the scheme {scheme!r}, for which there is no storage: known are"
            f" {', '.join(sorted(BACKENDS))} and paths without a scheme, on a local POSIX file system with"
            f" hard links that all processes see. A local folder of that name is given as './{text}' or as an"
            " absolute path"
        )
    return backend


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
    # POSIX lets a name begin with two slashes mean something else; here nothing does.
    return Location("file", "", "/" + os.path.abspath(path).lstrip("/"))
