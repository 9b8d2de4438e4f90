"""Positions in many records at once, and the reading of one number per record."""

from __future__ import annotations

import numpy as np

from mainstem.formats.avro_rows import Malformed
from mainstem.formats.avro_schema import AvroType

_PAD = 16


class Chunk:
    """The first ``size`` bytes of ``raw``: the bytes of one chunk of records.

    ``raw`` should extend a few bytes further. If it does not, and a gather reads past the end, it is copied
    once with padding. The bytes after ``size`` do not matter: a value that reaches them is damage, and
    ``check_end`` finds it.
    """

    __slots__ = ("padded", "raw", "size")

    def __init__(self, raw: np.ndarray, size: int) -> None:
        self.raw = raw
        self.size = size
        self.padded = len(raw) - size >= _PAD

    def gather(self, dtype: str, at: np.ndarray) -> np.ndarray:
        """One unaligned number at each position."""
        try:
            return self._view(dtype)[at]
        except (IndexError, ValueError):
            if self.padded:
                raise
            self._pad()
            return self._view(dtype)[at]

    def _view(self, dtype: str) -> np.ndarray:
        if dtype == "u1":
            return self.raw
        width = np.dtype(dtype).itemsize
        return np.ndarray((len(self.raw) - width + 1,), dtype, self.raw, strides=(1,))

    def _pad(self) -> None:
        whole = np.zeros(self.size + _PAD, np.uint8)
        whole[: len(self.raw)] = self.raw
        self.raw, self.padded = whole, True


class Cursors:
    """One position per record (or list item) of a chunk; reading a column advances all of them.

    ``at`` holds offsets into the chunk, ``ends`` the ends of the records. Where ``live`` is False, a value is
    absent because the struct around it is null, and nothing is read. ``live`` None: all are present.
    """

    def __init__(self, data: memoryview, starts: np.ndarray, header: int = 4) -> None:
        first, last = int(starts[0]), int(starts[-1])
        raw = np.frombuffer(data[first : last + _PAD], np.uint8)
        self.chunk = Chunk(raw, last - first)
        self.ends = starts[1:] - first
        self.at = starts[:-1] + (header - first)
        self.live: np.ndarray | None = None

    def others(self, at: np.ndarray, ends: np.ndarray) -> Cursors:
        """Cursors at other positions in the same chunk."""
        made = Cursors.__new__(Cursors)
        made.chunk, made.at, made.ends, made.live = self.chunk, at, ends, None
        return made

    @property
    def rows(self) -> int:
        return len(self.at)

    @property
    def size(self) -> int:
        """Size of the chunk, in bytes."""
        return self.chunk.size

    def gather(self, dtype: str, at: np.ndarray) -> np.ndarray:
        """``Chunk.gather`` for this chunk."""
        return self.chunk.gather(dtype, at)

    def check_end(self) -> None:
        wrong = self.at != self.ends
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise Malformed(
                f"record {row} of its chunk ends at byte {int(self.ends[row])}, its values end at "
                f"byte {int(self.at[row])}"
            )

    def skip(self, sizes: np.ndarray | int) -> None:
        """Advance by ``sizes``; a size below zero or larger than the chunk is damage."""
        many = sizes if isinstance(sizes, np.ndarray) else None
        if many is not None and len(many) and (int(many.min()) < 0 or int(many.max()) > self.size):
            raise Malformed("a length that is negative or exceeds its block")
        self.at = self.at + sizes


def branches(cursors: Cursors, kind: AvroType) -> np.ndarray | None:
    """Read and step over the union branch; return the mask of present values, None if all are present."""
    live = cursors.live
    if not kind.nullable:
        return live
    tags = cursors.gather("u1", cursors.at)
    valid = tags == kind.value_tag
    known = valid | (tags == kind.null_tag)
    if live is None:
        cursors.at = cursors.at + 1
    else:
        cursors.at = cursors.at + live
        valid &= live
        known |= ~live
    if not known.all():
        row = int(np.flatnonzero(~known)[0])
        raise Malformed(f"record {row} of its chunk has the union branch byte {int(tags[row])}")
    return None if valid.all() else valid


def read_numbers(cursors: Cursors, valid: np.ndarray | None) -> np.ndarray:
    """int64 per record from zigzag varints; 0, without advancing, where not ``valid``."""
    first = cursors.gather("u1", cursors.at)
    if valid is not None:  # the byte after a null belongs to the next column
        first = np.where(valid, first, np.uint8(0))
    used: np.ndarray | int
    if not (first & 0x80).any():
        coded, used = first.astype(np.uint64), 1
    else:
        coded, used = _long_varints(cursors, valid)
    if valid is not None:
        used = np.where(valid, used, 0)
    cursors.skip(used)
    return unzigzag(coded)


def skip_numbers(cursors: Cursors, kind: AvroType) -> bool:
    """Step over an int or long without decoding it. False, and nothing moved, if that takes a closer look."""
    if cursors.live is not None:
        return False
    words = cursors.gather("<u8", cursors.at)
    valid: np.ndarray | None = None
    if kind.nullable:
        short = (words & _u(0x80FF)) == _u(kind.value_tag)
        if short.all():
            cursors.at = cursors.at + 2
            return True
        tags = words.astype(np.uint8)
        valid = tags == kind.value_tag
        if not (valid | (tags == kind.null_tag)).all():
            return False
        words = words >> _u(8)
    stops = ~words & _u(0x8080808080808080)
    below = (stops & (~stops + _u(1))) - _u(1)
    used = (((below & _u(0x0101010101010101)) * _u(0x0101010101010101)) >> _u(56)).view(np.int64)
    if valid is not None:
        used = np.where(valid, used, 0)
    if int(used.max(initial=0)) > (4 if kind.kind == "int" else 7):
        return False
    cursors.at = cursors.at + used + int(kind.nullable)
    return True


def _u(number: int) -> np.uint64:
    return np.uint64(number)


def _long_varints(cursors: Cursors, valid: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Unsigned varints of up to 10 bytes and their sizes, computed in 64-bit words."""
    words = cursors.gather("<u8", cursors.at)
    if valid is not None:
        words = np.where(valid, words, _u(0))
    stops = ~words & _u(0x8080808080808080)
    lowest = stops & (~stops + _u(1))
    below = lowest - _u(1)  # all ones if the varint has more than 8 bytes
    used = ((below & _u(0x0101010101010101)) * _u(0x0101010101010101)) >> _u(56)
    x = compress_varints(words & below)
    used = used.view(np.int64)
    long = np.flatnonzero(stops == 0)
    if len(long):
        _longest_varints(cursors, long, x, used)
    return x, used


def compress_varints(words: np.ndarray) -> np.ndarray:
    """Join the 7-bit groups of little-endian uint64 words, lowest byte first."""
    x = words & _u(0x7F7F7F7F7F7F7F7F)
    x = (x & _u(0x007F007F007F007F)) | ((x & _u(0x7F007F007F007F00)) >> _u(1))
    x = (x & _u(0x00003FFF00003FFF)) | ((x & _u(0x3FFF00003FFF0000)) >> _u(2))
    return (x & _u(0x000000000FFFFFFF)) | ((x & _u(0x0FFFFFFF00000000)) >> _u(4))


def unzigzag(coded: np.ndarray) -> np.ndarray:
    """Decode uint64 zigzag codes to int64."""
    return (coded >> _u(1)).view(np.int64) ^ -(coded & _u(1)).view(np.int64)


def _longest_varints(cursors: Cursors, rows: np.ndarray, coded: np.ndarray, used: np.ndarray) -> None:
    """Add bytes 9 and 10 of the few varints that have them."""
    tail = cursors.gather("<u2", cursors.at[rows] + 8).astype(np.uint64)
    ninth, tenth = tail & _u(0xFF), tail >> _u(8)
    more = ninth >= _u(0x80)
    if (more & (tenth > _u(1))).any():
        raise Malformed("a number of more than 64 bits")
    coded[rows] |= (ninth & _u(0x7F)) << _u(56)
    coded[rows] |= np.where(more, tenth, _u(0)) << _u(63)
    used[rows] = np.where(more, 10, 9)
