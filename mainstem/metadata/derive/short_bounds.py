"""Short bounds in place of long texts and bytes.

A row of statistics is read by every query that uses its column, so a text of many megabytes must not get into
it. Java writes such bounds whole for log files; for base files it leaves those above 4 KiB out, as Parquet's
footers do.
"""

from __future__ import annotations

from typing import Any

#: bytes of UTF-8; Parquet's limit in footers
BOUND_BYTES_MAX = 4096
_LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


def lower_bound(value: Any) -> Any:
    """``value`` or, if it is long, its first bytes."""
    return _prefix(value) if _is_long(value) else value


def upper_bound(value: Any) -> Any:
    """``value`` or, if it is long, a short value above all with the same beginning; None if there is none."""
    if not _is_long(value):
        return value
    prefix = _prefix(value)
    return _text_above(prefix) if isinstance(prefix, str) else _bytes_above(prefix)


def _is_long(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) > BOUND_BYTES_MAX // 4 and len(_utf8(value)) > BOUND_BYTES_MAX
    return isinstance(value, bytes) and len(value) > BOUND_BYTES_MAX


def _prefix(value: str | bytes) -> str | bytes:
    if isinstance(value, bytes):
        return value[:BOUND_BYTES_MAX]
    return _utf8(value[:BOUND_BYTES_MAX])[:BOUND_BYTES_MAX].decode("utf-8", "ignore")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text_above(prefix: str) -> str | None:
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at]) + 1
        code = _SURROGATES[1] + 1 if _SURROGATES[0] <= code <= _SURROGATES[1] else code
        if code <= _LAST:
            return prefix[:at] + chr(code)
    return None


def _bytes_above(prefix: bytes) -> bytes | None:
    for at in range(len(prefix) - 1, -1, -1):
        if prefix[at] < 0xFF:
            return prefix[:at] + bytes([prefix[at] + 1])
    return None
