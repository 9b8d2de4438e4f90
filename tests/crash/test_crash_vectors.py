"""Goal: whoever dies at whatever step of making, refreshing, dropping or tidying a vector index, searches
stay right, what served before serves on, and whoever comes next needs no help.

Method: a sample of ``tests.crash.vector_matrix`` (some steps of each action); the whole is ``make crash``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mainstem
from tests.crash.crash_matrix import Run, worker
from tests.crash.vector_matrix import ACTIONS, check, plain

EVERY = 97

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with worker() as call:
        yield call


@pytest.mark.supports("Vectors", "index: a builder may die at any step")
@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_whatever_step_it_dies_at_the_version_before_or_the_one_after_serves(run, tmp_path, action) -> None:
    check(run, tmp_path, action, EVERY)


def test_a_table_without_an_index_needs_no_round(tmp_path) -> None:
    plain(tmp_path / "t")
    (done,) = mainstem.open_table(tmp_path / "t").run_services("vectors")
    assert done.results == () and done.error is None
