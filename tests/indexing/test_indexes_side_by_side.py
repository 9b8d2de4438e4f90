"""Goal: an index and the one on which it rests are built at the same time, and the first never stands alone.

Method: a secondary index is begun in a thread when the record index has read its rows and is about to
complete; the record index then completes, fails, or its process dies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import mainstem
from mainstem.cli.main import main
from mainstem.errors import Unavailable
from mainstem.indexing import index_build, index_lists
from mainstem.layout import properties
from mainstem.layout.properties import load_config
from tests.services.city_table import QUICK, aged, make, rows

pytestmark = pytest.mark.supports("Indexes", "builds: an index beside the one on which it rests")
SECONDARY = "secondary_index_value"
LONG_S = 120


@pytest.fixture(autouse=True)
def maintained(monkeypatch):
    """What a build needs of the writers."""
    kinds = frozenset({*properties.MAINTAINED, "record_index", "secondary_index"})
    monkeypatch.setattr(properties, "MAINTAINED", kinds)


class Beside(threading.Thread):
    """Builds the secondary index; its error, if it ended with one."""

    def __init__(self, table: mainstem.Table) -> None:
        super().__init__(daemon=True)
        self.table = mainstem.open_table(table.path, QUICK)
        self.listed = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.table.create_index("secondary_index", ["value"])
        except Exception as error:
            self.error = error

    def begin(self) -> None:
        self.start()
        assert self.listed.wait(LONG_S)

    def ended(self) -> Exception | None:
        self.join(LONG_S)
        assert not self.is_alive()
        return self.error


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], Beside]:
    """Begins the secondary index when the record index is about to complete, then does what is asked."""
    table = make(tmp_path / "t")
    table.upsert(rows(range(20), 1))
    other = Beside(table)

    def armed(then: Callable[[], None]) -> Beside:
        plain_open, plain_complete = index_build._Build._open, index_build._Build._complete

        def opened(self, section):
            plain_open(self, section)
            if self.partition == SECONDARY:
                other.listed.set()

        def complete(self, coverage):
            if self.partition == "record_index" and not other.listed.is_set():
                other.begin()
                then()
            return plain_complete(self, coverage)

        monkeypatch.setattr(index_build._Build, "_open", opened)
        monkeypatch.setattr(index_build._Build, "_complete", complete)
        return other

    return armed


def states(table: mainstem.Table) -> dict[str, str]:
    return {index.partition: index.state for index in table.indexes()}


def test_a_secondary_index_is_built_while_the_record_index_is(beside):
    waiting: list[tuple[str, ...]] = []

    def look() -> None:
        other.table.upsert(rows(range(20, 30), 2))
        waiting.append(index_lists.building(load_config(other.table.index_context().seams.storage)))

    other = beside(look)
    mainstem.open_table(other.table.path, QUICK).create_index("record_index")
    assert other.ended() is None
    assert waiting == [("record_index", SECONDARY)]
    assert set(states(other.table).values()) == {"ready"}
    report = other.table.validate_metadata()
    assert report is not None and report.ok, report.differences


def test_the_command_builds_what_a_named_index_rests_on_first(tmp_path, capsys):
    make(tmp_path / "t").upsert(rows(range(20), 1))
    named = ["secondary_index", "--columns", "value", "--name", "by_value"]
    assert main(["index", "create", str(tmp_path / "t"), *named]) == 0
    assert "index secondary_index_by_value built" in capsys.readouterr().out
    assert main(["index", "list", str(tmp_path / "t")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "files: files, ready",
        "record_index: record_index, ready",
        "by_value: secondary_index on value, ready",
    ]


def test_it_ends_where_the_record_index_was_given_up(beside):
    def fail() -> None:
        raise OSError("the disk is gone")

    other = beside(fail)
    with pytest.raises(Unavailable, match="the disk is gone"):
        mainstem.open_table(other.table.path, QUICK).create_index("record_index")
    assert isinstance(other.ended(), Unavailable)
    assert "record_index, which this index depends on" in str(other.error)
    assert states(other.table) == {"files": "ready"}
    assert other.table.create_index("secondary_index", ["value"]).index == SECONDARY  # which makes both
    assert set(states(other.table)) == {"files", "record_index", SECONDARY}


def test_it_ends_where_the_process_that_built_the_record_index_died(beside):
    class Died(BaseException):
        pass

    def die() -> None:
        aged(other.table)
        raise Died

    other = beside(die)
    with pytest.raises(Died):
        mainstem.open_table(other.table.path, QUICK).create_index("record_index")
    assert isinstance(other.ended(), Unavailable)
    assert states(other.table) == {"files": "ready", "record_index": "building"}
    assert other.table.create_index("secondary_index", ["value"]).index == SECONDARY
    assert set(states(other.table).values()) == {"ready"}
