"""Goal: an index that is built beside writers holds every row of every instant, whoever commits, stops or
dies meanwhile; a build that fails leaves the table without it.

Method: at each step of a build something else happens: writers that began before or after commit, are rolled
back or die; compactions and cleans run; other processes drop or build the same index. The builder dies at
every call that changes the file system. Afterwards ``validate_metadata`` finds no difference to the data,
and scans by way of the index and without it give the same rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.cli.main import main
from mainstem.errors import Invalid, RolledBack, Unavailable, Unsupported
from mainstem.formats.avro_container import OUR_MARK
from mainstem.indexing import creating, index_build
from mainstem.indexing.initial_rows import InitialRows
from mainstem.layout import properties
from mainstem.metadata.commits.partition_rows import Maintained
from mainstem.options import INDEX_TIMEOUT, STATS_GROUPS
from mainstem.storage import paths
from mainstem.timeline.index_records import load_index_plan
from mainstem.writers import publish_with_metadata
from mainstem.writers.context import WriterContext
from tests.indexing.dying import deaths
from tests.services.city_table import QUICK, aged, content, layered, make, rows
from tests.storage.steps import Dead

pytestmark = pytest.mark.supports("Indexes", "builds: listed, built, rebuilt and dropped while writers run")

KINDS = ("files", "column_stats")
MOMENTS = ("planned", "open", "read", "written", "completed", "whole")
#: the kinds differ in their rows alone
CASES = [("files", moment) for moment in MOMENTS] + [("column_stats", "open"), ("column_stats", "written")]
DURING = [case for case in CASES if case[1] != "whole"]


@pytest.fixture(autouse=True)
def maintained(monkeypatch):
    """What a build needs of the writers."""
    monkeypatch.setattr(properties, "MAINTAINED", frozenset(KINDS))


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    return layered(make(tmp_path / "t", hoodie__clean__commits__retained="1"))


def opened(table: mainstem.Table, **more: str) -> mainstem.Table:
    return mainstem.open_table(table.path, {**QUICK, "hoodie.clean.commits.retained": "1", **more})


def listed(table: mainstem.Table) -> dict[str, str]:
    found = opened(table).properties
    return {k: found.get(f"hoodie.table.metadata.partitions{k}", "") for k in ("", ".inflight")}


def check(table: mainstem.Table) -> None:
    """The metadata table agrees with the data, and so do scans with it and without it."""
    report = opened(table).validate_metadata()
    assert report.ok, report.differences
    with_it = content(opened(table))
    assert with_it.equals(content(opened(table, **{"hoodie.metadata.enable": "false"})))
    assert pairs_are_single(table)


def pairs_are_single(table: mainstem.Table) -> bool:
    keys = content(table)["_hoodie_record_key"].to_pylist()
    return len(keys) == len(set(keys))


def at(monkeypatch, moment: str, act: Callable[[], object]) -> list[object]:
    """Do something when a build comes to this step for the first time; what it gave."""
    done: list[object] = []

    def once() -> None:
        if not done:
            done.append(None)
            done[0] = act()

    def wrap(owner: object, name: str, *, before: bool) -> None:
        real = getattr(owner, name)

        def step(*args, **options):
            if before:
                once()
            found = real(*args, **options)
            if not before:
                once()
            return found

        monkeypatch.setattr(owner, name, step)

    places = {
        "planned": (index_build, "schedule", False),
        "open": (InitialRows, "of_listing", True),
        "read": (InitialRows, "of_listing", False),
        "written": (index_build._Build, "_complete", True),
        "completed": (index_build._Build, "_complete", False),
    }
    if moment in places:
        owner, name, before = places[moment]
        wrap(owner, name, before=before)
    return done


# ---------------------------------------------------------------------------------------- alone


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_of_a_live_table_agrees_with_the_data_and_goes_on_doing_so(table, kind):
    before = content(table)
    built = table.create_index(kind)
    assert built.index == kind and built.rows and built.files and "built by" in built.describe()
    assert listed(table)[""].split(",")[-1] == "files" and not listed(table)[".inflight"]
    check(table)
    assert content(opened(table)).equals(before)
    for step in (opened(table).upsert, opened(table).bulk_insert):
        step(rows(range(20, 30), 4))
        check(table)
    opened(table).compact()
    opened(table).clean()
    check(table)
    # The plan and its end are Java's, and name one partition.
    *_, done = [i for i in opened(table).timeline() if i.action == "indexing"]
    assert done.is_completed and done.requested == built.action
    (plan,) = load_index_plan(opened(table).opened.seams.storage, built.action)
    assert plan.partition == kind and plan.extra == {}


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_table_can_have_an_index(tmp_path, kind):
    table = make(tmp_path / "empty")
    table.create_index(kind)
    check(table)
    opened(table).upsert(rows(range(4), 1))
    check(table)


def test_java_is_told_to_keep_up_the_metadata_table_that_a_table_has_from_now_on(table):
    kept = opened(table).config.raw
    assert kept["hoodie.metadata.enable"] == "false", "Java's Spark writers take it as their default"
    table.create_index("files")
    told = opened(table).config.raw
    assert told["hoodie.metadata.enable"] == "true"
    assert told["hoodie.metadata.auto.delete.partitions"] == "false"


def test_an_index_that_is_there_is_not_built_again(table):
    table.create_index("files")
    with pytest.raises(Invalid, match="there already"):
        opened(table).create_index("files")
    check(table)


# ----------------------------------------------------------------------------- the races of RFC-45


@pytest.mark.parametrize(("kind", "moment"), CASES)
def test_a_writer_in_flight_since_before_the_plan_is_in_the_index(table, monkeypatch, kind, moment):
    early = opened(table)
    txn = early.begin()
    txn.write(rows(range(2, 8), 10, "early"))
    done = at(monkeypatch, moment, txn.commit)
    opened(table).create_index(kind)
    if not done:
        txn.commit()
    check(table)
    assert "early2" in content(table)["value"].to_pylist()


@pytest.mark.parametrize(("kind", "moment"), CASES)
def test_a_writer_that_begins_and_commits_meanwhile_is_in_the_index(table, monkeypatch, kind, moment):
    at(monkeypatch, moment, lambda: opened(table).upsert(rows(range(2, 8), 10, "late")))
    opened(table).create_index(kind)
    if moment == "whole":
        opened(table).upsert(rows(range(2, 8), 10, "late"))
    check(table)
    assert "late2" in content(table)["value"].to_pylist()


@pytest.mark.parametrize(("kind", "moment"), DURING)
def test_holes_in_the_timeline_do_not_matter(table, monkeypatch, kind, moment):
    """A write that completes below completed ones, another that is aborted, one that dies."""
    early, gone, dead = (opened(table).begin() for _ in range(3))
    for number, txn in enumerate((early, gone, dead)):
        txn.write(rows(range(6), 10 + number, f"hole{number}-"))
    opened(table).upsert(rows(range(9), 20, "above"))

    def act() -> None:
        early.commit()
        gone.abort()

    at(monkeypatch, moment, act)
    opened(table).create_index(kind)
    aged(table)
    assert [r.instant for r in opened(table).rollback_failed_writes()] == [dead.instant]
    with pytest.raises(RolledBack):
        dead.commit()
    check(table)


@pytest.mark.parametrize(("kind", "moment"), CASES)
def test_services_that_run_meanwhile_are_in_the_index(table, monkeypatch, kind, moment):
    """Files that appear and go while the index is built do not come back."""

    def act() -> None:
        other = opened(table)
        other.upsert(rows(range(10), 10, "more"))
        assert other.compact()
        other.upsert(rows(range(10), 11, "still more"))
        assert other.compact()
        assert other.clean()[0].deleted

    done = at(monkeypatch, moment, act)
    opened(table).create_index(kind)
    if not done:
        act()
    check(table)


@pytest.mark.parametrize(("kind", "moment"), DURING)
def test_a_compaction_and_a_clean_in_flight_all_the_time_are_in_the_index(table, monkeypatch, kind, moment):
    opened(table).upsert(rows(range(10), 9))
    planned = opened(table).schedule_compaction()
    assert planned and opened(table).schedule_clean()

    def act() -> None:
        assert opened(table).run_compaction() and opened(table).clean()

    at(monkeypatch, moment, act)
    opened(table).create_index(kind)
    check(table)


# ------------------------------------------------------------------------ writers of other engines


def unmark(table: mainstem.Table, instant: str) -> None:
    """Make a pending write look like another engine's."""
    path = Path(table.path) / paths.timeline_file(f"{instant}.deltacommit.inflight")
    path.write_bytes(path.read_bytes().replace(OUR_MARK.encode(), b"x" * len(OUR_MARK)))


@contextmanager
def leaving_it_out(monkeypatch) -> Iterator[None]:
    """Who commits has not looked at the lists of indexes; what it wrote is settled all the same."""

    def no_rows(ctx, instant, changes, settle, **_) -> None:
        if settle is not None:
            settle([])

    with monkeypatch.context() as blind:
        blind.setattr(publish_with_metadata, "_prepare", no_rows)
        blind.setattr(Maintained, "now", lambda *_, **__: Maintained())
        yield


@pytest.mark.filterwarnings("ignore::mainstem.publish.publisher.MixedWritersWarning")
def test_a_write_of_another_engine_in_flight_is_waited_for_and_names_itself_when_it_does_not_end(table):
    txn = opened(table).begin()
    txn.write(rows(range(4), 10))
    unmark(table, txn.instant)
    with pytest.raises(Unavailable, match=f"deltacommit {txn.instant} of another engine.*did not end within"):
        opened(table, **{INDEX_TIMEOUT: "0"}).create_index("files")
    assert listed(table) == {"": "", ".inflight": ""} and not opened(table).indexes()
    txn.commit()
    opened(table).create_index("files")
    check(table)


@pytest.mark.filterwarnings("ignore::mainstem.publish.publisher.MixedWritersWarning")
@pytest.mark.parametrize("moment", ["open", "read", "written"])
def test_what_a_writer_left_out_that_did_not_look_at_the_lists_is_made_up_for(table, monkeypatch, moment):
    txn = opened(table).begin()
    txn.write(rows(range(2, 8), 10, "blind"))
    unmark(table, txn.instant)

    def act() -> None:
        with leaving_it_out(monkeypatch):
            txn.commit()

    at(monkeypatch, moment, act)
    monkeypatch.setattr(index_build, "_POLL_MS", 1)
    opened(table).create_index("files")
    check(table)
    assert "blind2" in content(table)["value"].to_pylist()


class Passing:
    """A clock on which time passes when it is told to; ``sleep_ms`` does what ``on_sleep`` says."""

    def __init__(self, clock: object) -> None:
        self._clock, self._passed = clock, 0
        self.on_sleep: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> object:
        return getattr(self._clock, name)

    def monotonic_ms(self) -> float:
        return self._clock.monotonic_ms() + self._passed

    def sleep_ms(self, _: float) -> None:
        self.on_sleep()

    def passes(self, seconds: int) -> None:
        self._passed += 1000 * seconds


def on_a_clock(table: mainstem.Table) -> tuple[WriterContext, Passing]:
    ctx = opened(table).index_context()
    clock = Passing(ctx.seams.clock)
    ctx.seams = dataclasses.replace(ctx.seams, clock=clock)
    return ctx, clock


@pytest.mark.filterwarnings("ignore::mainstem.publish.publisher.MixedWritersWarning")
def test_however_long_a_build_takes_a_write_of_another_engine_has_time_to_end_behind_it(table, monkeypatch):
    txn = opened(table).begin()
    txn.write(rows(range(4), 10, "theirs"))
    unmark(table, txn.instant)
    ctx, clock = on_a_clock(table)
    clock.on_sleep = txn.commit
    at(monkeypatch, "read", lambda: clock.passes(24 * 3600))
    creating.create_index(ctx, "files", [], {})
    check(table)
    assert "theirs2" in content(table)["value"].to_pylist()


@pytest.mark.filterwarnings("ignore::mainstem.publish.publisher.MixedWritersWarning")
def test_a_build_that_does_not_catch_up_with_writers_that_leave_it_out_ends(table, monkeypatch):
    ctx, clock = on_a_clock(table)
    real, rounds = index_build._Build._complete, []

    def complete(self, coverage):
        rounds.append(clock.passes(400))
        assert len(rounds) < 10
        with leaving_it_out(monkeypatch):
            opened(table).upsert(rows(range(4), 10 + len(rounds)))
        return real(self, coverage)

    monkeypatch.setattr(index_build._Build, "_complete", complete)
    with pytest.raises(Unavailable, match=f"did not catch up within {INDEX_TIMEOUT}"):
        creating.create_index(ctx, "files", [], {})
    assert len(rounds) == 3 and listed(table) == {"": "", ".inflight": ""}


def test_a_clean_that_did_not_look_at_the_lists_stops_the_build(table, monkeypatch):
    def act() -> None:
        with leaving_it_out(monkeypatch):
            assert opened(table).clean()[0].deleted

    at(monkeypatch, "read", act)
    with pytest.raises(Unavailable, match="removed files while it was being built"):
        opened(table).create_index("files")
    assert listed(table) == {"": "", ".inflight": ""}
    opened(table).create_index("files")
    check(table)


def test_a_rollback_of_what_the_index_holds_stops_the_build(table, monkeypatch):
    """Ours refuse to; Java's take an instant off the timeline first."""
    last = opened(table).upsert(rows(range(4), 10))
    name = f"{last.instant}_{last.completion_time}.deltacommit"
    at(monkeypatch, "read", (Path(table.path) / paths.timeline_file(name)).unlink)
    with pytest.raises(Unavailable, match="was taken back while the index files was being built"):
        opened(table).create_index("files")
    assert listed(table) == {"": "", ".inflight": ""}


# --------------------------------------------------------------------- others who build and drop


@pytest.mark.parametrize("moment", MOMENTS[:-2])
def test_an_index_that_is_dropped_while_it_is_built_is_gone(table, monkeypatch, moment):
    done = at(monkeypatch, moment, lambda: opened(table).drop_index("files"))
    with pytest.raises(Unavailable, match="was dropped"):
        opened(table).create_index("files")
    assert done[0].actions and listed(table) == {"": "", ".inflight": ""}
    left = [f.name for f in Path(table.path).rglob(f"*{done[0].actions[0]}*")]
    assert left == []
    opened(table).create_index("files")
    check(table)


def test_a_build_that_was_dropped_before_its_name_moved_does_not_move_that_of_the_next_build(
    table, monkeypatch
):
    real = index_build._Build._complete

    def complete(self, coverage):
        done = real(self, coverage)
        monkeypatch.setattr(index_build._Build, "_complete", real)
        opened(table).drop_index("files")
        monkeypatch.setattr(index_build._Build, "_write_bases", dies)
        with pytest.raises(Dead):
            opened(table).create_index("files")
        return done

    def dies(*_):
        raise Dead

    monkeypatch.setattr(index_build._Build, "_complete", complete)
    with pytest.raises(Unavailable, match="was dropped"):
        opened(table).create_index("files")
    assert listed(table) == {"": "", ".inflight": "files"}, "empty, and readers would believe it"
    assert content(opened(table)).num_rows == 10


@pytest.mark.parametrize("moment", MOMENTS[:-2])
def test_of_two_builders_one_builds(table, monkeypatch, moment):
    def act() -> object:
        with pytest.raises(Invalid, match="whose process lives"):
            opened(table).create_index("files")
        return True

    done = at(monkeypatch, moment, act)
    opened(table).create_index("files")
    assert done == [True]
    check(table)


@pytest.mark.parametrize("moment", MOMENTS[:-2])
def test_a_builder_that_stood_still_until_it_counted_as_dead_publishes_nothing(table, monkeypatch, moment):
    def act() -> object:
        aged(table)
        return opened(table).create_index("files")

    done = at(monkeypatch, moment, act)
    with pytest.raises(Unavailable, match="its builder taken for dead"):
        opened(table).create_index("files")
    check(table)
    opened(table).upsert(rows(range(20), 30))
    check(table)
    (finished,) = [i for i in opened(table).timeline() if i.action == "indexing"]
    assert finished.requested == done[0].action


# --------------------------------------------------------------------------------------- crashes


def building(table: mainstem.Table) -> list[str]:
    return [i.requested for i in opened(table).timeline() if i.action == "indexing" and not i.is_completed]


@pytest.mark.parametrize("kind", KINDS)
def test_a_builder_that_dies_at_any_call_hinders_nobody_and_the_next_ends_it(table, tmp_path, kind):
    before = content(table)
    states = set()
    if kind != "files":
        table.create_index("files")

    def make_index(ctx: WriterContext) -> None:
        creating.create_index(ctx, kind, [], {})

    died = deaths(table.path, tmp_path, make_index, QUICK, every=5 if kind == "files" else 11)
    for number, copy in enumerate(mainstem.open_table(path, QUICK) for path in died):
        found = listed(copy)
        states.add((found[""], found[".inflight"]))
        assert content(copy).equals(before)
        assert content(copy, filter=pc.field("ts") >= 0).equals(before)
        aged(copy)
        if number % 2:
            opened(copy).upsert(rows(range(4), 30, "after"))
            assert "after2" in content(copy)["value"].to_pylist()
        if number % 5 == 4 and (kind != "files" or "files" not in listed(copy)[""]):
            opened(copy).drop_index(kind, if_exists=True)
        if number % 3 == 2:
            (run,) = opened(copy).run_services("metadata")
            assert run.error is None
            assert listed(copy)[".inflight"] == "" and not building(copy)
        if kind not in listed(copy)[""]:
            opened(copy).create_index(kind)
        check(copy)
        opened(copy).upsert(rows(range(4), 31, "and after"))
        check(copy)
    whole = ",".join(sorted({kind, "files"}))
    without = "" if kind == "files" else "files"
    assert {(without, ""), (without, kind)} <= states <= {(without, ""), (without, kind), (whole, "")}


# ------------------------------------------------------------------------- rebuilding, more at once


def test_a_rebuilt_index_is_of_the_same_columns_and_what_was_wrong_in_it_is_gone(table):
    opened(table).create_index("column_stats", ["ts", "value"])
    (index,) = [i for i in opened(table).indexes() if i.name == "column_stats"]
    for file in (Path(table.path) / ".hoodie/metadata/column_stats").glob("*.hfile"):
        file.unlink()
    assert not opened(table).validate_metadata().ok
    built = opened(table).reindex("column_stats")
    assert built.index == "column_stats"
    assert [i.columns for i in opened(table).indexes() if i.name == "column_stats"] == [index.columns]
    check(table)
    with pytest.raises(Invalid, match="no index is called"):
        opened(table).reindex("partition_stats")
    with pytest.raises(Invalid, match="column_stats cannot be without files"):
        opened(table).reindex("files")


def test_an_index_is_dropped_and_created_again_with_other_file_groups_while_a_writer_is_in_flight(table):
    opened(table).create_index("column_stats")
    txn = opened(table).begin()
    txn.write(rows(range(8), 10, "over"))
    opened(table).drop_index("column_stats")
    check(table)
    opened(table).create_index("column_stats", options={STATS_GROUPS: "7"})
    txn.commit()
    check(table)
    opened(table).drop_index("column_stats")
    opened(table).upsert(rows(range(8), 11))
    check(table)
    assert listed(table) == {"": "files", ".inflight": ""}


def test_the_commands_create_rebuild_and_list(table, capsys):
    assert main(["index", "create", table.path, "column_stats", "--columns", "ts"]) == 0
    assert "index column_stats built by" in capsys.readouterr().out
    assert main(["index", "rebuild", table.path, "column_stats", "--json"]) == 0
    capsys.readouterr()
    assert main(["index", "list", table.path]) == 0
    assert "_hoodie_record_key, ts, ready" in capsys.readouterr().out
    assert main(["index", "create", table.path, "column_stats"]) == 1
    assert "there already" in capsys.readouterr().err
    assert main(["index", "create", table.path, "column_stats", "--columns", "nothing"]) == 1
    check(table)


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("columns", "why"),
    [(["nothing"], "has no column 'nothing'"), (["ts", "ts"], "named twice"), (["tags"], "no smallest"),
     (["id.inner"], "no smallest")],
)  # fmt: skip
def test_columns_that_cannot_be_indexed_are_refused_and_nothing_changes(tmp_path, columns, why):
    table = make(tmp_path / "odd")
    odd = rows(range(4), 1)
    table.upsert(odd.append_column("tags", pa.array([["a"]] * 4, pa.list_(pa.string()))))
    with pytest.raises(Invalid, match=why):
        opened(table).create_index("column_stats", columns)
    assert opened(table).indexes() == []


@pytest.mark.filterwarnings("ignore::mainstem.publish.publisher.MixedWritersWarning")
def test_options_that_no_index_has_are_refused_and_the_time_for_catching_up_is_one(table):
    for kind, option in (("column_stats", "hoodie.bogus"), ("files", "expr"), ("column_stats", "bogus")):
        with pytest.raises(Invalid, match=f"the option '{option}' of an index of the kind {kind}"):
            table.create_index(kind, options={option: "1"})
    txn = opened(table).begin()
    txn.write(rows(range(4), 10))
    unmark(table, txn.instant)
    with pytest.raises(Unavailable, match="did not end within"):
        opened(table).create_index("files", options={INDEX_TIMEOUT: "0"})
    with pytest.raises(Invalid, match=INDEX_TIMEOUT):
        opened(table).create_index("files", options={INDEX_TIMEOUT: "soon"})
    assert listed(table) == {"": "", ".inflight": ""}


def test_a_partition_with_hudis_name_for_all_of_them_and_a_metadata_table_exclude_each_other(tmp_path):
    strange = rows([1], 1).set_column(1, "city", pa.array(["__all_partitions__"]))
    table = make(tmp_path / "without")
    table.upsert(strange)
    with pytest.raises(Invalid, match="means all partitions by this name"):
        table.create_index("files")
    assert listed(table) == {"": "", ".inflight": ""} and content(table).num_rows == 1
    table = make(tmp_path / "with")
    table.create_index("files")
    with pytest.raises(Invalid, match="means all partitions by this name"):
        table.upsert(strange)
    opened(table).upsert(rows([2], 2))
    check(table)


def test_kinds_that_are_not_built_or_not_maintained_are_refused_and_nothing_changes(table, monkeypatch):
    before = sorted(p.name for p in Path(table.path).rglob("*"))
    for kind in ("btree", "vector_index", "", "files,column_stats"):
        with pytest.raises(Unsupported, match="index of the kind"):
            table.create_index(kind)
    monkeypatch.setattr(properties, "MAINTAINED", frozenset())
    with pytest.raises(Unsupported, match="do not maintain it"):
        table.create_index("files")
    with pytest.raises(Invalid, match="has no columns"):
        monkeypatch.setattr(properties, "MAINTAINED", frozenset({"files"}))
        table.create_index("files", ["id"])
    assert sorted(p.name for p in Path(table.path).rglob("*") if p.name != "lock-identity") == [
        name for name in before if name != "lock-identity"
    ]
