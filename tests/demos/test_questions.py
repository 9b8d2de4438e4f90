"""Goal: the demo's questions have answers that no later event changes, and a wrong row is found.

Method: the flights of two weeks; the tables of the first files alone and of all files.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from demos import flights
from demos.questions import Question, WrongAnswer, ask, questions

FILES, FIRST = 9, 3


@pytest.fixture(scope="module")
def wide_then_and_now() -> tuple[pa.Table, dict[str, Question]]:
    """The wide table of the first files, and the questions."""
    events = flights.make_events(flights.read_flights(14))
    early = {
        stream: rows.iloc[: flights.file_starts(len(rows), FILES)[FIRST]] for stream, rows in events.items()
    }
    return flights.expected_wide(early), questions(flights.expected_wide(events), events, FILES, FIRST)


def test_answers_are_the_same_with_the_first_files_as_with_all(
    wide_then_and_now: tuple[pa.Table, dict[str, Question]],
) -> None:
    wide, asked = wide_then_and_now
    assert list(asked) == ["record_index", "secondary_index", "column_stats"]
    for question in asked.values():
        assert wide.filter(question.filter).equals(question.answer.combine_chunks()), question.text
        assert 0 < len(question.answer) < 100


def test_a_reading_counts_files_and_a_row_that_differs_is_told(
    tmp_path: Path, wide_then_and_now: tuple[pa.Table, dict[str, Question]]
) -> None:
    wide, asked = wide_then_and_now
    table = mainstem.create_table(
        tmp_path / "wide",
        flights.WIDE_SCHEMA,
        record_key=flights.KEY,
        partition_by=[flights.PARTITION],
        buckets=2,
    )
    table.upsert(wide)
    table.create_index("column_stats", ["distance"])
    question = asked["column_stats"]
    found, full = ask(tmp_path / "wide", question), ask(tmp_path / "wide", question, indexes=False)
    assert (found.files, found.explained.file_slices) == (2, 6)  # those of the one airport
    assert full.files == 6
    assert "2 files of  2 of 6 slices" in found.describe()
    table.upsert(question.answer.set_column(4, "dest", pa.array(["elsewhere"] * len(question.answer))))
    with pytest.raises(WrongAnswer, match="elsewhere, expected HNL"):
        ask(tmp_path / "wide", question)
