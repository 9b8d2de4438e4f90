"""Decides which of two rows of a key wins by ordering value. No other module compares ordering values.

Values are the integers of ``ordering_values.comparable``. "Later" refers to replay order: a log record is
later than the records before it, and later than the base file's row. Under commit time ordering there are no
values, and the later row wins.
"""

from __future__ import annotations

import numpy as np

#: The tie rule: of rows with equal ordering values the later one wins (Java's EventTimeRecordMerger).
LATER_WINS_TIES = True


def beats(later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
    """Mask: where the later row wins."""
    return later >= earlier if LATER_WINS_TIES else later > earlier


def earlier_may_win(greatest: int, least: int) -> bool:
    """Whether a row with ordering value ``greatest`` or less may win against a later row with ``least`` or
    more; used to skip row groups."""
    return not beats(np.asarray(least), np.asarray(greatest)).item()


def winners_last(places: np.ndarray, order: np.ndarray) -> np.ndarray:
    """``places`` (given in replay order) sorted by ``order[places]``, so that each key's winning row comes
    last."""
    if LATER_WINS_TIES:
        return places[np.argsort(order[places], kind="stable")]
    backwards = places[::-1]
    return backwards[np.argsort(order[backwards], kind="stable")]


def won_on_arrival(codes: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Mask of rows that won against all earlier rows of their key; input sorted by key, then replay order."""
    rank = np.unique(order, return_inverse=True)[1].reshape(-1).astype(np.int64)
    width = int(rank.max(initial=0)) + 1
    lifted = codes.astype(np.int64) * width + rank  # above all values of preceding keys
    before = np.concatenate(([-1], np.maximum.accumulate(lifted)[:-1])) if len(lifted) else lifted
    return beats(lifted, before)
