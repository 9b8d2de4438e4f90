"""Goal: a listing of the timeline shows each instant once, in its highest state, and is read cheaply.

Method: random folders of timeline files, listed again while files come and go, against a plain loop
over all parsed names; a count of the names that are parsed on a timeline of completed instants.
"""

from __future__ import annotations

from itertools import accumulate
from random import Random

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


PLANNED = ("compaction", "logcompaction", "clean", "rollback", "clustering")


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
        assert timeline.pending_services == [i for i in timeline.pending if i.action != "deltacommit"]
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


def changed(random, names, fresh, gone):
    """A listing in which some names are gone and others are new, at any place."""
    left = [name for name in names if name not in gone]
    for name in fresh:
        left.insert(random.randrange(len(left) + 1), name)
    return left


@pytest.mark.parametrize("seed", range(60))
def test_what_two_listings_differ_in_is_found_whatever_their_order(seed):
    random = Random(seed)
    before = [f"{n}.deltacommit" for n in random.sample(range(10**6), random.choice((0, 1, 5, 300, 4000)))]
    gone = set(random.sample(before, min(len(before), random.choice((0, 0, 1, 3)))))
    fresh = [f"{n}.fresh" for n in range(random.choice((0, 1, 2, 40)))]
    now = changed(random, before, fresh, gone)
    kind = random.choice(("same order", "same order", "one moved", "shuffled", "one twice", "new twice"))
    if now and kind == "one moved":
        now.insert(random.randrange(len(now)), now.pop(random.randrange(len(now))))
    elif kind == "shuffled":
        random.shuffle(now)
    elif now and kind == "one twice":
        now.insert(random.randrange(len(now)), random.choice(now))
    elif kind == "new twice":
        now = changed(random, now, fresh, set())
    found = active.differences(before, now, frozenset(before))
    if found is None:
        assert kind not in ("same order", "new twice")
    else:
        assert found == (frozenset(now) - frozenset(before), frozenset(before) - frozenset(now))


def test_listings_that_differ_in_much_are_compared_as_sets():
    before = [f"{n}.clean" for n in range(3000)]
    assert active.differences(before, before[:10], frozenset(before)) == (frozenset(), frozenset(before[10:]))
    assert active.differences(before, [f"x{name}" for name in before], frozenset(before)) is None


def test_a_reader_finds_what_came_and_went_among_thousands_of_names():
    random, folder = Random(7), Folder()
    folder.listed = [f"2026010100{n:07}.deltacommit.requested" for n in random.sample(range(10**6), 3000)]
    reader = TimelineReader(folder)
    for step in range(1, 201):
        known = reader.last
        gone = set(random.sample(folder.listed, random.choice((0, 0, 1))))
        fresh = [f"2026010200{step:07}_2026010200{step:07}.deltacommit"] * random.choice((0, 1, 1))
        if random.random() < 0.1:
            random.shuffle(folder.listed)
        if random.random() < 0.2:
            reader.noted(f"2026010300{step:07}_2026010300{step:07}.clean")
            known = reader.last
        folder.listed = changed(random, folder.listed, fresh, gone)
        view = reader.load()
        assert view.names == frozenset(folder.listed)
        assert view.since(known) == view.names - known.names
        fresh_view = TimelineReader(folder).load()
        assert view.completed == fresh_view.completed and view.pending == fresh_view.pending
        assert view.with_file("20260105000000000_20260105000000001.commit").completed[-1].action == "commit"
