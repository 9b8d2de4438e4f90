"""One table of hostile values with every index, and what its filtered reads are compared with.

The model is as plain as can be: the table is read whole, by way of no index, statistic or metadata table, and
the filter is asked of the rows that came out. Every way to a filtered read must give the same rows. Filters
that pyarrow itself cannot evaluate on these rows are left out.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import mainstem
from tests.fuzz.filters.conditions import Conditions
from tests.fuzz.filters.values import LATER, POOLS, rows, schema

FAST = {
    "hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false",
    "hoodie.clean.commits.retained": "1", "hoodie.mainstem.exclusive": "true",
    "hoodie.write.set.null.for.missing.columns": "true",
}  # fmt: skip
PLAIN = FAST | {"hoodie.metadata.enable": "false", "hoodie.enable.data.skipping": "false"}
#: kind, columns and options of indexes; those whose columns a table lacks are left out
INDEXES: list[tuple[str, list[str], dict[str, str]]] = [
    ("column_stats", [], {}), ("partition_stats", [], {}), ("bloom_filters", [], {}),
    ("record_index", [], {}),
    ("secondary_index", ["t"], {}), ("secondary_index", ["i"], {}), ("secondary_index", ["day"], {}),
    ("expr_index", ["t"], {"expr": "upper"}), ("expr_index", ["t"], {"expr": "length"}),
    ("expr_index", ["day"], {"expr": "year"}), ("expr_index", ["t"], {"expr": "trim"}),
]  # fmt: skip


class Wrong(AssertionError):
    """A filtered read that differs from the filtered whole, or statistics that do not hold."""


@dataclass
class World:
    """``history``: what was done; ``counts``: of actions, of filters and of reads that left something out."""

    folder: Path
    chance: random.Random
    history: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        chance = self.chance
        every = list(POOLS)
        self.columns = sorted(chance.sample(every, chance.randrange(6, len(every) + 1)))
        later = [name for name in LATER if name in self.columns and chance.random() < 0.5]
        self.columns = [name for name in self.columns if name not in later]
        self.later = later
        self.partial = chance.random() < 0.15
        partial = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"} if self.partial else {}
        self.partitioned = chance.random() < 0.8
        by = chance.choice(["part", "part", "part", "i", "day", "y", "t", "d", "c"])
        key = chance.choice(["id", "id", "id", "l", "d", "day"])
        self.by = by if by in self.columns else "part"
        self.key = key if key in self.columns else "id"
        self.history.append(f"partitioned by {self.by if self.partitioned else None}, keyed by {self.key}")
        mainstem.create_table(
            self.folder, schema(self.columns), record_key=self.key,
            ordering=["ts"] if chance.random() < 0.7 else [],
            partition_by=self.by if self.partitioned else (), buckets=chance.choice((1, 2, 8)),
            properties=FAST | partial,
        )  # fmt: skip
        self.table = mainstem.open_table(self.folder, properties=FAST)
        self._upsert()
        if chance.random() < 0.7:
            self.table.create_index("partition_stats" if self.partitioned else "column_stats")

    def step(self) -> None:
        """One action, drawn by chance; what the table refuses counts as refused."""
        what = self.chance.choices(list(_STEPS), [weight for weight, _ in _STEPS.values()])[0]
        self.history.append(what)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _STEPS[what][1](self)
            self.counts[what] += 1
        except (mainstem.Invalid, mainstem.Unsupported) as refused:
            self.history[-1] += f" (refused: {str(refused)[:120]})"
            self.counts[f"{what} refused"] += 1
        self.table = mainstem.open_table(self.folder, properties=FAST)

    # ------------------------------------------------------------------------------------------ actions

    def _rows(self, count: int) -> pa.Table:
        return self._keyed(rows(self.chance, count, self.columns))

    def _keyed(self, made: pa.Table) -> pa.Table:
        return made.filter(made[self.key].is_valid())

    def _upsert(self) -> None:
        self.table.upsert(self._rows(self.chance.choice((1, 3, 12))))

    def _bulk_insert(self) -> None:
        self.table.bulk_insert(self._rows(20))

    def _delete(self) -> None:
        self.table.delete(self._rows(4))

    def _update(self) -> None:
        names = ["id", "part", "ts", *self.chance.sample(self.columns, 2), self.by, self.key]
        names = list(dict.fromkeys(names))
        rows = self._rows(5).select(names)
        if self.partial:
            self.table.update_columns(
                rows.filter([not any(v is None for v in r.values()) for r in rows.to_pylist()])
            )

    def _add_column(self) -> None:
        if self.later:
            self.columns.append(self.later.pop())
            self._upsert()

    def _abort(self) -> None:
        transaction = self.table.begin()
        transaction.write(self._rows(5))
        transaction.abort()

    def _fewer_columns(self) -> None:
        """Rows of a writer that does not know all columns: files that lack some."""
        known = {*self.chance.sample(self.columns, len(self.columns) // 2), self.by, self.key}
        self.table.upsert(self._keyed(rows(self.chance, 6, [name for name in self.columns if name in known])))

    def _index(self) -> None:
        kind, columns, options = self.chance.choice(INDEXES)
        if set(columns) <= set(self.columns):
            self.history[-1] += f" {kind} {columns} {options}"
            self.table.create_index(kind, columns, name="_".join([*columns, *options.values()]) or None,
                                    options=options)  # fmt: skip

    def _reindex(self) -> None:
        there = [index.name for index in self.table.indexes() if index.name != "files"]
        if there:
            name = self.chance.choice(there)
            self.history[-1] += f" {name}"
            self.table.reindex(name) if self.chance.random() < 0.6 else self.table.drop_index(name)

    def _widen(self) -> None:
        """Whole numbers become longer, floats doubles."""
        wider = {"i": pa.int64(), "f": pa.float64()}
        there = [name for name in wider if name in self.columns]
        if there:
            made = self._rows(4)
            name = self.chance.choice(there)
            at = made.schema.get_field_index(name)
            self.table.upsert(made.set_column(at, name, made[name].cast(wider[name])))

    # ------------------------------------------------------------------------------------------- checks

    def whole(self, **view: str) -> pa.Table:
        """Every row, read without an index."""
        return mainstem.open_table(self.folder, properties=PLAIN).scan(**view).to_arrow()

    def check_statistics(self) -> None:
        """The metadata table agrees with the data."""
        report = self.table.validate_metadata()
        if report is not None and not report.ok:
            raise Wrong(f"validate_metadata: {report}")

    def check_filters(self, count: int) -> None:
        """``count`` filters, each asked in a way of its own, of the newest state and of an earlier one."""
        views: list[dict[str, str]] = [{}, {}, {"mode": "read_optimized"}]
        done = [i.completion for i in self.table.timeline() if i.completion and "commit" in i.action]
        views += [{"as_of_completion": self.chance.choice(done)}] if done else []
        self._check_view({}, count)
        self._check_view(self.chance.choice(views), count // 2)

    def _check_view(self, view: dict[str, str], count: int) -> None:
        whole = self.whole(**view)
        drawn = Conditions(self.chance, [name for name in self.columns if name in whole.schema.names])
        for _ in range(count):
            try:
                condition = drawn.condition()
                expected = ids(whole.filter(condition))
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                self.counts["filters that pyarrow refuses"] += 1
                continue
            self.counts["filters"] += 1
            self._compare(view, condition, expected)

    def _compare(self, view: dict[str, str], condition: pc.Expression, expected: list[str]) -> None:
        way = self.chance.choice(["scan", "scan", "scan", "dataset", "count", "columns", "no metadata"])
        said = f"{way} {view or ''}"
        try:
            found = self._found(way, view, condition)
        except (pa.ArrowException, mainstem.MainstemError, ValueError, TypeError) as error:
            raise Wrong(f"{said}: {type(error).__name__}: {error}\n  filter: {safe(condition)}") from error
        if found != (len(expected) if way == "count" else expected):
            what = f"found {found!s:.600}\n  expected {expected!s:.600}\n  filter: {safe(condition)}"
            raise Wrong(f"{said}: {what}")

    def _found(self, way: str, view: dict[str, str], condition: pc.Expression) -> list[str] | int:
        if way == "dataset":
            return ids(self.table.dataset(**view).to_table(filter=condition))
        if way == "no metadata":
            plain = mainstem.open_table(self.folder, properties=FAST | {"hoodie.metadata.enable": "false"})
            return ids(plain.scan(filter=condition, **view).to_arrow())
        plan = self.table.scan(filter=condition, columns=["id"] if way == "columns" else None, **view)
        if way == "count":
            return plan.count_rows()
        told = plan.explain()
        self.counts["reads that left files out"] += bool(told.cuts)
        assert str(told)
        return ids(plan.to_arrow())


def ids(table: pa.Table) -> list[str]:
    """The keys of rows, in order."""
    return sorted(table["id"].to_pylist())


def safe(condition: pc.Expression) -> str:
    """A filter as text."""
    try:
        return str(condition)
    except UnicodeDecodeError:
        return "(a filter that pyarrow cannot show)"


_STEPS = {
    "upsert": (8, World._upsert), "bulk_insert": (1, World._bulk_insert), "delete": (2, World._delete),
    "update": (1, World._update), "add column": (2, World._add_column), "abort": (1, World._abort),
    "fewer columns": (2, World._fewer_columns), "widen": (1, World._widen), "index": (8, World._index),
    "reindex": (1, World._reindex),
    "compact": (2, lambda world: world.table.compact()),
    "log_compact": (1, lambda world: world.table.log_compact()),
    "clean": (1, lambda world: world.table.clean()),
    "metadata": (2, lambda world: world.table.run_services("metadata", if_due=False)),
    "archive": (1, lambda world: world.table.run_services("archive", if_due=False)),
}  # fmt: skip
