"""Goal: the picture shows every transaction and log file of a table, and counts overlaps rightly.

Method: hand-made spans for the arithmetic; a real table with overlapping, aborted and open
transactions for the rest.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import mainstem
from demos.services_done import services_done
from demos.timeline_picture import (
    COMMITTED,
    PENDING,
    ROLLED_BACK,
    Picture,
    Span,
    draw_svg,
    draw_text,
    draw_window,
    instant_ms,
    main,
    open_transactions,
    overlapping_pairs,
    read_picture,
)

SCHEMA = pa.schema({"id": pa.int64(), "value": pa.string()})


def _span(writer: str, start: int, end: int | None, state: str = COMMITTED) -> Span:
    return Span(writer, f"{writer}{start}", state, start, end)


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "value": [str(i) for i in ids]}, schema=SCHEMA)


@pytest.fixture
def table_path(tmp_path: Path) -> Path:
    """Two committed transactions of a and b that overlap, one of a that was rolled back, one of b
    that is open."""
    path = tmp_path / "table"
    mainstem.create_table(
        path, SCHEMA, record_key="id", buckets=1, properties={"hoodie.mainstem.exclusive": "true"}
    )
    a, b = (mainstem.open_table(path, {"hoodie.mainstem.writer.name": name}) for name in ("a", "b"))
    first, second = a.begin(), b.begin()
    first.write(_rows(1, 2))
    second.write(_rows(2, 3))
    second.commit()
    first.commit()
    aborted = a.begin()
    aborted.write(_rows(4))
    aborted.abort()
    b.begin().write(_rows(5))
    return path


def test_instant_times_are_milliseconds_in_utc() -> None:
    assert instant_ms("19700101000001002") == 1002
    assert instant_ms("20130101120000") == 1357041600000


def test_pairs_overlap_only_between_writers_and_only_if_open_at_once() -> None:
    spans = [
        _span("a", 0, 10),
        _span("b", 5, 15),
        _span("b", 9, 12),
        _span("b", 10, 12),  # begun when a's was complete
        _span("c", 0, 9),
        _span("c", 0, 99, ROLLED_BACK),
        _span("c", 0, None, PENDING),
    ]
    assert overlapping_pairs(spans) == {("a", "b"): 2, ("a", "c"): 1, ("b", "c"): 1}


def test_the_picture_of_a_table_holds_all_transactions_and_visible_log_files(
    table_path: Path,
) -> None:
    picture = read_picture(table_path)
    states = [(s.writer, s.state, s.rows) for s in picture.spans]
    assert sorted(states) == [
        ("a", COMMITTED, 2),
        ("b", COMMITTED, 2),
        ("b", PENDING, 0),
        ("unknown", ROLLED_BACK, 0),
    ]
    assert overlapping_pairs(picture.spans) == {("a", "b"): 1}
    (piece,) = picture.slices
    assert [writer for _, writer in piece.log_files] == ["b", "a"]  # b completed first
    assert piece.bytes > 0
    assert len(open_transactions(table_path, "b")) == 1
    assert open_transactions(table_path, "a") == frozenset()


def test_the_owner_of_a_rolled_back_transaction_can_be_told(table_path: Path) -> None:
    (lost,) = [s for s in read_picture(table_path).spans if s.state == ROLLED_BACK]
    told = read_picture(table_path, dead={lost.instant: "a"})
    assert [s.writer for s in told.spans if s.state == ROLLED_BACK] == ["a"]


def test_the_terminal_shows_commits_open_time_loss_and_rollback() -> None:
    spans = (
        _span("a", 0, 500),
        _span("a", 600, 650),
        _span("b", 0, 900, ROLLED_BACK),
        _span("b", 950, 1000),
    )
    lines = draw_text(Picture("t", spans, ()), width=10).splitlines()
    assert lines[1].split() == ["a", "─────11···"]
    assert lines[2].split() == ["b", "✕········R"]  # though something completed there
    window = draw_window(Picture("t", spans, ()), 0, 1000, width=10).splitlines()
    assert window[1].split() == ["a", "├────┤┼···"]
    assert window[2].split()[1].startswith("✕╌╌")


def test_the_svg_is_well_formed_and_has_a_bar_per_transaction(table_path: Path) -> None:
    picture = read_picture(table_path, title="a < b & c")
    root = ElementTree.fromstring(draw_svg([picture], heading='"quoted"'))
    name = "{http://www.w3.org/2000/svg}"
    tips = [tip.text or "" for tip in root.iter(f"{name}title")]
    assert len(tips) == len(picture.spans)
    for span in picture.spans:
        assert any(span.instant in tip for tip in tips)
    texts = [text.text for text in root.iter(f"{name}text")]
    assert "a < b & c" in texts


def test_the_command_draws_any_table(
    table_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(table_path), str(tmp_path / "picture.svg")]) == 0
    assert "a and b: 1 overlapping pairs" in capsys.readouterr().out
    assert (tmp_path / "picture.svg").read_text().startswith("<svg")
    assert main([]) == 2


def test_what_was_compacted_cleaned_and_archived_is_drawn_and_counted_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "table"
    given = {
        "hoodie.mainstem.writer.name": "a",
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
    }
    table = mainstem.create_table(path, SCHEMA, record_key="id", buckets=1, properties=given)
    for number in range(5):
        table.upsert(_rows(number))
        if number == 1:
            table.compact()
    before = read_picture(path).spans
    assert all(run.error is None for run in table.run_services(if_due=False))
    done = services_done(path)
    assert (done.compactions, done.cleans) == (2, 1)
    assert done.archived > 0 and done.active + done.archived == 8
    assert done.base_files and done.log_files < 5
    assert read_picture(path).spans == before
    assert len(before) == 5
    assert f"{done.archived} instants archived" in done.describe()
