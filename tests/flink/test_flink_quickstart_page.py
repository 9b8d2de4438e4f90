"""Goal: docs/quickstart-flink.md is true: its statements run as they stand, or are refused as it says.

Method: all are carried out in order, each section in a database of its own; ``/tmp`` is the test's folder. Of
a query that does not end the first row is taken. What a refusal says first must be one line.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainstem.errors import MainstemError
from mainstem.flink import connect
from tests.statement_pages import sections_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.here("paths of the page are folders"),
    pytest.mark.supports("Engines", "Flink SQL: the statements of Hudi's pages, one by one"),
]
SECTIONS = sections_of("quickstart-flink.md")
MOST_REFUSED = 4 / 42
_numbers = itertools.count()


@pytest.fixture
def t(table_environment: Any) -> Iterator[Any]:
    """A connected environment whose current database is empty."""
    name, before = f"page_{next(_numbers)}", table_environment.get_current_database()
    table_environment.execute_sql(f"CREATE DATABASE {name}")
    table_environment.use_database(name)
    connected = connect(table_environment)
    yield connected
    table_environment.use_database(before)


def carry_out(t: Any, text: str) -> None:
    """A statement to its end, or to the first row of a query that has none."""
    result = t.execute_sql(text)
    verb = re.sub(r"^(\s*--.*\n)+", "", text).split()[0].upper()
    if verb == "SELECT":
        with result.collect() as rows:
            next(rows, None)
    elif verb in ("INSERT", "UPDATE", "DELETE", "TRUNCATE"):
        result.wait()
        assert getattr(result, "error", None) is None


@pytest.mark.parametrize("heading, statements", SECTIONS, ids=[name for name, _ in SECTIONS])
def test_every_statement_of_hudis_flink_pages_runs_or_is_refused_in_one_line(
    t: Any, tmp_path: Path, heading: str, statements: list[tuple[str, str]]
) -> None:
    wrong: list[str] = []
    for text, refused in statements:
        text = text.replace("/tmp/", f"{tmp_path}/")
        try:
            carry_out(t, text)
            if refused:
                wrong.append(f"not refused: {text}")
        except MainstemError as error:
            if not refused or refused not in str(error) or "\n" in str(error):
                wrong.append(f"{text}\n    {error}")
        except Exception as error:
            wrong.append(f"{text}\n    {type(error).__name__}: {str(error)[:600]}")
    assert not wrong, "\n".join(wrong)


def test_few_statements_are_refused() -> None:
    of_hudi = SECTIONS[1:]  # not what the page begins with
    refusals = [refused for _, statements in of_hudi for _, refused in statements]
    share = sum(map(bool, refusals)) / len(refusals)
    assert len(refusals) >= 42 and share <= MOST_REFUSED, (len(refusals), share)
