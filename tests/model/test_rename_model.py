"""Goal: the fence of renames never reports a publication that did not happen, nor denies one that did.

Method: every reachable state of ``rename_model`` is visited: requests and replies get lost, come late or
twice, others sweep and archive. Then each rule is left out, and the search must find how that goes wrong.
"""

from __future__ import annotations

import pytest
from rename_model import Model, search


def test_no_report_is_ever_wrong() -> None:
    states, reports, broken = search(Model())
    assert broken is None
    assert states > 50 and reports == {"", "ok", "failed", "unknown"}


BROKEN = {
    "a ticket is not taken back": Model(takes_back=False),
    "no source counts as swept": Model(looks=False),
    "nowhere counts as swept": Model(elsewhere=False),
    "the next attempt has the same ticket": Model(other_ticket=False),
    "the target is looked for first": Model(ticket_first=False, elsewhere=False),
}


@pytest.mark.parametrize("omission", BROKEN)
def test_each_omission_is_refuted(omission: str) -> None:
    assert search(BROKEN[omission])[2] is not None
