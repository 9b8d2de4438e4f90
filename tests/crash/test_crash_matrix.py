"""Goal: whoever dies at whatever step, everybody else can go on, and nothing is lost or left over.

Method: a sample of ``tests.crash.crash_matrix`` (some steps of every action, one role for each); the whole is
``make crash``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.crash.crash_matrix import Matrix, Run, templates, worker

# About ten steps of each action.
EVERY = {"upsert": 13, "bulk_insert": 13, "abort": 20, "roll_back": 13}
# The same actions with a metadata table, and builds of indexes, which are longer: about four.
EVERY_INDEXED = 23
EVERY |= {"create_index_indexed": 31, "reindex_indexed": 41, "first_index_indexed": 61}
EVERY |= {"upsert_keys_indexed": 47, "bulk_insert_keys_indexed": 61}
EVERY |= {"insert_overwrite_placed": 61, "truncate_placed": 23, "upsert_anew_placed": 47}
EVERY |= {"upsert_moved": 17, "roll_back_moved": 41, "upsert_moved_indexed": 61}
EVERY |= {"upsert_first_ringed": 29, "upsert_planned_ringed": 29, "split_ringed": 23}
EVERY |= {"merge_ringed": 31, "insert_overwrite_ringed": 61, "restore_overwritten": 31}
EVERY |= {"roll_back_overwrite": 17, "roll_back_overwrite_placed": 17}
EVERY |= {"insert_overwrite": 41, "insert_overwrite_indexed": 83, "compact_deleted": 41}
EVERY |= {"resize": 41, "upsert_resized": 83, "resize_indexed": 131, "upsert_resized_indexed": 197}
EVERY |= {"downgrade": 23, "downgrade_indexed": 61, "restore_raised": 23, "log_compact_raised": 17}
EVERY |= {"compact_deleted_native": 31, "compact_deleted_sorted": 31, "compact_metadata_native_indexed": 31}
SEED = 1  # of the steps; `make crash` takes all of them
ACTIONS = sorted(templates(lambda *given: {}))

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with worker() as call:
        yield call


def _every(action: str) -> int:
    if action.endswith("_indexed"):
        return EVERY_INDEXED
    return 17 if action.endswith(("_native", "_sorted", "_raised")) else 9


@pytest.mark.parametrize("action", ACTIONS)
def test_whatever_step_an_action_dies_at_everybody_goes_on(run: Run, tmp_path, action: str) -> None:
    every = EVERY.get(action, _every(action))
    matrix = Matrix(run, tmp_path, random.Random(SEED))
    matrix.action(action, every, roles=1)
    assert not matrix.broken, "\n".join(matrix.broken)
