"""Goal: on a store without links, one object that is swapped keeps every promise of the fence.

Method: every reachable state of a small model (``gate_model``) is visited, breadth first. Requests are kept
apart from replies: they may be carried out late, after their sender gave up, ended or died; replies may be
lost, and a client library may send again by itself. Any actor may stop anywhere. Then each rule is left out,
and the search must find what breaks.

Larger sizes: ``MAINSTEM_FULL_MODEL=1 python -m pytest tests/model/test_gate_model.py`` (minutes, 4 GiB).
"""

from __future__ import annotations

import os

import pytest
from gate_model import Model, search

WRITERS = (("writer", 0), ("writer", 1))
EXECUTORS = (("writer", 0), ("writer", 0))  # of one plan
ROLLBACK, ARCHIVER, RESTORER = ("rollback", 0), ("archiver", 9), ("restorer", 9)
REPLACERS = (("replacer", 0), ("replacer", 1))

SIZES = {
    "two writers, three tries, clocks apart": Model(WRITERS, tries=3, clock=(1, 2)),
    "two writers with a metadata table": Model(WRITERS, tries=2, files=2, clock=(1, 2)),
    "two executors and a rollback": Model((*EXECUTORS, ROLLBACK), tries=1),
    "two writers and a rollback": Model((*WRITERS, ROLLBACK), tries=1),
    "an archiver": Model((("writer", 0), ARCHIVER), tries=2, files=2),
    "two executors and an archiver": Model((*EXECUTORS, ARCHIVER), tries=1),
    "two executors and a restorer": Model((*EXECUTORS, RESTORER), tries=2),
    "a restorer and an archiver": Model((("writer", 0), RESTORER, ARCHIVER), tries=1),
    "a log, two writers with a metadata table": Model(WRITERS, tries=2, files=2, clock=(1, 2), log=True),
    "a log, two executors and a rollback": Model((*EXECUTORS, ROLLBACK), tries=1, log=True),
    "a log, an archiver": Model((("writer", 0), ARCHIVER), tries=2, log=True),
    "a replaced file": Model((("writer", 0), ("replacer", 0)), tries=2),
    "two writers that carry": Model(WRITERS, tries=2, clock=(1, 2), carries=True),
    "a writer that carries, a rollback and an archiver": Model(
        (("writer", 0), ROLLBACK, ARCHIVER), tries=1, carries=True
    ),
    "a writer that carries, and a replaced file": Model(
        (("writer", 0), ("replacer", 0)), tries=2, carries=True
    ),
}
LARGE = {
    "three writers": Model((*WRITERS, ("writer", 2)), tries=1, clock=(1, 2)),
    "three writers with a metadata table": Model((*WRITERS, ("writer", 2)), tries=1, files=2),
    "two executors, two tries, and a rollback": Model((*EXECUTORS, ROLLBACK), tries=2),
    "two writers and an archiver": Model((*WRITERS, ARCHIVER), tries=1),
    "two writers with a metadata table and a restorer": Model((*WRITERS, RESTORER), tries=1, files=2),
    "everybody": Model((("writer", 0), ROLLBACK, RESTORER, ARCHIVER), tries=1),
    "a log, three writers": Model((*WRITERS, ("writer", 2)), tries=1, log=True),
    "three writers that carry": Model((*WRITERS, ("writer", 2)), tries=1, carries=True),
    "two writers that carry, and a rollback": Model((*WRITERS, ROLLBACK), tries=1, carries=True),
    "two writers that carry, two tries, and a rollback": Model((*WRITERS, ROLLBACK), tries=2, carries=True),
    "two executors that carry, and a restorer": Model((*EXECUTORS, RESTORER), tries=2, carries=True),
    "a file replaced by two": Model((("writer", 0), *REPLACERS), tries=2),
}


@pytest.mark.parametrize("size", SIZES)
def test_every_promise_holds_in_every_reachable_state(size: str) -> None:
    result = search(SIZES[size])
    assert result.trace is None, result.trace
    assert result.told_ok > 50 and result.told_failed > 50 and result.late > 300, "it got as far as that"


@pytest.mark.parametrize("size", LARGE)
@pytest.mark.skipif("MAINSTEM_FULL_MODEL" not in os.environ, reason="minutes, and 4 GiB of memory")
def test_every_promise_holds_in_millions_of_states(size: str) -> None:
    result = search(LARGE[size])
    assert result.trace is None, result.trace
    assert result.states > 100_000


RESTORED = (("writer", 0), RESTORER, ("writer", 1))
# The rule that is left out, the model, and what breaks.
BROKEN = {
    "nobody helps": (Model(helps=False), "told ok, and it is not shown"),
    "a rollback judges without helping": (
        Model((("writer", 0), ROLLBACK), tries=1, helps=False), "told ok, and it is not shown",
    ),
    "only the first file is helped": (Model(files=2, all_files=False), "told ok, and it is not shown"),
    "the gate has no nonce": (Model(nonce=False, tries=1), "told failed, and it is shown"),
    "the gate is put without a condition": (
        Model(condition=False, tries=1), "told ok, and it is not shown",
    ),
    "nobody looks for the own nonce": (Model(own=False), "told failed, and it is shown"),
    "a refusal is taken for somebody else's doing": (
        Model(believes_412=True), "told failed, and it is shown",
    ),
    "no cancelling swap": (Model(cancel=False), "told failed, and it is shown"),
    "the timeline is listed before the gate is read": (
        Model((*EXECUTORS, ARCHIVER), tries=1, lists_after=False), "completed twice",
    ),
    "the data's file goes first": (Model(files=2, metadata_first=False), "data without metadata"),
    "success is told before the put": (Model(puts=False), "told ok, and it is not shown"),
    "what was taken back may count again": (
        Model(RESTORED, tries=1, withdrawn=False), "taken back, and it counts again",
    ),
    "what is archived may count twice": (
        Model((("writer", 0), ARCHIVER), tries=1, once=False), "archived, and it counts twice",
    ),
    "a record of the log whose number was swept is believed": (
        Model(log=True, looks_again=False), "told failed, and it is shown",
    ),
    "a log, and nobody helps": (Model(log=True, helps=False), "told ok, and it is not shown"),
    "a replacement passes by the gate": (
        Model((("writer", 0), ("replacer", 0)), tries=1, decides=False),
        "decided by lists that were replaced",
    ),
    "a decision that others took along is taken for put": (
        Model(carries=True, asks_gate=False), "told ok, and it is not shown",
    ),
    "the own file is put before those that are carried": (
        Model(carries=True, carried_first=False), "out of order",
    ),
    "what is carried is not named by the gate": (
        Model(carries=True, keeps=False), "told ok, and it is not shown",
    ),
    "a cancelling swap drops what is carried": (
        Model(carries=True, cancel_keeps=False), "told ok, and it is not shown",
    ),
    "a replaced file may have its old bytes again": (
        Model((("writer", 5), *REPLACERS), tries=1, fresh=False), "an old replacement came back",
    ),
}  # fmt: skip


@pytest.mark.skipif("MAINSTEM_FULL_MODEL" not in os.environ, reason="a minute")
def test_a_refused_writer_must_ask_what_else_was_decided() -> None:
    result = search(Model((*WRITERS, ROLLBACK), tries=2, carries=True, only_commits=False))
    assert result.trace is not None
    assert result.trace[-1] == "completed although its rollback was planned"


@pytest.mark.parametrize("omission", BROKEN)
def test_each_omission_is_refuted_by_a_counter_example(omission: str) -> None:
    model, broken = BROKEN[omission]
    result = search(model)
    assert result.trace is not None
    assert result.trace[-1] == broken
