"""Goal: a writer that was about to publish rows of an index when somebody dropped it, and made it anew of
other columns, publishes rows of the new one, or nothing.

Method: the index is exchanged at each step of a writer's commit; afterwards ``validate_metadata`` finds no
difference to the data.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import mainstem
from mainstem.errors import Unavailable
from mainstem.metadata.commits.delta_commit import MetadataCommit
from tests.services.city_table import QUICK, make, rows

pytestmark = pytest.mark.supports("Indexes", "builds: listed, built, rebuilt and dropped while writers run")


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    table = make(tmp_path / "t")
    table.upsert(rows(range(10), 1))
    table.create_index("column_stats", columns=["ts"])
    return table


def opened(table: mainstem.Table) -> mainstem.Table:
    return mainstem.open_table(table.path, QUICK)


def exchanged(table: mainstem.Table) -> None:
    opened(table).drop_index("column_stats")
    opened(table).create_index("column_stats", columns=["city"])


def at_first_prepared(monkeypatch, act: Callable[[MetadataCommit], None]) -> list[MetadataCommit]:
    """Do something when a writer has made its rows; all that were made."""
    real, made = MetadataCommit.prepare.__func__, []

    def prepare(cls, *given) -> MetadataCommit:
        found = real(cls, *given)
        made.append(found)
        if len(made) == 1:
            act(found)
        return found

    monkeypatch.setattr(MetadataCommit, "prepare", classmethod(prepare))
    return made


def test_rows_that_were_made_for_an_index_of_other_columns_are_made_anew(table, monkeypatch) -> None:
    made = at_first_prepared(monkeypatch, lambda first: exchanged(table))
    opened(table).upsert(rows(range(5), 2))
    assert len(made) == 2, "the same names of file groups, and other columns"
    report = opened(table).validate_metadata()
    assert report.ok, report.differences


def test_an_index_that_goes_while_its_rows_are_made_does_not_end_the_writer(table, monkeypatch) -> None:
    """It is in the lists that the writer read, and in no definition any more."""
    table.create_index("record_index")
    table.create_index("secondary_index", ["value"], name="by_value")
    real, done = MetadataCommit.prepare.__func__, []

    def prepare(cls, *given) -> MetadataCommit:
        if not done:
            done.append(True)
            opened(table).drop_index("by_value")
        return real(cls, *given)

    monkeypatch.setattr(MetadataCommit, "prepare", classmethod(prepare))
    opened(table).upsert(rows(range(5), 2))
    report = opened(table).validate_metadata()
    assert done and report.ok, report.differences


@pytest.mark.disk("private files get their names by links")
def test_a_file_of_an_attempt_that_stood_still_is_not_taken_for_one_of_the_new_index(
    table, monkeypatch
) -> None:
    """It lost the lock with its files half linked, and went on with that when the index was exchanged."""

    def act(first: MetadataCommit) -> None:
        exchanged(table)
        for log in first.logs:
            os.link(Path(table.path) / log.private, Path(table.path) / log.path)

    at_first_prepared(monkeypatch, act)
    with pytest.raises(Unavailable, match="column_stats was rebuilt while an earlier attempt"):
        opened(table).upsert(rows(range(5), 2))
    monkeypatch.undo()
    opened(table).upsert(rows(range(5), 3))
    report = opened(table).validate_metadata()
    assert report.ok, report.differences
