"""Goal: a listing of the timeline shows each instant once, in its highest state, and is read cheaply.

Method: random folders of timeline files, listed again while files come and go, against a plain loop
over all parsed names; a count of the names that are parsed on a timeline of completed instants.
"""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.storage.protocol import FileInfo
from mainstem.timeline import active
from mainstem.timeline.active import TimelineReader
from mainstem.timeline.instant import parse_instant, state_rank

pytestmark = pytest.mark.versions
TIMES = [f"202601010000000{n:02}" for n in range(8)]
STATES = ("commit", "deltacommit", "replacecommit", "compaction", "logcompaction", "clustering", "clean")


@st.composite
def file_names(draw):
    time, action = draw(st.sampled_from(TIMES)), draw(st.sampled_from((*STATES, "savepoint", "rollback")))
    kind = draw(st.sampled_from(("requested", "inflight", "done", "plain inflight", "temporary")))
    if kind == "done":
        return f"{time}_{draw(st.sampled_from(TIMES))}.{action}"
    if kind == "plain inflight":
        return f"{time}.inflight"
    name = f"{time}.{action}.{'requested' if kind == 'temporary' else kind}"
    return f"{name}.1f9a" if kind == "temporary" else name


class Folder:
    """A storage of nothing but names."""

    def __init__(self):
        self.listed = []

    def names(self, folder, *, prefix="", after=""):
        return list(self.listed)

    def stat(self, path):
        return FileInfo(path, 0, 0, True)  # the folder is there


PLANNED = ("compaction", "logcompaction", "clean", "rollback")


def lost_its_plan(name, names):
    """An inflight file of a service, and no plan beside it: the mark of an executor that woke up too late."""
    stem, _, state = name.rpartition(".")
    return state == "inflight" and stem.endswith(PLANNED) and f"{stem}.requested" not in names


def expected(names):
    best = {}
    counted = (name for name in sorted(names) if not lost_its_plan(name, names))
    for instant in filter(None, map(parse_instant, counted)):
        key = (instant.requested, instant.comparable_action)
        if key not in best or state_rank(instant) > state_rank(best[key]):
            best[key] = instant
    return sorted(best.values(), key=lambda i: (i.requested, i.action))


def shown(instants):
    """Without completion times: of two files that complete one instant either may be shown."""
    return [(i.requested, i.action, i.state) for i in instants]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sets(file_names(), max_size=14), min_size=1, max_size=4), st.booleans(), st.sets(file_names())
)
def test_every_instant_is_shown_once_in_its_highest_state(listings, only_come, hidden):
    storage, newest = Folder(), ""
    reader = TimelineReader(storage)
    if only_come:  # the listing before is gone on with then
        listings = list(accumulate(listings, set.union))
    for names in listings:
        storage.listed = names
        timeline = reader.load()
        instants = expected(names)
        assert shown(timeline.instants) == shown(instants)
        assert shown(timeline.completed) == shown(i for i in instants if i.is_completed)
        assert shown(timeline.pending) == shown(i for i in instants if not i.is_completed)
        times = [t for i in map(parse_instant, names) if i for t in (i.requested, i.completion or "")]
        newest = max([newest, *times])
        assert timeline.newest_time == newest
        fewer = timeline.without(hidden)
        assert shown(fewer.instants) == shown(expected(names - hidden))


def test_files_of_earlier_states_of_completed_instants_are_not_parsed(monkeypatch):
    calls = []
    monkeypatch.setattr(active, "parse_instant", lambda name: calls.append(name) or parse_instant(name))
    storage = Folder()
    for n in range(1000):
        time = 20260101000000000 + 2 * n
        done = f"{time}_{time + 1}.deltacommit"
        storage.listed += [f"{time}.deltacommit.requested", f"{time}.deltacommit.inflight", done]
    reader = TimelineReader(storage)
    assert len(reader.load().instants) == 1000 and len(calls) == 1000
    assert reader.load().pending == [] and len(calls) == 1000
    storage.listed.remove(done)  # rolled back: what was hidden behind it is shown again
    assert [i.requested for i in reader.load().pending] == [str(time)]
