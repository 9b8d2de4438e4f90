"""Files of the engine jvector made by hand: no JVM is needed, and small ones are searched without one."""

from __future__ import annotations

import struct

import numpy as np

from mainstem.vectors.engines import engine_file


def jvector_file(vectors: np.ndarray, degree: int = 4) -> bytearray:
    """A graph of two levels for the metric l2: a ring, and above it a ring of every fourth node."""
    count, dimension = vectors.shape
    upper = np.arange(0, count, 4, dtype="<i4")
    body = struct.pack("<4sIII2I", b"JVG1", degree, 2, int(upper[-1]), count, len(upper))
    body += np.asarray(vectors, "<f4").tobytes() + _ring(np.arange(count, dtype="<i4"), degree)
    body += upper.tobytes() + _ring(upper, degree)
    return bytearray(body) + engine_file.footer("jvector", "l2", dimension, count, len(body), 16)


def _ring(nodes: np.ndarray, degree: int) -> bytes:
    edges = np.full((len(nodes), degree), -1, "<i4")
    edges[:, 0], edges[:, 1] = np.roll(nodes, 1), np.roll(nodes, -1)
    return edges.tobytes()
