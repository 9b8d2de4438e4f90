"""Goal: the curve of rows per second counts every row once, at its time, and shows who was held up.

Method: hand-made commits, whose rates are known.
"""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from demos.throughput_picture import Build, Throughput, draw_throughput, draw_throughput_svg
from demos.timeline_picture import COMMITTED, ROLLED_BACK, Picture, Span


def _commits(writer: str, *commits: tuple[int, int, int], state: str = COMMITTED) -> list[Span]:
    return [Span(writer, f"{writer}{start}", state, start, end, rows) for start, end, rows in commits]


def _picture(*spans: Span) -> Picture:
    return Picture("t", spans, ())


#: a brings 100 rows each second for 20 s; b the same, and nothing from 5 s to 15 s
STEADY = _commits("a", *((1000 * n, 1000 * n + 1000, 100) for n in range(20)))
HELD_UP = _commits("b", (0, 5_000, 500), (5_000, 15_000, 0), (15_000, 20_000, 500))


def test_rows_per_second_are_those_of_all_tables_and_writers_together() -> None:
    twice = Throughput.of([_picture(*STEADY), _picture(*STEADY, *HELD_UP)], [])
    assert twice.total(0, 20_000) == pytest.approx(250)
    assert twice.total(5_000, 15_000) == pytest.approx(200)
    assert twice.total(-9_000, 5_000) == pytest.approx(300)  # before the first there was nobody


def test_a_writer_that_is_held_up_shows_as_a_valley() -> None:
    throughput = Throughput.of([_picture(*STEADY, *HELD_UP)], [])
    moments = np.array([2_000.0, 10_000.0, 18_000.0])
    assert throughput.curve("a", moments) == pytest.approx([100, 100, 100])
    assert throughput.curve("b", moments) == pytest.approx([100, 0, 100])


def test_what_was_rolled_back_brought_nothing() -> None:
    lost = _commits("c", (0, 1000, 7), state=ROLLED_BACK)
    assert list(Throughput.of([_picture(*STEADY, *lost)], []).shares) == ["a"]


def test_the_terminal_shows_rates_and_builds_under_each_other() -> None:
    throughput = Throughput.of([_picture(*HELD_UP)], [Build("record_index", 8_000, 11_999)])
    lines = draw_throughput(throughput, width=20).splitlines()
    assert "the highest 100" in lines[0]
    curve = lines[1].removeprefix(f"  {'rows/s':<12} ")
    assert curve[:3] == "███"
    assert curve[8:12] == "    "
    assert lines[2].split() == ["record_index", "········├──┤········"]


def test_the_svg_is_well_formed_and_names_writers_and_builds() -> None:
    builds = [Build("column_stats", 2_000, 4_500), Build("a < b", 2_000, 3_000)]
    text = draw_throughput_svg(Throughput.of([_picture(*STEADY, *HELD_UP)], builds), heading='"quoted"')
    root = ElementTree.fromstring(text)
    name = "{http://www.w3.org/2000/svg}"
    texts = [found.text for found in root.iter(f"{name}text")]
    assert {"a", "b", "column_stats", "a < b", "2.5 s", '"quoted"'} <= set(texts)
    assert len(list(root.iter(f"{name}polygon"))) == 2


def test_nothing_at_all_is_drawn_too() -> None:
    assert "the highest 0" in draw_throughput(Throughput({}, []))
    assert draw_throughput_svg(Throughput({}, [])).startswith("<svg")
