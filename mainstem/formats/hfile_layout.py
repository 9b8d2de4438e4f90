"""The parts of an HFile v3: blocks, numbers, and the protobuf messages of trailer and file info.

A block is a header of 33 bytes, the compressed data and checksums. The header holds: magic (8), bytes after
the header (int32), uncompressed bytes (int32), offset of the previous block of this kind (int64), kind of
checksum (byte), bytes per checksum (int32), bytes of header and data without checksums (int32). All integers
are big-endian. Every block is compressed with the file's codec, index and file info too. The format is
HBase's (``HFileBlock``, ``FixedFileTrailer``), as Hudi's own classes in ``org.apache.hudi.io.hfile`` read and
write it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from mainstem import limits
from mainstem.errors import Unsupported
from mainstem.formats.avro_rows import Malformed

try:  # Intel's ISA-L inflates three times as fast as zlib; it deflates four times as fast, a tenth larger
    from isal import isal_zlib as fastest

    _LEVEL, _FAST = 3, 1
except ImportError:  # no wheel for this machine
    import zlib as fastest

    _LEVEL, _FAST = 6, 1  # Java's GZIPOutputStream uses 6

DATA, META, ROOT, LEAF, INTERMEDIATE, INFO = (
    b"DATABLK*", b"METABLKc", b"IDXROOT2", b"IDXLEAF2", b"IDXINTE2", b"FILEINF2",
)  # fmt: skip
TRAILER = b'TRABLK"$'
TRAILER_BYTES = 4096
MAJOR_VERSION = 3
GZ, NONE = 1, 2
CODECS = {"GZ": GZ, "NONE": NONE}
_CODEC_NAMES = {0: "LZO", 3: "SNAPPY", 4: "LZ4", 5: "BZIP2", 6: "ZSTD"}
HEADER = struct.Struct(">8siiqBii")
NULL_CHECKSUM, CRC32 = 0, 1
PROTOBUF = b"PBUF"
_GZIP = 31  # zlib's wbits for a gzip member with any window
# A gzip member cannot inflate more than this; a larger claim is refused before memory is allocated.
_GZIP_RATIO_MAX = 1040


@dataclass(frozen=True, slots=True)
class Block:
    """A block's uncompressed ``data``, and ``size``, the bytes that it takes in the file."""

    magic: bytes
    data: bytes | memoryview
    size: int


def plain_size(view: memoryview) -> int:
    """The uncompressed size that a block's header declares; ``read_block`` checks it."""
    return max(0, HEADER.unpack_from(view)[2]) if len(view) >= HEADER.size else 0


def read_block(view: memoryview, codec: int, *expected: bytes) -> Block:
    """The block that begins at the first byte of ``view``.

    CRC32 checksums are verified. As in Java, those of the kinds NULL (all that Hudi writes) and CRC32C
    (HBase's) are not; a compressed block has gzip's own checksum besides.
    """
    if len(view) < HEADER.size:
        raise Malformed("an HFile block that is cut off in its header")
    magic, follows, plain, _, kind, chunk, stored = HEADER.unpack_from(view)
    if magic not in expected:
        raise Malformed(f"an HFile block {magic!r} where {' or '.join(map(repr, expected))} is expected")
    if not HEADER.size <= stored <= HEADER.size + follows <= len(view):
        raise Malformed(
            f"an HFile block of {follows} bytes, {stored - HEADER.size} of them data, in {len(view)} bytes"
        )
    if not 0 <= plain <= limits.HFILE_BLOCK_BYTES_MAX:
        raise Malformed(f"an HFile block of {plain} plain bytes; {limits.HFILE_BLOCK_BYTES_MAX} are read")
    size = HEADER.size + follows
    if kind == CRC32:
        _check_crc(view[:stored], view[stored:size], chunk)
    return Block(magic, _inflated(view[HEADER.size : stored], plain, codec), size)


def _check_crc(covered: memoryview, sums: memoryview, chunk: int) -> None:
    count = -(-len(covered) // chunk) if chunk > 0 else 0
    if count * 4 != len(sums) or not count:
        raise Malformed(f"an HFile block with {len(sums)} bytes of checksums, one for each {chunk} bytes")
    expected = struct.unpack(f">{count}I", sums)
    for i, value in enumerate(expected):
        if zlib.crc32(covered[i * chunk : (i + 1) * chunk]) != value:
            raise Malformed("an HFile block whose checksum is wrong")


def _inflated(data: memoryview, plain: int, codec: int) -> bytes | memoryview:
    if codec == NONE:
        if len(data) != plain:
            raise Malformed(f"an HFile block of {plain} uncompressed bytes that holds {len(data)}")
        return data
    if plain > _GZIP_RATIO_MAX * len(data):
        raise Malformed(f"an HFile block that claims to inflate {len(data)} bytes to {plain}")
    inflater = fastest.decompressobj(wbits=_GZIP)
    try:
        made = inflater.decompress(data, plain + 1)
    except fastest.error as error:
        raise Malformed(f"a damaged compressed HFile block: {error}") from None
    if len(made) != plain or not inflater.eof or inflater.unused_data:
        raise Malformed(f"an HFile block that does not inflate to the {plain} bytes that it declares")
    return made


def check_codec(codec: int) -> None:
    """Accept GZ and NONE, as Java's own reader does."""
    if codec in _CODEC_NAMES:
        raise Unsupported(f"an HFile compressed with {_CODEC_NAMES[codec]}; GZ and NONE are read")
    if codec not in (GZ, NONE):
        raise Malformed(f"an HFile of the unknown compression codec {codec}")


def make_block(
    magic: bytes, data: bytes | memoryview, codec: int, previous: int = -1, known: bytes = b""
) -> list[bytes | memoryview]:
    """The buffers of a block of ``data`` followed by ``known``; the latter is compressed once and cached."""
    stored: bytes | memoryview
    if codec == GZ and known:
        stored = _deflated_before(data, known)
    else:
        stored = stored_data(b"".join((data, known)) if known else data, codec)
    return framed(magic, stored, len(data) + len(known), previous)


def stored_data(data: bytes | memoryview, codec: int, *, fast: bool = False) -> bytes | memoryview:
    """A block's data as stored; ``fast``: in a third of zlib's usual time, but a tenth larger."""
    if codec != GZ:
        return data
    if len(data) <= (_FAST_BYTES if fast else _SMALL_BYTES):
        ends = struct.pack("<II", fastest.crc32(data), len(data))
        return b"".join((_GZIP_HEAD, _plain_part(data, last=True), ends))
    deflater = fastest.compressobj(_FAST if fast else _LEVEL, zlib.DEFLATED, _GZIP)
    return deflater.compress(data) + deflater.flush()


def framed(
    magic: bytes, stored: bytes | memoryview, plain: int, previous: int
) -> list[bytes | memoryview]:
    """The buffers of a block, with one empty checksum of the kind NULL per gigabyte.

    More checksums would do harm: Java up to 1.2 does not see entries that begin in a block's last bytes, as
    many as the block has checksum bytes (apache/hudi#19146), and hudi-rs 0.5 miscounts checksums of 16 KiB.
    """
    size = HEADER.size + len(stored)
    sums = bytes(4 * -(-size // _CHECKSUM_BYTES))
    head = HEADER.pack(magic, len(stored) + len(sums), plain, previous, NULL_CHECKSUM, _CHECKSUM_BYTES, size)
    return [head, stored, sums]


def _deflated_before(data: bytes | memoryview, known: bytes) -> bytes:
    """A gzip member of both, in which the bytes of ``known`` do not depend on ``data``."""
    if len(data) <= _SMALL_BYTES:
        first = _plain_part(data, last=False)
    else:
        deflater = zlib.compressobj(_KNOWN_LEVEL, zlib.DEFLATED, _RAW)
        first = deflater.compress(data) + deflater.flush(zlib.Z_FULL_FLUSH)
    check = fastest.crc32(known, fastest.crc32(data))
    ends = struct.pack("<II", check, (len(data) + len(known)) & 0xFFFFFFFF)
    return b"".join((_GZIP_HEAD, first, _last_part(known), ends))


def _plain_part(data: bytes | memoryview, *, last: bool) -> bytes:
    """A deflate block that stores its data uncompressed."""
    return b"".join((bytes((last,)), struct.pack("<HH", len(data), 0xFFFF ^ len(data)), data))


@lru_cache(maxsize=16)
def _last_part(known: bytes) -> bytes:
    deflater = zlib.compressobj(_KNOWN_LEVEL, zlib.DEFLATED, _RAW)
    return deflater.compress(known) + deflater.flush()


_KNOWN_LEVEL = 6
# Creating a compressor takes longer than it saves for so few bytes, as index and file info have.
_SMALL_BYTES = 512
#: the same where a compaction soon rewrites them, beside the schema and a trailer of 4,096 bytes
_FAST_BYTES = 2048
_RAW = -15  # zlib's wbits for deflate without a frame
_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\x03"
_CHECKSUM_BYTES = 1 << 30


# ---------------------------------------------------------------------------------------- numbers


def put_hadoop_vint(value: int) -> bytes:
    """``WritableUtils.writeVInt`` of a non-negative number."""
    if value <= 127:
        return bytes((value,))
    data = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes((256 - 112 - len(data),)) + data


def read_hadoop_vint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """``(value, next position)``; a negative number is damage here."""
    if at >= len(data):
        raise Malformed("a number that is cut off")
    first = data[at]
    if first <= 127:
        return first, at + 1
    count = 256 - 112 - first
    if not 1 <= count <= 4 or at + 1 + count > len(data):
        raise Malformed(f"a number with the first byte {first}")
    return int.from_bytes(data[at + 1 : at + 1 + count], "big"), at + 1 + count


def put_varint(value: int) -> bytes:
    """An unsigned number of up to 64 bits as a protobuf varint."""
    if value <= 127:
        return bytes((value,))
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes((*made, value))


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """``(value, next position)``."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise Malformed("a number that is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (2**64 - 1), at
    raise Malformed("a number of more than 64 bits")


# --------------------------------------------------------------------------------------- protobuf


def put_field(number: int, value: int | bytes) -> bytes:
    """A field of a protobuf message: a varint, or bytes after their length."""
    if isinstance(value, int):
        return bytes((number << 3,)) + put_varint(value)
    return bytes((number << 3 | 2,)) + put_varint(len(value)) + value


def put_numbers(fields: Iterable[tuple[int, int]]) -> bytes:
    """Several fields with unsigned numbers of up to 64 bits, as ``put_field`` encodes each."""
    made = bytearray()
    for number, value in fields:
        made.append(number << 3)
        while value > 127:
            made.append(value & 127 | 128)
            value >>= 7
        made.append(value)
    return bytes(made)


def read_fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """``(number, value)`` of every field; skips fixed-width fields, which HFiles do not use."""
    found: list[tuple[int, int | bytes]] = []
    at, size = 0, len(data)
    while at < size:
        tag, at = data[at], at + 1
        if tag > 127:  # nearly always one byte
            tag, at = read_varint(data, at - 1)
        wire, number = tag & 7, tag >> 3
        if wire in (0, 2):
            if at < size and data[at] < 128:
                value, at = data[at], at + 1
            else:
                value, at = read_varint(data, at)
            if wire == 0:
                found.append((number, value))
                continue
        elif wire in (1, 5):
            value = 8 if wire == 1 else 4
        else:
            raise Malformed(f"a protobuf field of the wire type {wire}")
        if at + value > size:
            raise Malformed(f"a protobuf field of {value} bytes, but only {size - at} are left")
        if wire == 2:
            found.append((number, data[at : at + value]))
        at += value
    return found


def read_delimited(data: bytes | memoryview) -> bytes:
    """The message after a varint with its length."""
    length, at = read_varint(data, 0)
    if at + length > len(data):
        raise Malformed(f"a protobuf message of {length} bytes, but only {len(data) - at} are left")
    return bytes(data[at : at + length])
