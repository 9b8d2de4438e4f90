"""Curves through a grid of several dimensions, along which neighbours in all of them stay close together.

A point is one cell per axis, numbered from 0 to 2 ** bits - 1. A curve gives its place as one number of
``bits`` times the number of axes. Everything is computed for all points at once, bit by bit.

The Hilbert curve is computed after J. Skilling, "Programming the Hilbert curve" (2004): its places of all
points of a cell are next to each other, as those of the Z-order are, and consecutive places are neighbours,
which those of the Z-order are not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_ONE = np.uint64(1)


def z_order(axes: Sequence[np.ndarray], bits: int) -> np.ndarray:
    """Places on the Z-order curve: the bits of all axes in turn, from the highest to the lowest."""
    place = np.zeros(len(axes[0]), np.uint64)
    for bit in reversed(range(bits)):
        for axis in axes:
            place = (place << _ONE) | ((axis >> np.uint64(bit)) & _ONE)
    return place


def hilbert(axes: Sequence[np.ndarray], bits: int) -> np.ndarray:
    """Places on the Hilbert curve."""
    turned = [axis.astype(np.uint64, copy=True) for axis in axes]
    first = turned[0]
    # Undo the turns and reflections of each subcube, from the largest to the smallest.
    for bit in reversed(range(1, bits)):
        below = np.uint64((1 << bit) - 1)
        for axis in turned:
            upper = (axis >> np.uint64(bit)) & _ONE == 1
            swapped = np.where(upper, np.uint64(0), (first ^ axis) & below)
            if axis is not first:
                axis ^= swapped
            first ^= np.where(upper, below, swapped if axis is not first else np.uint64(0))
    # Gray code.
    for before, axis in zip(turned[:-1], turned[1:], strict=True):
        axis ^= before
    flipped = np.zeros(len(first), np.uint64)
    for bit in reversed(range(1, bits)):
        upper = (turned[-1] >> np.uint64(bit)) & _ONE == 1
        flipped ^= np.where(upper, np.uint64((1 << bit) - 1), np.uint64(0))
    for axis in turned:
        axis ^= flipped
    return z_order(turned, bits)
