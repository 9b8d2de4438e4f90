"""Goal: wherever a process dies in the middle of something long, the table may stay like that for an hour:
queries, searches, a commit and a round of services go on, and validating says what is the matter at worst.

Method: each long action is done on a table with indexes of five kinds, a vector index, a savepoint and a
compacted metadata table. It dies right after steps that others see: a change of a timeline, of the
properties, of a definition, of a list of vector indexes, of data files. From each state, while the dead
process still looks alive, everybody comes; queries show what they show without the metadata table.
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.api.services import Services
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.options import UNSAFE_FOR_JAVA
from mainstem.readers.planning.table_state import WRITES
from mainstem.services.metadata import metadata_compaction, metadata_round
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from tests.services.city_table import QUICK
from tests.storage.steps import CHANGES, Dead, Mortal

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.string()),
        ("at", pa.list_(pa.float32(), 2)),
    ]
)
# So short that a handful of commits gives every service something to do.
SHORT = {
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.metadata.compact.max.delta.commits": "3",
    "hoodie.metadata.derive.from.datatable.clean.policy": "false",
    "hoodie.metadata.index.check.timeout.seconds": "0",
}
FLAT = {"engine": "flat", "metric": "l2", "clusters": "2"}
SHOWN = ["id", "city", "ts", "v"]
FILTERS = [
    None,
    pc.field("ts") >= 3,
    pc.field("id") == "k03",
    pc.field("v") == "c3",
    pc.utf8_upper(pc.field("v")) == "E5",
]


def opened(path: Path | str, **options: str) -> mainstem.Table:
    quick = {key: str(value).lower() for key, value in QUICK.items()}
    given = {key.replace("__", "."): value for key, value in options.items()}
    return mainstem.open_table(path, {**quick, **SHORT, **given})


def rows(keys: range, ts: int, value: str) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{k:02d}" for k in keys],
            "city": ["ab"[k % 2] for k in keys],
            "ts": [ts] * len(keys),
            "v": [f"{value}{k}" for k in keys],
            "at": [[float(k), float(ts)] for k in keys],
        },
        SCHEMA,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commits, compactions and a savepoint; the metadata table is compacted beyond all."""
    path = tmp_path_factory.mktemp("half_done") / "t"
    mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2,
        properties={**QUICK, "hoodie.metadata.enable": "true"},
    )  # fmt: skip
    table = opened(path, hoodie__table__services__enabled="false")
    table.upsert(rows(range(4), 1, "a"))
    table.create_index("column_stats", ["ts", "v"])
    table.create_index("secondary_index", ["v"], name="by_v")
    upper = {"expr": "upper", "type": "column_stats", UNSAFE_FOR_JAVA: "true"}
    table.create_index("expr_index", ["v"], name="up", options=upper)
    table.upsert(rows(range(2, 6), 2, "b"))
    table.create_index("vector", ["at"], options=FLAT)
    table.compact()
    table.savepoint(table.upsert(rows(range(3, 7), 3, "c")).instant)
    table.compact()
    table.upsert(rows(range(3), 4, "d"))
    table.refresh_index("at")
    table.upsert(rows(range(5, 9), 5, "e"))
    metadata_compaction.run(table.writer_context(), if_due=False)
    return path


def newest(table: mainstem.Table) -> str:
    return max(i.requested for i in table.timeline() if i.action == "deltacommit")


def saved(table: mainstem.Table) -> str:
    return table.savepoints()[0].instant


def without_savepoint(path: Path) -> None:
    table = opened(path, hoodie__table__services__enabled="false")
    table.delete_savepoint(saved(table))
    table.compact()
    table.upsert(rows(range(9), 6, "f"))
    table.upsert(rows(range(9), 7, "g"))


def set_aside(path: Path) -> None:
    table = opened(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Services, "_rebuild_metadata", lambda self: None)
        table.rollback(newest(table))


def as_it_is(path: Path) -> None:
    """Nothing more."""


Work = Callable[[mainstem.Table], Any]
#: action: what comes before it, and what is done
ACTIONS: dict[str, tuple[Callable[[Path], None], Work]] = {
    "rollback": (as_it_is, lambda table: table.rollback(newest(table))),
    "restore": (as_it_is, lambda table: table.restore(saved(table))),
    "indexes built anew after a rollback": (set_aside, lambda table: table.run_services("metadata")),
    "clean": (without_savepoint, lambda table: table.clean()),
    "archive": (without_savepoint, lambda table: table.archive()),
    "delete a savepoint": (as_it_is, lambda table: table.delete_savepoint(saved(table))),
    "drop an index": (as_it_is, lambda table: table.drop_index("by_v")),
    "reindex": (as_it_is, lambda table: table.reindex("by_v")),
    "services of the metadata table": (
        without_savepoint,
        lambda table: list(metadata_round.run(table.writer_context(), if_due=False)),
    ),
    "drop a vector index": (as_it_is, lambda table: table.drop_index("at")),
}
#: of an action that others see more steps of, the first ones: then come builds of indexes, one by one
STATES_MAX = {"rollback": 4, "restore": 4, "clean": 3}


class Observed(Mortal):
    """A storage that dies after the n-th change of what others see; counts them."""

    def __init__(self, storage: Storage, at: int | None) -> None:
        super().__init__(storage, 0)
        self.at, self.seen, self.last = at, 0, self._visible()

    def _visible(self) -> list[Any]:
        there = []
        for folder in (paths.TIMELINE, paths.METADATA_TIMELINE):
            there.append(sorted(n for n in self.inner.names(folder) if n[0].isdigit()))
        for partition in "ab":
            there.append(sorted(n for n in self.inner.names(partition) if paths.file_id_of(n)))
        for name in (paths.PROPERTIES, paths.INDEX_DEFINITIONS, paths.VECTOR_PROPERTIES):
            file = Path(self.inner.base, name)
            there.append(file.read_bytes() if file.exists() else b"")
        return there

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in CHANGES:
            return found

        def call(*given: Any, **named: Any) -> Any:
            if self.seen == self.at:
                raise Dead
            result = found(*given, **named)
            if (now := self._visible()) != self.last:
                self.seen, self.last = self.seen + 1, now
                if self.seen == self.at:
                    raise Dead
            return result

        return call


def done(table: mainstem.Table, work: Work, at: int | None) -> int:
    """Do it in a process that dies after a step that others see (None: that lives); how many it made."""
    storage = Observed(table.opened.seams.storage, at)
    table.opened.seams = replace(table.opened.seams, storage=storage)
    try:
        work(table)
    except Dead:
        assert at is not None
    return storage.seen


def ordered(rows: pa.Table) -> list[dict]:
    return sorted(rows.to_pylist(), key=str)


def past(table: mainstem.Table, **then: str) -> list[dict] | str:
    try:
        return ordered(table.scan(columns=SHOWN, filter=FILTERS[1], **then).to_arrow())
    except Invalid as error:  # for instance: of before a restore
        return str(error)


def asked(path: Path) -> None:
    """Queries of all kinds, with the metadata table and without it; searches, by the index and exact."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an index that cannot be used warns
        of_rows(path)
        of_the_past(path)
        of_indexes(path)


def of_rows(path: Path) -> None:
    table, plain = opened(path), opened(path, hoodie__metadata__enable="false")
    there = plain.scan(columns=SHOWN).to_arrow()
    for filter in FILTERS:
        found = table.scan(columns=SHOWN, filter=filter).to_arrow()
        assert ordered(found) == ordered(there if filter is None else there.filter(filter)), filter


def of_the_past(path: Path) -> None:
    table, plain = opened(path), opened(path, hoodie__metadata__enable="false")
    shown = max(plain.scan(columns=["_hoodie_commit_time"]).to_arrow()["_hoodie_commit_time"].to_pylist())
    (last,) = [i for i in plain.timeline() if i.requested == shown and i.is_completed and i.action in WRITES]
    for then in ({"as_of": last.requested}, {"as_of_completion": last.completion}):
        assert past(table, **then) == past(plain, **then)
    written = [ordered(either.changes(columns=SHOWN).to_arrow()) for either in (table, plain)]
    assert written[0] == written[1]


def of_indexes(path: Path) -> None:
    table = opened(path)
    for filter in (None, FILTERS[3]):
        near, exact = (
            table.search("at", [7.0, 5.0], 3, metric="l2", filter=filter, columns=["id"], exact=how)
            for how in (False, True)
        )
        assert near.equals(exact)
    assert table.indexes() is not None
    try:
        report = table.validate_metadata()
    except Unavailable as error:  # which says what, and who goes on with it
        assert re.search(r"is taking completed commits back|the clean \d+ is not finished", str(error))
    else:
        left_over = {index.partition for index in table.indexes() if index.state == "left over"}
        assert report is None or {d.key for d in report.differences} <= left_over, report.differences


def everybody_goes_on(path: Path) -> None:
    """A writer that looked for the dead a moment ago, and a round of services."""
    asked(path)
    ctx = (writer := opened(path, hoodie__table__services__enabled="false")).writer_context()
    ctx.last_rollback_check_ms = ctx.seams.clock.monotonic_ms()
    restoring = any(i.action == "restore" and not i.is_completed for i in writer.timeline())
    if restoring:  # the one action that everybody waits for
        with pytest.raises(Unsupported, match=r"is pending: no write may start.*Table.restore\(\)"):
            writer.upsert(rows(range(2), 50, "w"))
    else:
        writer.upsert(rows(range(2), 50, "w"))
        mine = opened(path).scan(columns=["v"], filter=pc.field("ts") == 50).to_arrow()
        assert sorted(mine["v"].to_pylist()) == ["w0", "w1"]
    for run in opened(path).run_services():
        # What somebody is at, or seems to be: each fails alone and says what it waits for.
        assert run.error is None or re.search("try again|is not finished", str(run.error)), run.error
    of_rows(path)


@pytest.mark.filterwarnings("ignore::mainstem.services.runner.ServiceWarning")
@pytest.mark.parametrize("action", ACTIONS)
def test_from_what_is_half_done_everybody_goes_on(whole: Path, tmp_path: Path, action: str) -> None:
    before, work = ACTIONS[action]
    template = tmp_path / "template"
    shutil.copytree(whole, template)
    before(template)
    steps = done(opened(shutil.copytree(template, tmp_path / "whole")), work, None)
    assert steps, "others see nothing of it"
    for at in range(1, min(steps, 1 + STATES_MAX.get(action, 2))):
        died = tmp_path / f"died-{at}"
        shutil.copytree(template, died)
        assert done(opened(died), work, at) == at
        everybody_goes_on(died)
