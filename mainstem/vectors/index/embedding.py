"""Functions that turn texts into vectors, found by the name that an index stores.

A table only names a function. The process decides which one the name means, with ``register_embedding``.
Nothing that a table names is loaded or run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.limits import VECTOR_DIMENSION_MAX

Embedding = Callable[[list[str]], Any]
"""Texts -> (texts, dimension) finite numbers: a NumPy array, lists, or what NumPy converts (CPU tensors)."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:-]{0,199}\Z", re.ASCII)
# Texts passed to the function at once; models divide them into batches of their own.
_TEXTS_AT_ONCE = 4096
_registered: dict[str, Embedding] = {}


def register_embedding(name: str, function: Embedding) -> None:
    """Let this process turn texts into vectors for indexes with ``embedding`` = ``name``.

    ``function(texts)`` gets a list of texts and returns their vectors: a float32 array (texts, dimension), or
    what converts to one, finite, and always of the same dimension. The same texts must always give the same
    vectors, since an index mixes vectors computed at different times. Put the model into the name, so that
    another model means another index. Register the same function in every process that builds, refreshes or
    searches the index, including Spark's executors. Raises ``Invalid`` for an unusable name.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise Invalid(
            f"the name of an embedding function is {name!r:.220}; expected letters, digits and _ . / : -, at"
            " most 200 of them, as in 'all-minilm-l6-v2'"
        )
    if not callable(function):
        kind = type(function).__name__
        raise Invalid(f"the embedding function {name!r} is a {kind}, which cannot be called")
    _registered[name] = function


def embed(name: str, texts: Sequence[str]) -> np.ndarray:
    """Vectors of texts: float32 (texts, dimension), checked; (0, 0) for no texts.

    Raises ``Invalid`` if this process has no such function, if the function raises, or if it returns anything
    else.
    """
    function = _function(name)
    parts = [_called(name, function, list(texts[i : i + _TEXTS_AT_ONCE]), i)
             for i in range(0, len(texts), _TEXTS_AT_ONCE)]  # fmt: skip
    widths = sorted({part.shape[1] for part in parts})
    if len(widths) > 1:
        raise Invalid(
            f"the embedding function {name!r} made vectors of {' and of '.join(map(str, widths))} numbers; an"
            " index has one dimension"
        )
    return np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)


def embedder(name: str) -> Callable[[pa.ChunkedArray], tuple[np.ndarray, np.ndarray]]:
    """A function from a text column to the vectors (n, dimension) of its non-null texts and their row
    numbers.

    Raises ``Invalid`` right away if this process has no such embedding function.
    """
    _function(name)

    def vectors(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
        there = np.flatnonzero(column.is_valid().to_numpy())
        # Equal texts have equal vectors, and models are slow: embed each distinct text once.
        coded = column.drop_null().cast(pa.string()).combine_chunks().dictionary_encode()
        if isinstance(coded, pa.ChunkedArray):
            coded = coded.unify_dictionaries().combine_chunks()
        made = embed(name, coded.dictionary.to_pylist())
        return made[coded.indices.to_numpy(zero_copy_only=False)], there

    return vectors


def digests(column: pa.ChunkedArray) -> pa.Array:
    """A digest of 16 bytes for each text, to recognise it again; null for null. Row by row, since Arrow has
    no such function: about a microsecond each, where models take a thousand."""
    made = [
        None if text is None else hashlib.blake2b(text.encode(), digest_size=16).digest()
        for text in column.cast(pa.string()).to_pylist()
    ]
    return pa.array(made, pa.binary())


def _function(name: str) -> Embedding:
    function = _registered.get(name)
    if function is None:
        known = ", ".join(sorted(_registered)) or "none"
        raise Invalid(
            f"this process has no embedding function {name!r} (registered: {known}): call"
            f" mainstem.register_embedding({name!r}, function) first"
        )
    return function


def _called(name: str, function: Embedding, texts: list[str], first: int) -> np.ndarray:
    what = f"the embedding function {name!r}"
    try:
        made = function(texts)
    except Exception as error:
        raise Invalid(f"{what} failed on {len(texts)} texts: {type(error).__name__}: {error}") from error
    try:
        found = np.asarray(made)
        with np.errstate(over="ignore"):  # an overflow becomes infinity, which is refused below
            numbers = found.astype(np.float32) if found.dtype.kind in "fiu" else None
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(made).__name__
        raise Invalid(f"{what} returned a {kind} that is no array of numbers: {error}") from error
    if numbers is None or numbers.ndim != 2 or not 1 <= numbers.shape[1] <= VECTOR_DIMENSION_MAX:
        raise Invalid(
            f"{what} returned an array of {found.dtype} of the shape {found.shape} for {len(texts)} texts;"
            f" expected ({len(texts)}, dimension) numbers, with a dimension up to {VECTOR_DIMENSION_MAX}"
        )
    if len(numbers) != len(texts):
        raise Invalid(f"{what} returned {len(numbers)} vectors for {len(texts)} texts; expected one for each")
    wrong = ~np.isfinite(numbers).all(axis=1)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise Invalid(f"{what} made a vector with NaN or infinity of text {first + at}, {texts[at]!r:.80}")
    return np.ascontiguousarray(numbers)
