"""What can be done to a table, one function each, through the public interface.

An action does its work on the table, tells the model what it was, and raises ``Finding`` for what must not
be. Refusals (``MainstemError``) are allowed where the function says so, and then nothing may have changed:
the table is compared with the model after every action.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import mainstem
from mainstem.errors import MainstemError
from mainstem.vectors.distances import METRICS, pair_distances
from tests.fuzz.histories.filters import expression
from tests.fuzz.histories.ledger import answer_of
from tests.fuzz.histories.model import Compaction, Write, values_of
from tests.fuzz.histories.shapes import DELETED
from tests.fuzz.histories.values import KINDS, WIDER, cells
from tests.fuzz.histories.world import Finding, Held, World, bag

Action = Callable[[World, random.Random], None]
_CHANGE = "_change_type"


@contextmanager
def _refusable(world: World, action: str, when: bool = True) -> Iterator[None]:
    """A refusal within is allowed if ``when``."""
    try:
        yield
    except MainstemError as error:
        if not when:
            raise Finding(f"{action} was refused: {type(error).__name__}: {error}") from error
        world.refusal(action, error)


# -- writes ---------------------------------------------------------------------------------------------


def upsert(world: World, chance: random.Random) -> None:
    """Full rows, in one commit."""
    rows = world.rows(chance)
    name = chance.choice(("upsert", "upsert", "insert"))
    with _refusable(world, name, not world.plain(rows)):
        outcome = getattr(world.table, name)(world.arrow(rows))
        world.committed(outcome, world.operations(name, rows))


def delete(world: World, chance: random.Random) -> None:
    """Keys, some of which the table has."""
    rows = world.rows(chance, world.key_names)
    with _refusable(world, "delete", not world.plain(rows)):
        outcome = world.table.delete(world.arrow(rows))
        world.committed(outcome, world.operations("delete", rows))


def bulk_insert(world: World, chance: random.Random) -> None:
    """Full rows, to base files where there are none. May lose against a transaction that is open."""
    rows = world.rows(chance)
    with _refusable(world, "bulk_insert", not world.plain(rows) or world.held is not None):
        places, occupied = world.placed(rows), world.occupied()
        based = frozenset(where for where, place in places.items() if place not in occupied)
        outcome = world.table.bulk_insert(world.arrow(rows))
        world.committed(outcome, world.operations("bulk_insert", rows, based), based)


def update_columns(world: World, chance: random.Random) -> None:
    """Some columns of rows, where the table has partial updates."""
    if not world.model.mode.partial:
        return
    needed = [*world.key_names, *(world.shape.orders if world.model.mode.event_time else ())]
    others = [n for n in world.model.columns_at() if n not in needed and n != DELETED]
    given = [name for name in others if chance.random() < 0.5]
    rows = world.rows(chance, [*needed, *given])
    empty = any(row[name] is None for row in rows for name in given)
    with _refusable(world, "update_columns", empty or not world.plain(rows)):
        outcome = world.table.update_columns(world.arrow(rows))
        full = [dict.fromkeys(world.model.columns_at()) | row for row in rows]
        world.committed(outcome, world.operations("update_columns", full))


def transaction(world: World, chance: random.Random) -> None:
    """Several writes in one transaction, some of them refused, then a commit or an abort."""
    operation = chance.choice(("upsert", "upsert", "insert", "delete"))
    done: list[Any] = []
    txn = world.table.begin(operation)
    try:
        for _ in range(chance.randrange(1, 4)):
            rows = world.rows(chance, world.key_names if operation == "delete" else None)
            if chance.random() < 0.3:
                _refused_write(world, chance, txn.write, delete=operation == "delete")
            with _refusable(world, f"write of a transaction ({operation})", not world.plain(rows)):
                txn.write(world.arrow(rows))
                done += world.operations(operation, rows)
        if chance.random() < 0.3:
            txn.abort()
            return
        outcome = txn.commit()
    except BaseException:
        txn.abort()
        raise
    world.committed(outcome, done)


def hold(world: World, chance: random.Random) -> None:
    """Begin a transaction that later actions find open, write to it, or end it."""
    if world.held is None:
        world.held = Held(mainstem.open_table(world.path, world.options).begin("upsert"))
        return
    held = world.held
    which = chance.random()
    if which < 0.5:
        rows = world.rows(chance, held.columns or None)
        with _refusable(world, "write of an open transaction", not world.plain(rows)):
            held.transaction.write(world.arrow(rows))
            held.operations += world.operations("upsert", rows)
            held.columns = tuple(rows[0])
    elif which < 0.9:
        world.held = None
        world.committed(held.transaction.commit(), held.operations)
    else:
        world.held = None
        held.transaction.abort()


def _refused_write(
    world: World, chance: random.Random, write: Callable[[Any], object], delete: bool = False
) -> None:
    """A batch of which one row must be refused: nothing of it may be written."""
    rows = world.rows(chance, world.key_names if delete else None)
    batch = world.arrow(rows)
    which = chance.randrange(5)
    if which == 0:
        given: Any = batch.drop_columns([next(iter(world.shape.keys))])
    elif which == 1 and len(world.shape.keys) == 1:
        key = next(iter(world.shape.keys))
        nulls = pa.nulls(1, batch.schema.field(key).type)
        one = (
            pa.concat_arrays([batch.column(key).slice(1).combine_chunks(), nulls]) if len(rows) > 1 else nulls
        )
        given = batch.set_column(batch.schema.get_field_index(key), key, one)
    elif which == 2 and world.model.mode.event_time and not delete:
        name = next(iter(world.shape.orders))
        nulls = pa.nulls(len(rows), batch.schema.field(name).type)
        given = batch.set_column(batch.schema.get_field_index(name), name, nulls)
    elif which == 3:
        key = next(iter(world.shape.keys))
        given = {name: list(batch.column(name)) for name in batch.schema.names}
        given[key] = ["\ud800"] * len(rows)
    else:
        key = next(iter(world.shape.keys))
        kind = pa.list_(pa.int32())
        given = batch.set_column(batch.schema.get_field_index(key), key, pa.nulls(len(rows), kind))
    try:
        write(given)
    except MainstemError as error:
        world.refusal("refused batch", error)
    else:
        raise Finding(f"a batch with a bad row was taken: case {which}")


def refused(world: World, chance: random.Random) -> None:
    """A batch that must be refused."""
    which = chance.choice(("upsert", "insert", "bulk_insert", "delete"))
    _refused_write(world, chance, getattr(world.table, which), delete=which == "delete")


def evolve(world: World, chance: random.Random) -> None:
    """A batch with a new column, or numbers that a column cannot hold."""
    names = list(world.model.columns_at())
    number = world.evolved
    world.evolved += 1
    widened = [n for n in names if world.kinds[n].name in WIDER and n.startswith(("c", "n"))]
    kinds = dict(world.kinds)
    if widened and chance.random() < 0.5:
        name = chance.choice(widened)
        wider = KINDS[chance.choice(WIDER[world.kinds[name].name])]
        if "vec" in (name,) or wider.name not in ("long", "double"):
            return
        world.kinds = {**kinds, name: wider}
        rows = world.rows(chance)
    else:
        name = f"n{number}"
        kind = KINDS[chance.choice([k for k in KINDS if k != "vector"])]
        world.kinds = {**kinds, name: kind}
        rows = world.rows(chance, [*names, name])
    batch = world.arrow(rows)
    old, world.kinds = world.kinds, kinds
    with _refusable(world, "evolving write", not world.plain(rows) or _indexed(world)):
        outcome = world.table.upsert(batch)
        world.kinds = old
        world.committed(outcome, world.operations("upsert", rows))


def _indexed(world: World) -> bool:
    return any(index.kind != "files" for index in world.table.indexes())


# -- services -------------------------------------------------------------------------------------------


def compact(world: World, chance: random.Random) -> None:
    """Plan a compaction, execute one, or both."""
    planned = world.model.planned()
    if planned is None and chance.random() < 0.4:
        time = world.table.schedule_compaction()
        if time is not None:
            world.model.events.append(Compaction(time))
        return
    if chance.random() < 0.5:
        done = world.table.run_compaction()
    else:
        done = world.table.compact()
    for one in done:
        if one.completion is None:
            raise Finding(f"compaction {one.requested} did not complete")
        if planned is not None and one.requested == planned.requested:
            planned.completed = one.completion
        else:
            world.model.events.append(Compaction(one.requested, one.completion))


def log_compact(world: World, chance: random.Random) -> None:
    """Refused beside open transactions. Changes no row."""
    with _refusable(world, "log_compact", world.held is not None):
        world.table.log_compact(if_due=chance.random() < 0.3)


def clean(world: World, chance: random.Random) -> None:
    """Remove old files."""
    world.answers.removals += 1
    world.table.clean()


def archive(world: World, chance: random.Random) -> None:
    """Move old instants into the archive: no answer may change, none may be refused for it."""
    if world.table.archive() is not None:
        world.archived = True


def services(world: World, chance: random.Random) -> None:
    """A round of services, whose compactions the model learns of from the timeline."""
    world.answers.removals += 1
    only = chance.choice(
        ("log-compact,clean,metadata,archive", "metadata", "vectors", "rollback,clean,archive")
    )
    for run in world.table.run_services(only=only):
        if run.error is not None and world.held is None:
            raise Finding(f"service {run.service}: {type(run.error).__name__}: {run.error}") from run.error


def savepoint(world: World, chance: random.Random) -> None:
    """Keep the newest instant, or delete a savepoint."""
    if world.savepoints and chance.random() < 0.2:
        instant = chance.choice(sorted(world.savepoints))
        world.table.delete_savepoint(instant)
        del world.savepoints[instant]
        return
    with _refusable(world, "savepoint"):
        made = world.table.savepoint()
        if made.instant not in world.savepoints:
            done = next(i.completion for i in world.table.timeline() if i.requested == made.instant
                        and i.action in ("commit", "deltacommit"))  # fmt: skip
            world.savepoints[made.instant] = done


def restore(world: World, chance: random.Random) -> None:
    """Back to a savepoint; refused beside an open transaction, or below another savepoint."""
    if not world.savepoints:
        return
    instant = chance.choice(sorted(world.savepoints))
    newest = instant == max(world.savepoints)
    completed = world.savepoints[instant]
    with _refusable(world, "restore", world.held is not None or not newest):
        world.answers.removals += 1
        world.restored = max(i.completion or "" for i in world.table.timeline())
        world.table.restore(instant)
        world.model.events = [e for e in world.model.events if _stays(e, instant, completed)]
        world.savepoints = {t: s for t, s in world.savepoints.items() if s <= completed}
        world.answers.forget("as_of", "changes")  # they tell what stands by now


def _stays(event: Write | Compaction, instant: str, completed: str) -> bool:
    if isinstance(event, Compaction):
        return event.requested <= instant
    return event.completed <= completed


def rollback(world: World, chance: random.Random) -> None:
    """Take back the write that completed last, where the table lets us."""
    writes = [e for e in world.model.events if isinstance(e, Write)]
    if not writes:
        return
    last = max(writes, key=lambda e: e.completed)
    with _refusable(world, "rollback"):
        world.answers.removals += 1
        world.table.rollback(last.requested)
        world.model.events.remove(last)
        world.savepoints.pop(last.requested, None)
        world.answers.forget("as_of", "changes")  # they tell what stands by now


def reopen(world: World, chance: random.Random) -> None:
    """Open the table anew, with other options of the process."""
    options: dict[str, object] = {"hoodie.mainstem.fsync": False}
    if chance.random() < 0.7:
        options |= {
            "hoodie.clean.commits.retained": chance.choice((1, 2)), "hoodie.keep.min.commits": 3,
            "hoodie.keep.max.commits": 4,
        }  # fmt: skip
    if chance.random() < 0.3:
        options["hoodie.logfile.data.block.format"] = "parquet"
    if chance.random() < 0.3:
        options["hoodie.logfile.max.size"] = 1024
    if chance.random() < 0.3:
        options["hoodie.parquet.block.size"] = 4096
    if chance.random() < 0.1:
        options["hoodie.metadata.enable"] = False
    if chance.random() < 0.1:
        options["hoodie.enable.data.skipping"] = False
    world.options = options
    with _refusable(world, "reopen"):
        world.table = mainstem.open_table(world.path, options)


# -- indexes --------------------------------------------------------------------------------------------


def create_index(world: World, chance: random.Random) -> None:
    """Of any kind, on any column: impossible ones are refused."""
    kind = chance.choice(
        ("files", "column_stats", "column_stats", "partition_stats", "bloom_filters", "record_index",
         "secondary_index", "expr_index", "vector")
    )  # fmt: skip
    names = list(world.model.columns_at())
    columns, options = [], {}
    if kind == "column_stats" and chance.random() < 0.5:
        columns = [n for n in names if chance.random() < 0.5 and n != DELETED]
    elif kind == "secondary_index":
        columns = [chance.choice(names)]
    elif kind == "expr_index":
        columns = [chance.choice(names)]
        options = {
            "expr": chance.choice(("upper", "lower", "identity", "abs", "length", "year", "month", "trim"))
        }
    elif kind == "vector":
        columns = ["vec"]
        options = {"engine": chance.choice(("flat", "flat", "hnsw")), "metric": chance.choice(METRICS)}
    with _refusable(world, f"create_index {kind}"):
        world.table.create_index(kind, columns, options=options or None)


def drop_index(world: World, chance: random.Random) -> None:
    """Drop or build anew one of the indexes."""
    known = world.table.indexes()
    if not known:
        return
    index = chance.choice(known)
    which = chance.choice(("drop", "reindex", "refresh"))
    with _refusable(world, f"{which} of {index.kind}"):
        if which == "drop":
            world.table.drop_index(index.partition)
        elif which == "reindex":
            world.table.reindex(index.partition)
        else:
            world.table.refresh_index(index.name)


def validate(world: World, chance: random.Random) -> None:
    """The metadata table says what the data says."""
    report = world.table.validate_metadata()
    if report is not None and not report.ok:
        raise Finding(
            f"validate_metadata is not ok:\n{report.describe() if hasattr(report, 'describe') else report}"
        )


# -- questions ------------------------------------------------------------------------------------------


def filtered(world: World, chance: random.Random) -> None:
    """Filters give the rows that they give when they follow a whole scan."""
    names = list(world.model.columns_at())
    whole = world.table.scan(columns=names).to_arrow()
    seen = {f.name: cells(whole.column(f.name))[:20] for f in whole.schema if not pa.types.is_nested(f.type)}
    kinds = {
        name: next((k for k in KINDS.values() if k.arrow == whole.schema.field(name).type), world.kinds[name])
        for name in names
    }
    for _ in range(6):
        asked = expression(kinds, chance, seen)
        try:
            wanted = whole.filter(asked)
        except (pa.ArrowException, NotImplementedError):
            continue
        columns = (
            names
            if chance.random() < 0.5
            else sorted(chance.sample(names, chance.randrange(1, len(names) + 1)))
        )
        plan = world.table.scan(columns=columns, filter=asked)
        found, expected = bag(plan.to_arrow()), bag(wanted.select(columns))
        if found != expected:
            raise Finding(
                f"filter {asked}: {found.total()} rows, expected {expected.total()}\n  columns {columns}"
                f"\n  missing {list(expected - found)[:3]!r}\n  not expected {list(found - expected)[:3]!r}"
                f"\n  {plan.explain()}"
            )
        if chance.random() < 0.3 and plan.count_rows() != expected.total():
            raise Finding(f"filter {asked}: count_rows {plan.count_rows()}, expected {expected.total()}")


def changes(world: World, chance: random.Random) -> None:
    """Rows and deletes of a range of completion times, held against the model's writes."""
    times = ["000", *sorted(e.completed for e in world.model.events if isinstance(e, Write))]
    if len(times) < 2:
        return None
    if "past" in world.without and world.evolved and world.archived:
        return None
    low = chance.randrange(len(times) - 1)
    after, until = times[low], times[chance.randrange(low + 1, len(times))]
    try:
        plan = world.table.changes(after, until, deletes=True)
        found = plan.to_arrow()
    except MainstemError as error:
        if not world.answers.removals:
            raise Finding(f"changes({after}, {until}) was refused: {error}") from error
        return world.refusal("changes", error)
    left = world.model.written(after, until)
    rows = {where: entry for where, entry in left.items() if isinstance(entry, dict)}
    # A row that the log files forget beneath a delete without ordering value meets nothing from before.
    upserts = found.filter(pc.equal(found.column(_CHANGE), "upsert"))
    user = upserts.select([n for n in upserts.schema.names if not n.startswith("_hoodie_") or n == DELETED])
    user = user.drop_columns([_CHANGE])
    expected, got = world.expected(rows, user.schema), bag(user)
    compacted = any(isinstance(e, Compaction) and after < e.completed for e in world.model.done(until))
    if compacted:  # it forgot rows that lost against rows from before the range, and deletes
        expected -= expected - world.expected(world.model.rows(until), user.schema) - got
    if expected != got:
        raise Finding(
            f"changes({after}, {until}): {got.total()} upserts, expected {expected.total()}"
            f"\n  columns {user.schema.names}\n  missing {list(expected - got)[:3]!r}"
            f"\n  not expected {list(got - expected)[:3]!r}"
        )
    gone = found.num_rows - upserts.num_rows
    if gone != len(left) - len(rows) and not compacted:
        raise Finding(f"changes({after}, {until}): {gone} deletes, expected {len(left) - len(rows)}")
    world.answers.note("changes", (after, until), answer_of(found))
    return None


def remember(world: World, chance: random.Random) -> None:
    """Ask for times that nobody asked for, and again for those that were."""
    times = [e for e in world.model.events if e.completed]
    if times and not ("past" in world.without and world.evolved and world.archived):
        event = chance.choice(times)
        with _refusable(world, "as_of_completion of an older time", world.answers.removals > 0):
            world.note_completion(event.completed)
        with _refusable(world, "as_of of an older time", world.answers.removals > 0):
            world.note_requested(event.requested)
    known = sorted(world.answers.noted)
    for query, asked in chance.sample(known, min(4, len(known))):
        ask_again(world, query, asked)


def ask_again(world: World, query: str, times: tuple[str, ...]) -> None:
    """An answer is the one that was given before, or a refusal where files may have gone since."""
    table = world.table
    if "past" in world.without and world.evolved and world.archived:
        return None
    try:
        if query == "changes":
            found = table.changes(*times, deletes=True).to_arrow()
        else:
            found = table.scan(**{query: times[0]}).to_arrow()
    except MainstemError as error:
        if not world.answers.may_refuse(query, times):
            raise Finding(f"{query} {times}, answered before, was refused: {error}") from error
        return world.refusal(f"{query} again", error)
    noted, now = world.answers.noted[query, times].answer, answer_of(found)
    if query == "changes" and noted != now:
        # Columns that came later may be shown, and rows of log files may come from a base file.
        noted, now = _common(noted, now)
    if noted != now:
        raise Finding(
            f"{query} {times} answered otherwise before\n  columns then {noted[0]}\n  columns now  {now[0]}"
            f"\n  missing {list(noted[1] - now[1])[:3]!r}\n  not expected {list(now[1] - noted[1])[:3]!r}"
        )
    return None


def _common(one: Any, other: Any) -> tuple[Any, Any]:
    """Two answers in the columns that both have in one type."""
    names = [n for n, kind in one[0] if dict(other[0]).get(n) == kind and n != "_hoodie_file_name"]

    def cut(answer: Any) -> tuple[Any, Counter]:
        places = [[n for n, _ in answer[0]].index(name) for name in names]
        made: Counter = Counter()
        for row, count in answer[1].items():
            made[tuple(row[place] for place in places)] += count
        return tuple((name, "") for name in names), made

    return cut(one), cut(other)


def search(world: World, chance: random.Random) -> None:
    """Nearest rows, held against distances of all rows of the model."""
    if "vec" not in world.model.columns_at():
        return
    rows = [values_of(row) for row in world.model.rows().values()]
    vectors = [row["vec"] for row in rows if row.get("vec") is not None]
    metric = chance.choice(METRICS)
    query = chance.choice((*KINDS["vector"].ordinary, *KINDS["vector"].hostile))
    k = chance.choice((1, 2, 5, 100))
    found = world.table.search("vec", query, k, metric=metric, exact=chance.random() < 0.3)
    given = np.array(vectors, np.float32).reshape(-1, 3)
    expected = np.sort(pair_distances(metric, np.array([query], np.float32), given))[:k]
    got = np.array(found.column("_hudi_distance").to_pylist(), float)
    if len(got) != len(expected) or not np.allclose(got, expected, rtol=1e-6, atol=1e-9, equal_nan=True):
        raise Finding(
            f"search {query} {metric} k={k}: distances {got.tolist()}, expected {expected.tolist()}"
        )


#: action and how often it comes, beside the others
ACTIONS: tuple[tuple[Action, int], ...] = (
    (upsert, 12), (delete, 4), (bulk_insert, 4), (update_columns, 4), (transaction, 4), (hold, 5),
    (refused, 2), (evolve, 4), (compact, 6), (log_compact, 3), (clean, 3), (archive, 4), (services, 2),
    (savepoint, 2), (restore, 2), (rollback, 2), (reopen, 4), (create_index, 5), (drop_index, 2),
    (validate, 3), (filtered, 12), (changes, 4), (remember, 6), (search, 3),
)  # fmt: skip
#: those after which the table need not be read again
QUESTIONS = (validate, filtered, changes, remember, search)
