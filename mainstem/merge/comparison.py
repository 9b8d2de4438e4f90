"""Which of two rows of a key wins, by their ordering values: nothing else compares these.

All values are those of ``ordering_values.comparable``. "Later" is the place in replay order: a log record
is later than those before it, and later than the base file's row. By commit time there are no values, and
the later row wins.
"""

from __future__ import annotations

import numpy as np

#: The tie rule: of rows with equal ordering values the later one wins (Java's EventTimeRecordMerger).
LATER_WINS_TIES = True


def beats(later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
    """Where the later row wins."""
    return later >= earlier if LATER_WINS_TIES else later > earlier


def earlier_may_win(greatest: int, least: int) -> bool:
    """The bound for skipping: whether a row with ``greatest`` or less may win against a later one with
    ``least`` or more."""
    return not beats(np.asarray(least), np.asarray(greatest)).item()


def winners_last(places: np.ndarray, order: np.ndarray) -> np.ndarray:
    """``places`` (in replay order) by their values, ``order[places]``, so that of each key's rows the one
    that wins comes last."""
    if LATER_WINS_TIES:
        return places[np.argsort(order[places], kind="stable")]
    backwards = places[::-1]
    return backwards[np.argsort(order[backwards], kind="stable")]


def won_on_arrival(codes: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Of rows sorted by key, then in replay order: which won against all earlier ones of their key."""
    rank = np.unique(order, return_inverse=True)[1].reshape(-1).astype(np.int64)
    width = int(rank.max(initial=0)) + 1
    lifted = codes.astype(np.int64) * width + rank  # above all values of the keys before
    before = np.concatenate(([-1], np.maximum.accumulate(lifted)[:-1])) if len(lifted) else lifted
    return beats(lifted, before)
