"""Goal: the view at a completion time never changes, however late, and in whatever order, others commit.

Method: Java's tables were copied several times while they were written: what Java read from a copy must
be what we read of the final table at the copy's newest completion time. Writers that cross at random, one
seed per case, with compactions in between, leave every view as it was first seen.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

import mainstem
from mainstem.errors import Invalid
from tests.golden_tables.tables import NAMES, encoded, expectations, row_text, unpack
from tests.readers.test_changes import create, rows

pytestmark = pytest.mark.versions
FORKS = [
    (name, name.split(".")[0])
    for name in NAMES
    if "." in name
    and name.split(".")[0] in NAMES
    and name.startswith(("nbcc_", "merge_", "log_", "clustering_mor", "killed_nbcc.", "v10_"))
    and name != "nbcc_two_writers_by_1_0_2.pending2"  # Java 1.0.2 fails on it
]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    return tmp_path_factory.mktemp("golden")


def newest(name):
    return max((i["completion"] for i in expectations(name)["instants"]), default=None)


@pytest.mark.supports("Queries", "time travel by completion time, an answer that never changes")
@pytest.mark.parametrize(("earlier", "final"), FORKS)
def test_the_final_table_at_a_copys_newest_time_is_what_java_read_from_the_copy(earlier, final, unpacked):
    table = mainstem.open_table(unpack(final, unpacked))
    moment = newest(earlier)
    known = {i["requested"] for i in expectations(final)["instants"]}
    assert {i["requested"] for i in expectations(earlier)["instants"]} <= known
    query = next(q for q in expectations(earlier)["queries"] if q["kind"] == "snapshot")
    java = expectations(earlier)["rowsets"][query["rowset"]]
    found = table.scan(as_of_completion=moment, columns=java["columns"]).to_arrow()
    assert encoded(found) == Counter(row_text(row) for row in java["rows"])


def test_a_view_whose_files_were_cleaned_is_refused_and_the_others_are_answered(unpacked):
    name = "clean_mor"
    table = mainstem.open_table(unpack(name, unpacked))
    travelled = {
        q["options"]["as.of.instant"]: q for q in expectations(name)["queries"] if q["kind"] == "time_travel"
    }
    outcomes = []
    for instant in expectations(name)["instants"]:
        query = travelled.get(instant["requested"], {})
        try:
            found = table.scan(as_of_completion=instant["completion"]).to_arrow()
        except Invalid as refused:
            assert "a clean has removed" in str(refused)
            outcomes.append("refused")
            continue
        outcomes.append("answered")
        if "rowset" in query:  # one writer: completed and requested in the same order
            java = expectations(name)["rowsets"][query["rowset"]]["rows"]
            assert encoded(found) == Counter(row_text(row) for row in java)
    assert outcomes == sorted(outcomes, key=["refused", "answered"].index)
    assert {"refused", "answered"} == set(outcomes)


def test_times_that_are_not_settled_or_not_times_are_refused(tmp_path, unpacked):
    table = create(tmp_path / "t")
    with pytest.raises(Invalid, match="nothing was completed yet"):
        table.scan(as_of_completion="20200101000000000").to_arrow()
    done = table.upsert(rows((1, "a", 1, "x")))
    later = f"{int(done.completion_time) + 1:017d}"
    with pytest.raises(Invalid, match=f"after the newest completion time {done.completion_time}"):
        table.scan(as_of_completion=later).to_arrow()
    with pytest.raises(Invalid, match="is no time"):
        table.scan(as_of_completion="soon")
    with pytest.raises(Invalid, match="exclude each other"):
        table.scan(as_of=done.instant, as_of_completion=done.completion_time)
    restored = mainstem.open_table(unpack("savepoint_restore", unpacked))
    first = expectations("savepoint_restore")["instants"][0]["completion"]
    with pytest.raises(Invalid, match="before the restore"):
        restored.scan(as_of_completion=first).to_arrow()


def test_a_late_completion_changes_time_travel_and_not_the_view_by_completion_time(tmp_path):
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "x")))
    slow = table.begin()
    slow.write(rows((2, "a", 1, "slow")))
    quick = table.upsert(rows((3, "a", 1, "quick")))
    before = table.scan(as_of_completion=quick.completion_time).to_arrow()
    slow.commit()
    assert sorted(before.column("id").to_pylist()) == [1, 3]
    travelled = table.scan(as_of=quick.instant).to_arrow()
    assert sorted(travelled.column("id").to_pylist()) == [1, 2, 3]  # it was requested before
    assert encoded(table.scan(as_of_completion=quick.completion_time).to_arrow()) == encoded(before)


@pytest.mark.parametrize("seed", range(4))
def test_views_stay_as_they_were_first_seen_whatever_happens_later(seed, tmp_path):
    rng = random.Random(seed)
    table = create(tmp_path / "t")
    open_writers, views, number = [], {}, 0
    for _ in range(14):
        action = rng.choice(["begin", "begin", "commit", "commit", "delete", "compact"])
        number += 1
        if action == "begin":
            writer = table.begin()
            values = [(k, "a", rng.randrange(9), f"v{number}") for k in rng.sample(range(8), 3)]
            writer.write(rows(*values))
            open_writers.append(writer)
            continue
        if action == "commit" and open_writers:
            open_writers.pop(rng.randrange(len(open_writers))).commit()
        elif action == "delete":
            table.delete(rows((rng.randrange(8), "a", 1, "x")).select(["id", "city"]))
        elif action == "compact":
            table.compact()
        done = [i.completion for i in table.timeline() if i.completion is not None]
        if done:
            views[max(done)] = encoded(table.scan().to_arrow())
        for moment, seen in views.items():
            assert encoded(table.scan(as_of_completion=moment).to_arrow()) == seen, moment
    assert len(views) > 4
    for writer in open_writers:
        writer.abort()
