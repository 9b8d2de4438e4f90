"""The footer of engine files, and the checking of engine options.

A file is the library's own bytes, from offset 0 (so that they can be mapped and stay aligned), and a footer
of 64 bytes that describes them. The footer is checked in full before a library sees the bytes, because
libraries in C++ trust what they read. The checksums in the version's manifest show whether the bytes are
those that were written.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from mainstem import limits
from mainstem.errors import CorruptTable, Invalid
from mainstem.vectors.distances import METRICS

Buffer = bytes | bytearray | memoryview
# Magic, format, engine, metric, dimension, count, length of the body, default search effort, end mark.
_FOOTER = struct.Struct("<8sI12s12sIQQI4s")
_MAGIC, _END, _FORMAT = b"MSVECTOR", b"VEND", 1
FOOTER_BYTES = _FOOTER.size
Options = Mapping[str, object]
Figure = TypeVar("Figure", int, float)


@dataclass(frozen=True)
class Number:
    """An integer option: default and bounds."""

    default: int
    least: int
    most: int

    def read(self, name: str, value: object) -> int:
        """The value of option ``name``, from text or a number; ``Invalid`` if it is none or out of bounds."""
        return _read(int, "a whole number", name, value, self.least, self.most)


@dataclass(frozen=True)
class Decimal:
    """An option that may have a fraction: default and bounds."""

    default: float
    least: float
    most: float

    def read(self, name: str, value: object) -> float:
        """The value of option ``name``, from text or a number; ``Invalid`` if it is none or out of bounds."""
        return _read(float, "a number", name, value, self.least, self.most)


def _read(kind: type[Figure], called: str, name: str, value: object, least: Figure, most: Figure) -> Figure:
    try:
        number = kind(str(value).strip())
    except ValueError:
        raise Invalid(f"option {name} must be {called}, not {value!r}") from None
    if not least <= number <= most:
        raise Invalid(f"option {name} must lie between {least} and {most}, not {number}")
    return number


def checked(
    engine: str,
    known: Mapping[str, Number | Decimal],
    options: Options,
    aliases: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """The ``known`` options with given or default values; ``Invalid`` for unknown names."""
    given: dict[str, float] = {}
    for name, value in options.items():
        plain = (aliases or {}).get(name.lower(), name.lower())
        if plain not in known:
            raise Invalid(
                f"engine {engine} has no option {name!r}; it has {', '.join(sorted(known)) or 'none'}"
            )
        if plain in given:
            raise Invalid(f"option {name!r} of engine {engine} is given twice, under two names")
        given[plain] = known[plain].read(name, value)
    return {name: given.get(name, number.default) for name, number in known.items()}


def as_float32(vectors: np.ndarray) -> np.ndarray:
    """(n, d) as float32 in C order; ``Invalid`` for another shape, or values that float32 cannot hold."""
    if not hasattr(vectors, "shape"):
        vectors = np.asarray(vectors)
    if len(vectors.shape) != 2:
        raise Invalid(f"vectors must be an array of two dimensions (rows, values), not {len(vectors.shape)}")
    if not 1 <= vectors.shape[1] <= limits.VECTOR_DIMENSION_MAX:
        raise Invalid(
            f"a vector has 1 to {limits.VECTOR_DIMENSION_MAX} values, not {vectors.shape[1]}"
        )
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(vectors, np.float32)
    if not np.isfinite(values).all():
        raise Invalid("vectors of an index must be finite numbers within the range of float32")
    return values


def footer(engine: str, metric: str, dimension: int, count: int, body: int, effort: int = 0) -> bytes:
    """The footer after ``body`` bytes of a library."""
    names = engine.encode("ascii"), metric.encode("ascii")
    return _FOOTER.pack(_MAGIC, _FORMAT, *names, dimension, count, body, effort, _END)


@dataclass(frozen=True)
class Opened:
    """A file with a valid footer: the library's bytes, the number of vectors, the default effort."""

    body: memoryview
    count: int
    effort: int


def opened(engine: str, data: Buffer, dimension: int, metric: str, count: int | None) -> Opened:
    """Split a file whose footer agrees with what is expected; ``CorruptTable`` if it does not."""
    view = memoryview(data).cast("B")
    if len(view) < FOOTER_BYTES:
        raise CorruptTable(f"an engine file ends with {FOOTER_BYTES} bytes of footer; this has {len(view)}")
    found = _FOOTER.unpack(view[-FOOTER_BYTES:])
    magic, version, name, measured, values, rows, body, effort, end = found
    if magic != _MAGIC or end != _END:
        raise CorruptTable("the footer of an engine file is damaged: no magic bytes")
    expected: dict[str, tuple[object, object]] = {
        "format": (version, _FORMAT),
        "engine": (_text(name), engine),
        "metric": (_text(measured), metric if metric in METRICS else None),
        "dimension": (values, dimension),
        "number of bytes": (body, len(view) - FOOTER_BYTES),
        "number of vectors": (rows, rows if count is None else count),
    }
    for what, (stored, asked) in expected.items():
        if stored != asked:
            raise CorruptTable(f"{what} of an engine file is {stored!r}, expected {asked!r}")
    if rows > limits.VECTOR_ROWS_MAX:
        raise CorruptTable(f"an engine file names {rows} vectors, more than {limits.VECTOR_ROWS_MAX}")
    if (rows == 0) != (body == 0):
        raise CorruptTable(f"an engine file of {rows} vectors cannot have {body} bytes")
    return Opened(view[:-FOOTER_BYTES], rows, effort)


def _text(name: bytes) -> str:
    return name.rstrip(b"\0").decode("ascii", "replace")


def checked_search(
    graph_count: int, dimension: int, queries: np.ndarray, k: int, allowed: np.ndarray | None
) -> tuple[np.ndarray, int]:
    """Queries as float32, and the most neighbours that can be found; ``Invalid`` for wrong shapes."""
    queries = as_float32(queries)
    if queries.shape[1] != dimension:
        raise Invalid(f"the index holds vectors of {dimension} values, the query has {queries.shape[1]}")
    if k < 1:
        raise Invalid(f"k must be at least 1, not {k}")
    if allowed is not None and (allowed.dtype != bool or allowed.shape != (graph_count,)):
        raise Invalid(f"a mask must have one boolean per vector: {graph_count}, not {allowed.shape}")
    possible = graph_count if allowed is None else int(np.count_nonzero(allowed))
    return queries, min(k, possible)


def nothing(queries: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """An empty answer: no neighbour for any query."""
    return np.full((queries, k), -1, np.int64), np.full((queries, k), np.inf, np.float32)


def missing(library: str, engine: str, error: ImportError) -> Invalid:
    """The error for a library that is not installed."""
    return Invalid(
        f"vector engine {engine} needs {library}, which cannot be loaded ({error}): "
        "pip install 'mainstem[vector]', or choose the engine flat"
    )
