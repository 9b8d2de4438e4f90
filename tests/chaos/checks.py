"""What must hold after a run, found from the writers' journals, the table's files, and two readers."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable
from mainstem.services.resizing import RESIZE
from tests.chaos.actors import BATCH_ROWS, SOURCES, flink_sink
from tests.chaos.changer import EDIT, edited
from tests.chaos.indexer import KINDS, build
from tests.chaos.rows import as_tuples, newest
from tests.hudi_rs.reading import read as read_with_hudi_rs
from tests.multiprocess import table_files
from tests.multiprocess.writer_worker import entries

if TYPE_CHECKING:
    from tests.chaos.harness import Harness

#: what a writer may be told: none of these means that another's commit was in its way
TOLD = {"LeaseLost", "RolledBack", "LockUnavailable", "Unavailable"}
#: ... on a store, too: a reply that was lost, and nobody answered the question how it ended
TOLD_OF_A_STORE = TOLD | {"OutcomeUnknown"}
#: ... who changes a table: others do the same just now
_OF_CHANGES = {"Invalid"}
#: what commits of services call themselves
_OF_SERVICES = {"COMPACT", "CLUSTER", "LOG_COMPACT", RESIZE.upper()}
#: in a store these wait for a day before they are swept
_WAITING = ("own file probe-", "own file long/")
_SHOWN = 5


@dataclass
class Score:
    """What a run was made of; ``wrong`` is empty if everything held."""

    seed: int
    wrong: list[str] = field(default_factory=list)
    commits: Counter = field(default_factory=Counter)
    faults: Counter = field(default_factory=Counter)
    starts: Counter = field(default_factory=Counter)
    told: Counter = field(default_factory=Counter)
    actions: Counter = field(default_factory=Counter)
    indexes: Counter = field(default_factory=Counter)
    changes: Counter = field(default_factory=Counter)
    requests: Counter = field(default_factory=Counter)
    overtaken: int = 0
    fenced: int = 0
    stall_s: float = 0.0
    whole_s: float = 0.0
    rows: int = 0
    filters: int = 0

    def lines(self) -> list[str]:
        """For people."""
        taken_over = self.actions["rollback"]
        return [
            f"seed {self.seed}",
            "commits: " + _listed(self.commits),
            "services: " + _listed(Counter({k: v for k, v in self.actions.items() if k != "deltacommit"})),
            f"faults ({self.faults.total()}): " + _listed(self.faults),
            *([f"changes: {_listed(self.changes)}"] if self.changes else []),
            *([f"indexes: {_listed(self.indexes)}; {self.filters} filters"] if self.filters else []),
            "starts: " + _listed(self.starts),
            f"lock holders overtaken: {self.overtaken}; attempts fenced: {self.fenced};"
            f" writers rolled back: {taken_over}; errors told: {_listed(self.told) or 'none'}",
            f"slowest stall: {self.stall_s:.1f} s without a commit of anybody,"
            f" {self.whole_s:.1f} s with all servers at work",
            *([f"of requests to the store: {_listed(self.requests)}"] if self.requests else []),
            f"rows checked in every cell: {self.rows}, by mainstem and by hudi-rs",
        ]


def _listed(counted: Counter) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(counted.items()))


def check(run: Harness) -> Score:
    """Look at everything; findings are collected, so that one does not hide another."""
    base = run.files()
    commits = table_files.commits(base)
    requests = Counter() if run.bucket is None else run.bucket.proxy.done
    score = Score(run.seed, faults=run.done, requests=requests, overtaken=run.overtaken)
    score.stall_s = run.slowest_stall_s
    score.whole_s = run.slowest_whole_s
    for actor in run.actors:
        score.starts[actor.kind] += actor.starts
        # A driver whose JVM is killed says much; its own failures end it, and are in its journal.
        if "Traceback" in actor.tail() and not actor.parts:
            score.wrong.append(f"{actor.name} broke:\n{actor.tail()[-1500:]}")
    score.actions.update(action for _, _, action in table_files.completed(base))
    score.actions["archived instants"] = len(table_files.archived(base))
    for name in run.indexers:
        # It is there, it is being built, another one needs it.
        _errors(run, name, score, _told(run) | {"Invalid"})
        did = Counter(f"{line['did']} {line['kind']}" for line in entries(run.place.journal(name)))
        score.indexes += did
    for name in run.changers:
        _errors(run, name, score, _told(run) | _OF_CHANGES)
        score.changes += Counter(line["did"] for line in entries(run.place.journal(name)))
    for name in run.readers:
        _errors(run, name, score, _told(run) | {"OSError"})  # what a store does not answer
        score.wrong += [f"{name} saw {line['wrong']}" for line in entries(run.place.journal(name))]
    score.wrong += run.observer.wrong
    score.wrong += _times(base)
    sent = _journals(run, commits, score)
    try:
        _cells(run, sent, score)
        _leftovers(run, score)
        if run.indexers:
            _indexes(run, score)
    except CorruptTable as error:  # a committed file that is gone, say: all that follows would meet it, too
        score.wrong.append(f"mainstem cannot read the table: {error}")
    return score


def _journals(run: Harness, commits: list[table_files.Commit], score: Score) -> dict:
    """Every batch that was told as committed is visible once, at its instant; nothing else is visible.

    Source -> (first row, rows) of its batches.
    """
    visible = defaultdict(list)
    for commit in commits:
        if commit.guard is not None:
            visible[commit.guard].append(commit)
    known = {requested for requested, *_ in _edits(run)}
    nobody = [
        commit
        for commit in commits
        if commit.guard is None and commit.requested not in known and commit.operation not in _OF_SERVICES
    ]
    score.wrong += [f"{commit.requested} is of nobody: {commit.operation}" for commit in nobody]
    score.wrong += [f"{guard} was committed {len(of)} times" for guard, of in visible.items() if len(of) > 1]
    sent: dict[int, list[tuple[int, int]]] = {}
    reported = set()
    for actor in (actor for actor in run.actors if actor.is_writer):
        _errors(run, actor.name, score)
        if actor.kind == "flink":
            sink = flink_sink(actor.name)
            own = {guard for guard in visible if guard[0] == f"flink/{sink}"}
            reported |= own
            score.commits[actor.kind] += len(own)
            score.wrong += _numbered(sink, own)
            sent[SOURCES[actor.name]] = [(0, _rows_of(run, own))]
            continue
        lines = {line["batch"]: line for line in entries(run.place.journal(actor.name))}
        score.commits[actor.kind] += len(lines)
        if sorted(lines) != list(range(len(lines))):
            score.wrong.append(f"{actor.name}: batches are missing in its journal")
        size = BATCH_ROWS[actor.kind]
        sent[SOURCES[actor.name]] = [(batch * size, size) for batch in sorted(lines)]
        for batch, line in lines.items():
            guard = (actor.name, batch, 0)
            reported.add(guard)
            score.fenced += max((line.get("attempts") or 1) - 1, 0)
            score.wrong += _told_right(guard, line, visible.get(guard, []))
    score.wrong += [f"{guard} is visible and nobody was told" for guard in sorted(set(visible) - reported)]
    return sent


def _edits(run: Harness) -> list[tuple[str, str, int, int]]:
    """Requested and completion time, editor and turn of every edit that is visible."""
    found = []
    for (requested, completion, _), record in table_files.completed(run.place.table).items():
        if edit := (record.get("extraMetadata") or {}).get(EDIT):
            found.append((requested, completion, *json.loads(edit)))
    return found


def _numbered(sink: str, guards: set[tuple]) -> list[str]:
    """Commits of a sink are numbered without a gap."""
    numbers = sorted(number for _, number, _ in guards)
    first = numbers[0] if numbers else 0
    expected = list(range(first, first + len(numbers)))
    return [] if numbers == expected and first in (0, 1) else [f"{sink}: commits {numbers[:50]} have gaps"]


def _rows_of(run: Harness, guards: set[tuple]) -> int:
    """How many rows these commits wrote. A sequence wrote so many of its first ones if each came once."""
    total = 0
    for record in table_files.completed(run.place.table).values():
        guard = (record.get("extraMetadata") or {}).get("mainstem.stream.guard")
        if guard and tuple(json.loads(guard)) in guards:
            stats = [stat for part in record["partitionToWriteStats"].values() for stat in part]
            total += sum(stat["numWrites"] for stat in stats)
    return total


def _told_right(guard: tuple, line: dict, visible: list[table_files.Commit]) -> list[str]:
    if not visible:
        return [f"{guard} was told as {line['status']} and is not on the timeline"]
    if line["instant"] != visible[0].requested:
        return [f"{guard} was told as {line['instant']} and is {visible[0].requested}"]
    if line["status"] == "committed" and line["completion"] != visible[0].completion:
        return [f"{guard} was told to complete at {line['completion']}, not {visible[0].completion}"]
    return []


def _told(run: Harness) -> set[str]:
    return TOLD if run.bucket is None else TOLD_OF_A_STORE


def _errors(run: Harness, name: str, score: Score, allowed: set[str] | None = None) -> None:
    """What a writer was told must be an error of ours that leaves its batch to be written again."""
    allowed = _told(run) if allowed is None else allowed
    path = run.place.journal(name)
    for line in entries(path.with_name(path.name + ".errors")):
        score.told[line["error"]] += 1
        score.fenced += line["error"] in ("LeaseLost", "RolledBack")
        if line["error"] not in allowed:
            score.wrong.append(f"{name} was told {line['error']}: {line['message'][:500]}")


def _times(base) -> list[str]:
    """No instant time is given twice, and all complete behind their begin."""
    instants = list(table_files.completed(base))
    given = Counter(time for requested, completion, _ in instants for time in (requested, completion))
    # A compaction that was rolled back is executed again under its own time; each completes once.
    wrong = [f"the time {time} was given {number} times" for time, number in given.items() if number > 1]
    return wrong + [f"{r} completed at {c}" for r, c, _ in instants if r >= c]


def _cells(run: Harness, sent: dict, score: Score) -> None:
    """The table is what the sources' committed batches make, in every cell, for two readers."""
    edits = _edits(run)
    expected = newest(sent) | edited(edits)
    done = {(source, turn) for *_, source, turn in edits}
    times = Counter(edit[2:] for edit in edits)
    score.wrong += [f"{edit} is visible {number} times" for edit, number in times.items() if number > 1]
    for name in run.changers:
        told = [line["turn"] for line in entries(run.place.journal(name)) if line["instant"]]
        lost = [turn for turn in told if (int(name.partition("-")[2]), turn) not in done]
        score.wrong += [f"{name} was told of turns {lost}, which are on no timeline"] if lost else []
    _compare("mainstem", as_tuples(run.open().scan().to_arrow()), expected, score)
    if run.bucket is not None or run.changers:
        run.open().compact()  # hudi-rs sees no file group without a base file, and a short run leaves some
    theirs, error = read_with_hudi_rs(run.files())
    if theirs is None:
        score.wrong.append(f"hudi-rs cannot read it: {error}")
    else:
        _compare("hudi-rs", as_tuples(theirs), expected, score)
    score.rows = len(expected)


def _compare(reader: str, found: list[tuple], expected: dict[str, tuple], score: Score) -> None:
    by_key = {row[0]: row for row in found}
    twice = [key for key, number in Counter(row[0] for row in found).items() if number > 1]
    wrong = {
        "twice": twice,
        "missing": [key for key in expected if key not in by_key],
        "of nobody": [key for key in by_key if key not in expected],
        "different": [
            f"{row} for {expected[key]}" for key, row in by_key.items() if expected.get(key, row) != row
        ],
    }
    for what, keys in wrong.items():
        if keys:
            shown = ", ".join(sorted(map(str, keys), reverse=True)[:_SHOWN])
            score.wrong.append(f"{reader}: {len(keys)} rows {what}, for instance {shown}")


def _leftovers(run: Harness, score: Score) -> None:
    """All who died are long dead; one who comes rolls back, and nothing of them is left, nor any row lost."""
    before = sorted(as_tuples(run.open().scan().to_arrow()))
    run.age()
    last = run.open()
    dead = [index for index in last.indexes() if run.indexers and index.state != "ready"]
    for index in sorted(dead, key=lambda index: index.kind in ("column_stats", "record_index")):
        last.drop_index(index.name, if_exists=True)  # somebody died while he built it, or what rests on it
    score.actions["rollback"] += len(last.rollback_failed_writes())
    if run.index != "BUCKET":
        last.run_clustering()  # whoever clustered was ended like everybody else
    for service in last.run_services(if_due=False):
        if service.error is not None:
            score.wrong.append(f"{service.service} fails afterwards: {service.error}")
    _validated(run, score)
    # What Flink's killed workers staged and never told is swept by age, much later.
    waiting = ("own file flink/", *_WAITING)
    score.wrong += [left for left in table_files.leftovers(run.files()) if not left.startswith(waiting)]
    if sorted(as_tuples(run.open().scan().to_arrow())) != before:
        score.wrong.append("services change the table's rows")


def _indexes(run: Harness, score: Score) -> None:
    """Reads with a filter are the full read's rows, by the indexes that are left, and by one of each kind."""
    whole = run.open().scan().to_arrow()
    _filtered(run, whole, score)
    for kind in KINDS:
        if kind not in _ready(run):
            build(run.open(), kind)
    if _ready(run) != {"files", *KINDS}:
        score.wrong.append(f"in the end these indexes are ready: {sorted(_ready(run))}")
    _validated(run, score)
    _filtered(run, whole, score)


def _ready(run: Harness) -> set[str]:
    return {index.kind for index in run.open().indexes() if index.state == "ready"}


def _filtered(run: Harness, whole: pa.Table, score: Score) -> None:
    keys, values = whole["id"].to_pylist(), whole["value"].to_pylist()
    times = sorted(whole["ts"].to_pylist())
    field = pc.field
    filters = [
        *(field("id") == key for key in keys[:: max(1, len(keys) // 20)]),
        field("_hoodie_record_key").isin(keys[::97]),
        *(field("value") == value for value in values[:: max(1, len(values) // 20)]),
        (field("city") == "a") & field("value").isin(values[::101]),
        field("ts") > times[len(times) * 9 // 10],
        (field("ts") < times[len(times) // 10]) & (field("city") == "b"),
        field("amount") < 5.0,
        pc.utf8_upper(field("value")) == values[-1].upper(),
        field("value") == "nobody's",
    ]
    for one in filters:
        found = sorted(as_tuples(run.open().scan(filter=one).to_arrow()))
        expected = sorted(as_tuples(whole.filter(one)))
        if found != expected:
            score.wrong.append(f"{one}: {len(found)} rows, of {len(expected)} in the full read")
    score.filters += len(filters)


def _validated(run: Harness, score: Score) -> None:
    report = run.open().validate_metadata()
    if report is not None and not report.ok:
        score.wrong += [f"metadata: {difference}" for difference in report.differences[:_SHOWN]]
