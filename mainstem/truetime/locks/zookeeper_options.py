"""Where the ZooKeeper lock is and how to connect to it, in Hudi's option names.

Hudi: ``HoodieLockConfig`` (keys and defaults), ``BaseZookeeperBasedLockProvider`` (the lock node is
``base_path + "/" + lock_key``), ``ZookeeperBasedImplicitBasePathLockProvider`` (both follow from the
table's base path). ``hoodie.write.lock.zookeeper.port`` is accepted and, as in Hudi, not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from mainstem.errors import Invalid, Unsupported
from mainstem.options.locks import AUTH, BASE_PATH, CONNECTION_MS, LOCK_KEY, PORT, SESSION_MS, TABLE_BASE, URL
from mainstem.options.tables import TABLE_NAME
from mainstem.storage.backends import split_scheme
from mainstem.storage.spellings import same_place
from mainstem.truetime.locks.option_values import local_folder, shown, whole

_IMPLICIT_KEY = "lock_key"
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """Validated settings. ``hosts`` are (name, port); ``folder`` is the lock node below ``chroot``.

    ``digest`` is ``user:password`` or None; ``repr`` does not show it.
    """

    hosts: tuple[tuple[str, int], ...]
    chroot: str
    folder: str
    session_ms: int
    connection_ms: int
    digest: str | None = field(default=None, repr=False)

    @property
    def connect_string(self) -> str:
        """Servers and chroot in the form that kazoo and Curator accept."""
        return ",".join(_host_port(h) for h in self.hosts) + self.chroot

    @property
    def identity(self) -> str:
        """Servers and lock node, on which all writers of a table must agree.

        The order of servers does not matter. A list with fewer or differently named servers is another
        identity, even if it is the same ensemble: this errs towards refusal.
        """
        servers = ",".join(sorted(_host_port((name.lower(), port)) for name, port in self.hosts))
        return f"zookeeper:{servers}{self.chroot}{self.folder}"

    @classmethod
    def from_properties(
        cls, props: Mapping[str, str], *, base: str, implicit: bool
    ) -> ZooKeeperOptions:
        """Read Hudi's keys; ``base`` is the table's absolute path without a scheme.

        Raises ``Invalid`` for settings that are missing, do not parse or would be refused by Curator, and
        ``Unsupported`` for authentication other than digest.
        """
        hosts, chroot = _servers(props)
        if implicit:
            folder = implicit_base_path(base_as_java_has_it(props, base)) + "/" + _IMPLICIT_KEY
        else:
            folder = _required(props, BASE_PATH) + "/" + _lock_key(props)
        return cls(
            hosts=hosts,
            chroot=chroot,
            folder=_node_path(f"{BASE_PATH} and {LOCK_KEY}", folder),
            session_ms=whole(props, SESSION_MS),
            connection_ms=whole(props, CONNECTION_MS),
            digest=_digest(props.get(AUTH, "")),
        )


def _host_port(host: tuple[str, int]) -> str:
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _required(props: Mapping[str, str], key: str) -> str:
    value = props.get(key, "").strip()
    if not value:
        raise Invalid(f"{key} is not set, which the ZooKeeper lock needs: set it alike for all writers")
    return value


def _lock_key(props: Mapping[str, str]) -> str:
    key = props.get(LOCK_KEY, "").strip() or props.get(TABLE_NAME, "").strip()
    return key or _required(props, LOCK_KEY)


def _servers(props: Mapping[str, str]) -> tuple[tuple[tuple[str, int], ...], str]:
    url = _required(props, URL)
    servers, slash, rest = url.partition("/")
    chroot = _node_path(f"the chroot of {URL}", slash + rest) if rest else ""
    port = whole(props, PORT)
    hosts = []
    for text in servers.split(","):
        match = _HOST.fullmatch(text.strip())
        if not match or not 1 <= int(match[3] or PORT.default) <= 65_535:
            raise Invalid(
                f"{URL}={shown(url)}: expected host:port,host:port/chroot (ports and chroot may be left"
                f" out), found the server {shown(text)}"
            )
        if not match[3] and port != PORT.default:
            raise Invalid(
                f"{PORT}={port} has no effect: Hudi takes servers and ports from {URL} alone, and"
                f" {shown(text)} has none there; write {match[0]}:{port}"
            )
        hosts.append((match[1] or match[2], int(match[3] or PORT.default)))
    return tuple(hosts), chroot


def _node_path(what: str, path: str) -> str:
    """Check a path like Curator (``PathUtils.validatePath``): absolute, no empty name, no ``.`` or ``..``."""
    names = path.split("/")
    if (
        names[0]
        or len(names) < 2
        or any(name in ("", ".", "..") for name in names[1:])
        or _CONTROL.search(path)
    ):
        raise Invalid(
            f"{what} make {shown(path)}: expected a ZooKeeper path like /hudi/locks/table, from the root,"
            " without empty names, '.', '..' and a slash at the end"
        )
    return path


def _digest(value: str) -> str | None:
    """``user:password`` from ``digest:user:password``. Messages never show the value."""
    if not value:
        return None
    scheme, _, credential = value.partition(":")
    if scheme.lower() in ("sasl", "kerberos", "gssapi", "x509", "ip", "auth"):
        raise Unsupported(
            f"{AUTH} asks for the scheme {scheme.lower()!r}: mainstem authenticates at ZooKeeper with"
            " digest only (digest:<user>:<password>)"
        )
    user, colon, password = credential.partition(":")
    if scheme.lower() != "digest" or not (user and colon and password):
        raise Invalid(f"{AUTH} does not parse: expected digest:<user>:<password> (its value is not shown)")
    return credential


def base_as_java_has_it(props: Mapping[str, str], base: str) -> str:
    """The base path as Java jobs spell it: Java hashes ``hoodie.base.path`` as given, so spelling matters."""
    spelt = props.get(TABLE_BASE, base)
    local = split_scheme(base)[0] in (None, "file")
    if spelt != spelt.strip().rstrip("/") or (
        local_folder(TABLE_BASE, spelt) != base if local else not same_place(spelt, base)
    ):
        raise Invalid(
            f"{TABLE_BASE}={shown(spelt)}: expected the table's path {base}, without a slash at the end"
            " (releases of Hudi disagree about it), with file: in front where the Java jobs write it so"
        )
    return spelt


def implicit_base_path(base: str) -> str:
    """The same path as ``ZookeeperBasedImplicitBasePathLockProvider.getLockBasePath`` computes."""
    return f"/tmp/{hash_of_base(base)}"


def hash_of_base(base: str) -> str:
    """The hash by which Hudi names a lock after a table's base path (``HashID``, 64 bits)."""
    return f"{xxh64(_s3a_to_s3(base).encode(), _HUDI_SEED):016X}"


def _s3a_to_s3(base: str) -> str:
    scheme, rest = split_scheme(base)
    return f"s3:{rest}" if scheme in ("s3a", "s3n") else base  # Hadoop 3 has no s3n, so Java never hashes it


# HashID's seed, an int 0xdabadaba that Java widens to a long with its sign.
_HUDI_SEED = 0xFFFFFFFFDABADABA
_MASK = 0xFFFFFFFFFFFFFFFF
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip


def xxh64(data: bytes, seed: int) -> int:
    """xxHash64 in plain Python, fast enough for names but not for data."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [(seed + start) & _MASK for start in (_P1 + _P2, _P2, 0, -_P1)]
        while at <= size - 32:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], int.from_bytes(data[at : at + 8], "little"))
                at += 8
        turns = (1, 7, 12, 18)
        value = sum(_turn(lane, by) for lane, by in zip(lanes, turns, strict=True)) & _MASK
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = (seed + _P5) & _MASK
    value = (value + size) & _MASK
    for _ in range((size - at) // 8):
        word = int.from_bytes(data[at : at + 8], "little")
        value = (_turn(value ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        at += 8
    if size - at >= 4:
        word = int.from_bytes(data[at : at + 4], "little")
        value = (_turn(value ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        value = _turn(value ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32


def _turn(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


def _round(lane: int, word: int) -> int:
    return _turn((lane + word * _P2) & _MASK, 31) * _P1 & _MASK
