"""Goal: Ray, Daft and Dask read a table as `Table.scan` does, of one moment, and write in one commit.

Method: the real engines on this machine, the same sentences for each; what was read and written is compared
with the table's own calls.
"""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import Invalid, MainstemError, Unsupported
from tests.engines.conftest import SCHEMA, Engine, rows
from tests.engines.documented import programs


@pytest.mark.supports("Engines", "Ray, Daft and Dask: lazy frames of a moment, of changes")
def test_a_frame_reads_the_moment_in_which_it_was_made(engine: Engine, table) -> None:
    table.upsert(rows(range(40)))
    first = table.timeline()[-1]
    now = engine.read(table)
    table.upsert(rows(range(30, 60), ts=2))
    table.delete(rows(range(5)).select(["id"]))
    assert engine.keys(now) == sorted(f"k{i}" for i in range(40))
    assert engine.keys(engine.read(table)) == sorted(f"k{i}" for i in range(5, 60))
    assert len(engine.keys(engine.read(table, as_of=first.requested))) == 40
    assert len(engine.keys(engine.read(table, as_of_completion=first.completion))) == 40
    assert len(engine.keys(engine.read(table, after=first.completion))) == 30
    told = engine.collected(engine.read(table, after=first.completion, deletes=True))
    assert told["_change_type"].to_pylist().count("delete") == 5
    whole = engine.collected(engine.read(table)).select(SCHEMA.names).cast(SCHEMA).sort_by("id")
    assert whole.equals(table.scan(columns=SCHEMA.names).to_arrow().sort_by("id"))


def test_a_table_without_rows_has_its_columns(engine: Engine, table) -> None:
    frame = engine.read(table)
    assert engine.keys(frame) == []
    if engine.name != "ray":  # which knows no columns without a block
        assert list(frame.columns if engine.name == "dask" else frame.column_names)[-4:] == SCHEMA.names


@pytest.mark.supports("Engines", "Ray, Daft and Dask: one commit of a job's rows, guarded by batch ids")
def test_a_job_is_one_commit_and_counts_once(engine: Engine, table) -> None:
    guard = mainstem.StreamGuard("nightly", 1)
    outcome = engine.write(engine.frame(rows(range(40))), table, guard=guard)
    assert outcome.rows == 40 and len(table.timeline()) == 1
    again = engine.write(engine.frame(rows(range(90))), table, guard=guard)
    assert again.status == "already_committed" and len(table.timeline()) == 1
    engine.write(engine.frame(rows(range(3)).select(["id"])), table, "delete")
    engine.write(engine.read(table, after="000"), table)  # rows as they were read, with Hudi's columns
    assert len(table.timeline()) == 3
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted(f"k{i}" for i in range(3, 40))
    assert engine.write(engine.frame(rows(range(7), ts=9)), table, "insert_overwrite_table").rows == 7
    assert table.scan().count_rows() == 7


def test_columns_that_the_table_lacks_are_added(engine: Engine, table) -> None:
    table.upsert(rows(range(4)))
    wider = table.scan(columns=SCHEMA.names).to_arrow()
    wider = wider.append_column("tip", pc.multiply(wider["fare"], 2.0))
    engine.write(engine.frame(wider), table)
    assert sorted(table.scan().to_arrow()["tip"].to_pylist()) == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("operation", "broken", "kind", "said"),
    [
        ("upsert", lambda t: t.set_column(1, "ts", [["x"] * t.num_rows]), Invalid, "column 'ts', row 0"),
        ("upsert", lambda t: t.drop_columns(["fare"]), Invalid, "'fare'"),
        ("bulk_insert", lambda t: t, Unsupported, "use insert or upsert"),
    ],
    ids=["a type", "a column", "an operation"],
)
def test_what_does_not_fit_is_told_in_a_line_and_nothing_is_visible(
    engine: Engine, table, operation, broken, kind, said
) -> None:
    with pytest.raises(MainstemError, match=said) as refused:
        engine.write(engine.frame(broken(rows(range(30)))), table, operation)
    assert type(refused.value) is kind and "\n" not in str(refused.value)
    assert table.scan().count_rows() == 0 and table.files().num_rows == 0 and table.timeline() == []


def test_wrong_times_and_columns_are_refused_before_anything_runs(engine: Engine, table) -> None:
    with pytest.raises(Invalid, match="as_of='yesterday'"):
        engine.read(table, as_of="yesterday")
    with pytest.raises(Invalid, match="give one kind"):
        engine.read(table, as_of_completion="20260101000000000", after="000")
    if engine.name != "daft":
        with pytest.raises(Invalid, match="no column 'fair'"):
            engine.read(table, columns=["fair"])


@pytest.mark.parametrize("section", ["Engines of tasks", "DuckDB"])
def test_the_programs_of_the_page_run_as_written(on_ray, table, tmp_path, section) -> None:
    table.upsert(rows(range(100)))
    other = mainstem.create_table(tmp_path / "other", SCHEMA, record_key="id", ordering="ts", buckets=2)
    known = {"table": table, "other": other, "mainstem": mainstem}
    exec(programs(section), known)
    found = other.scan(columns=SCHEMA.names).to_arrow().sort_by("id")
    meant = table.scan(columns=SCHEMA.names, filter=pc.field("fare") > 20).to_arrow().sort_by("id")
    assert found["id"].equals(meant["id"])
    if section == "DuckDB":
        assert known["con"].sql("select count(*) from oslo").fetchall() == [(50,)]
