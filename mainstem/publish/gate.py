"""The gate: the one object by which it is decided, on a store without links, who publishes (``gate_fence``).

``.hoodie/.mainstem/gate.json`` is one JSON object of at most 256 KiB:

==============  =====================================================================================
``version``     1. Another one is refused: it may promise what this code does not keep
``table``       identity of the table, 32 hexadecimal digits; it never changes
``epoch``       number of swaps since the gate was made
``nonce``       128 random bits of the swap that put this content, so that no two contents are alike
``newest``      no instant may get this time or an earlier one; "" for no limit
``foreign``     true once another kind of writer was seen
``past``        nonces of the last 64 swaps before this one, the newest last
``dropped``     the last 16 decided files that were not put, as an engine without a gate had taken them back
``recent``      what each of the last 16 swaps decided, the newest last: the name of a delta commit's file, or
                "" for anything else
``pending``     what is decided and not known to be in place, in the order in which it becomes visible: what
                the swap *carries* of earlier decisions, delta commits only, then its own; at most 64 items
==============  =====================================================================================

An item of ``pending`` has a ``target`` (a path in the table), ``size`` in bytes, ``sha256`` and either
``content`` (base64, together at most 64 KiB) or ``prepared`` (the path of an object with the content). With
``was``, the SHA-256 of the content that is replaced ("" if there was none), it is a replacement; without, a
new file.

Whoever reads a gate carries out its items, so they are not believed: a new file must be an instant of one of
the two timelines, a replaced one must lie among Hudi's own files, and contents must have their checksum.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mainstem.errors import CorruptTable, Unsupported
from mainstem.limits import KIB, TIMELINE_FILE_BYTES_MAX
from mainstem.storage import paths
from mainstem.timeline.instant import DELTACOMMIT, parse_instant

VERSION = 1
GATE_BYTES_MAX = 256 * KIB
#: all contents of one decision together; more goes into objects of their own
INLINE_BYTES_MAX = 64 * KIB
PAST_MAX = 64
DROPPED_MAX = 16
PENDING_MAX = 64
RECENT_MAX = 16
#: delta commits of earlier decisions that a swap takes along instead of putting them first
CARRIED_MAX = 16

_HEX_32 = re.compile(r"[0-9a-f]{32}\Z")
_SHA_256 = re.compile(r"[0-9a-f]{64}\Z")
_TIME = re.compile(r"([0-9]{14,20})?\Z")
_FIELDS = {"version", "table", "epoch", "nonce", "newest", "foreign", "past", "dropped", "recent", "pending"}
_ITEM_FIELDS = {"target", "size", "sha256", "content", "prepared", "was"}


def checksum(data: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Item:
    """One file that a swap decided. ``was``: None for a new file, else the checksum of what it replaces.

    Exactly one of ``content`` and ``prepared`` is given.
    """

    target: str
    size: int
    sha256: str
    content: bytes | None = None
    prepared: str | None = None
    was: str | None = None

    @classmethod
    def of(cls, target: str, data: bytes, *, prepared: str | None = None, was: str | None = None) -> Item:
        """An item with this content, kept in the gate, or in the object ``prepared``."""
        content = data if prepared is None else None
        return cls(target, len(data), checksum(data), content, prepared, was)

    def holds(self, data: bytes) -> bool:
        """Whether this is the decided content."""
        return len(data) == self.size and checksum(data) == self.sha256

    @property
    def name(self) -> str:
        """The target's name in its folder."""
        return self.target.rpartition("/")[2]

    @property
    def is_commit(self) -> bool:
        """Whether it is the completed file of a delta commit of the data table."""
        return self.was is None and self.target == paths.timeline_file(self.name) and _is_commit(self.name)

    @property
    def time(self) -> str:
        """The newest time in the name of a new instant; "" for a replacement."""
        instant = parse_instant(self.target.rpartition("/")[2]) if self.was is None else None
        return "" if instant is None else max(instant.requested, instant.completion or "")


@dataclass(frozen=True)
class Gate:
    """What the gate's object says; see the head of this module."""

    table: str
    epoch: int
    nonce: str
    newest: str = ""
    foreign: bool = False
    past: tuple[str, ...] = ()
    pending: tuple[Item, ...] = ()
    dropped: tuple[str, ...] = ()
    recent: tuple[str, ...] = ()

    def after(
        self,
        nonce: str,
        decided: Sequence[Item] = (),
        *,
        carried: Sequence[Item] = (),
        newest: str = "",
        foreign: bool = False,
    ) -> Gate:
        """The gate that the next swap puts in the place of this one."""
        times = (self.newest, newest, *(item.time for item in decided))
        only_commit = decided[0].name if len(decided) == 1 and decided[0].is_commit else ""
        return replace(
            self,
            epoch=self.epoch + 1,
            nonce=nonce,
            newest=max(times),
            foreign=self.foreign or foreign,
            past=(*self.past, self.nonce)[-PAST_MAX:],
            pending=(*carried, *decided),
            recent=(*self.recent, only_commit)[-RECENT_MAX:],
        )

    def commits_since(self, epoch: int) -> tuple[str, ...] | None:
        """Names of the delta commits decided after an earlier epoch of this gate.

        None if something else was decided, too, or if the gate does not reach back so far.
        """
        swaps = self.epoch - epoch
        names = self.recent[len(self.recent) - swaps :] if 0 <= swaps <= len(self.recent) else ("",)
        return None if "" in names else names

    @property
    def commits_from(self) -> int:
        """The epoch after which this gate tells of delta commits only."""
        told = 0
        while told < len(self.recent) and self.recent[-1 - told]:
            told += 1
        return self.epoch - told

    def without(self, item: Item) -> Gate:
        """The same gate, for a section whose swap will say that this file was dropped."""
        return replace(self, dropped=(*self.dropped, item.target)[-DROPPED_MAX:])

    def knows(self, other: Gate) -> bool | None:
        """Whether this gate is ``other`` or came after it. None if too many swaps came in between to tell."""
        if other.nonce == self.nonce or other.nonce in self.past:
            return True
        forgotten = self.epoch - len(self.past) > other.epoch
        return None if forgotten else False

    def encode(self) -> bytes:
        """The object's bytes."""
        fields = {
            "version": VERSION, "table": self.table, "epoch": self.epoch, "nonce": self.nonce,
            "newest": self.newest, "foreign": self.foreign, "past": list(self.past),
            "dropped": list(self.dropped), "recent": list(self.recent),
            "pending": [_encoded(item) for item in self.pending],
        }  # fmt: skip
        data = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
        assert len(data) <= GATE_BYTES_MAX, f"gate of {len(data)} bytes"
        return data


def _encoded(item: Item) -> dict[str, object]:
    fields: dict[str, object] = {"target": item.target, "size": item.size, "sha256": item.sha256}
    if item.content is not None:
        fields["content"] = base64.b64encode(item.content).decode()
    if item.prepared is not None:
        fields["prepared"] = item.prepared
    if item.was is not None:
        fields["was"] = item.was
    return fields


def parse_gate(data: bytes, base: str) -> Gate:
    """The gate in an object's bytes. ``base``: names the table in errors.

    Raises ``Unsupported`` for a later version, ``CorruptTable`` for anything that this module does not write.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _bad(f"no JSON ({error})", base) from error
    if not isinstance(fields, dict):
        raise _bad("expected a JSON object", base)
    version = fields.get("version")
    if type(version) is int and version > VERSION:
        raise Unsupported(
            f"{paths.GATE} has version {version}, and this mainstem knows {VERSION}: a newer one writes this"
            " table; upgrade this one. Nothing was published",
            table=base,
        )
    if version != VERSION or set(fields) != _FIELDS:
        raise _bad(f"expected version {VERSION} with the fields {', '.join(sorted(_FIELDS))}", base)
    past, pending, dropped, recent = (fields[name] for name in ("past", "pending", "dropped", "recent"))
    right = (
        _matches(_HEX_32, fields["table"])
        and type(fields["epoch"]) is int
        and 0 <= fields["epoch"] < 10**18
        and _matches(_HEX_32, fields["nonce"])
        and _matches(_TIME, fields["newest"])
        and type(fields["foreign"]) is bool
        and isinstance(past, list)
        and len(past) == min(fields["epoch"], PAST_MAX)
        and all(_matches(_HEX_32, nonce) for nonce in past)
        and isinstance(dropped, list)
        and len(dropped) <= DROPPED_MAX
        and all(isinstance(target, str) and _is_instant_file(target) for target in dropped)
        and isinstance(recent, list)
        and len(recent) == min(fields["epoch"], RECENT_MAX)
        and all(name == "" or (isinstance(name, str) and _is_commit(name)) for name in recent)
        and isinstance(pending, list)
        and len(pending) <= PENDING_MAX
    )
    if not right:
        raise _bad("a field has another form than mainstem writes", base)
    return Gate(
        fields["table"], fields["epoch"], fields["nonce"], fields["newest"], fields["foreign"],
        tuple(past), tuple(_parse_item(item, fields, base) for item in pending), tuple(dropped),
        tuple(recent),
    )  # fmt: skip


def _parse_item(item: Any, gate: Mapping[str, Any], base: str) -> Item:
    if (
        not isinstance(item, dict)
        or not set(item) <= _ITEM_FIELDS
        or ("content" in item) == ("prepared" in item)
    ):
        raise _bad(f"the decided file {item!r} lacks a field or has one too many", base)
    fields: dict[str, Any] = {**dict.fromkeys(_ITEM_FIELDS), **item}
    target, size, was, sha256 = fields["target"], fields["size"], fields["was"], fields["sha256"]
    right = (
        isinstance(target, str)
        and type(size) is int
        and 0 <= size <= TIMELINE_FILE_BYTES_MAX
        and _matches(_SHA_256, sha256)
        and (was is None or was == "" or _matches(_SHA_256, was))
    )
    if not right:
        raise _bad("a decided file has a field of another form than mainstem writes", base)
    if not (_is_instant_file(target) if was is None else _is_replaceable(target)):
        raise _bad(f"it names {target!r}, which no decision can be about", base)
    content, prepared = fields["content"], fields["prepared"]
    if prepared is not None:
        place = f"{paths.DECIDED}/{gate['epoch']}-{gate['nonce']}-"
        mine = isinstance(prepared, str) and prepared.startswith(place)
        if not mine or paths.parse_decided(prepared.rpartition("/")[2]) is None:
            raise _bad(f"the content of {target} is said to be in {prepared!r}", base)
        return Item(target, size, sha256, None, prepared, was)
    try:
        data = base64.b64decode(content, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise _bad(f"the content of {target} is no base64", base) from error
    found = Item(target, size, sha256, data, None, was)
    if not found.holds(data):
        raise _bad(f"the content of {target} has another size or checksum than the gate says", base)
    return found


def _matches(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.match(text) is not None


def _is_commit(name: str) -> bool:
    instant = parse_instant(name)
    return instant is not None and instant.is_completed and instant.action == DELTACOMMIT


def _is_instant_file(target: str) -> bool:
    folder, _, name = target.rpartition("/")
    return folder in (paths.TIMELINE, paths.METADATA_TIMELINE) and parse_instant(name) is not None


def _is_replaceable(target: str) -> bool:
    """Whether it lies among Hudi's own files: no data file, no lock, nothing of the gate's."""
    try:
        paths.inside(target, source=paths.GATE)
    except CorruptTable:
        return False
    mine = target.startswith(f"{paths.OWN}/") and target != paths.VECTOR_PROPERTIES_COPY
    name = target.rpartition("/")[2]
    data = paths.parse_log_name(name) or paths.parse_base_name(name) or paths.parse_hfile_name(name)
    return target.startswith(f"{paths.HOODIE}/") and not mine and data is None and "/.locks/" not in target


def _bad(found: str, base: str) -> CorruptTable:
    return CorruptTable(
        f"{found}: this is no gate of mainstem's, or a damaged one. Nothing was published; bring it back from"
        " a copy of the same moment as the timeline, or ask for help: never delete it while writers run",
        path=paths.GATE,
        table=base,
    )


def fresh(target: str, data: bytes, nonce: str) -> bytes:
    """The same content, with something in it that it never had before, where its format has room for that.

    A store's tag is a hash of the bytes. If a replaced file could have the bytes of an earlier one again, a
    replacement that arrives late would take effect a second time. Properties get a comment, JSON gets white
    space. The archive's version only grows, and plans are only ever emptied.
    """
    name = target.rpartition("/")[2]
    if name.endswith(".properties") or name == paths.PARTITION_METAFILE:
        return data + (b"" if data.endswith(b"\n") or not data else b"\n") + b"#" + nonce.encode() + b"\n"
    if name.endswith(".json"):
        bits = int(nonce, 16)
        return data + bytes(b" \t"[bits >> at & 1] for at in range(4 * len(nonce))) + b"\n"
    return data
