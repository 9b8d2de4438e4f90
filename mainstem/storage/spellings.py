"""One place has several spellings: ``s3``, ``s3a`` and ``s3n``, the schemes and hosts of Azure, ``/x`` and
``file:/x``. What others wrote into a table's files is compared by place; what we write is spelt as we are
told, as Java opens files by the text.
"""

from __future__ import annotations

from functools import lru_cache

from mainstem.storage.backends import split_scheme
from mainstem.storage.store_options import AZURE, KINDS

_HDFS = "hdfs"


def same_place(one: str, other: str) -> bool:
    """Whether two paths or URLs name one place.

    Of HDFS only paths are compared: one file system has names for its nodes and for all of them together. An
    Azure URL without an account is one with any.
    """
    (kind, where, account, path), (kind2, where2, account2, path2) = _parts(one), _parts(other)
    same_account = account == account2 or "" in (account, account2)
    return (kind, where, path) == (kind2, where2, path2) and same_account


def is_plain(place: str) -> bool:
    """Whether a path or URL names a folder of this machine."""
    return split_scheme(place)[0] in (None, "file")


def as_url(base: str) -> str:
    """A base path as Hudi's records have it: with a scheme, on a local disk too."""
    return f"file:{base}" if split_scheme(base)[0] is None else base


@lru_cache(maxsize=256)
def _parts(text: str) -> tuple[str, str, str, tuple[str, ...]]:
    """Kind of store, bucket, account and the names on the path."""
    scheme, rest = split_scheme(text)
    if scheme in (None, "file"):
        return "file", "", "", _names(rest)
    kind = KINDS.get(scheme or "", scheme or "")
    authority, _, path = rest.removeprefix("//").partition("/") if rest.startswith("//") else ("", "", rest)
    if kind == AZURE:
        container, _, host = authority.partition("@")
        return kind, container, host.partition(".")[0], _names(path)
    return kind, "" if kind == _HDFS else authority, "", _names(path)


def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)
