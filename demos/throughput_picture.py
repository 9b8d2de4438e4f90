"""Draw how many rows per second the writers bring in, and what was built beside them.

A commit's rows count from its writer's commit before, on the same table, to its own completion, and the curve
is a mean over a few seconds: batches come in pulses, and a writer that is held up shows as a valley.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

from demos.timeline_picture import (
    COLOURS,
    COMMITTED,
    LEFT,
    RIGHT,
    Picture,
    Scale,
    Span,
    svg_document,
    svg_seconds,
)

_BARS = " ▁▂▃▄▅▆▇█"
_CHART, _LANE = 220, 20
_COLUMNS = 300
#: the curve at a moment is the mean of so long
WINDOW_MS = 4_000


@dataclass(frozen=True)
class Build:
    """An index, and when it was planned and complete, as the timeline says, in ms since the epoch."""

    index: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class Throughput:
    """``shares``: of each writer, since when and until when how many rows came in with one commit."""

    shares: Mapping[str, Sequence[tuple[int, int, int]]]
    builds: Sequence[Build]

    @classmethod
    def of(cls, pictures: Sequence[Picture], builds: Sequence[Build]) -> Throughput:
        """That of all ``pictures``' writers together."""
        shares: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for picture in pictures:
            for writer in picture.writers:
                shares[writer] += _shares([s for s in picture.spans if s.writer == writer])
        return cls({writer: known for writer, known in sorted(shares.items()) if known}, builds)

    @property
    def range_ms(self) -> tuple[int, int]:
        known = [(start, end) for shares in self.shares.values() for start, end, _ in shares]
        known += [(build.start_ms, build.end_ms) for build in self.builds]
        return min((start for start, _ in known), default=0), max((end for _, end in known), default=1)

    def curve(self, writer: str, moments_ms: np.ndarray) -> np.ndarray:
        """Rows per second of one writer around each of these moments."""
        half = WINDOW_MS / 2
        return self._mean(writer, moments_ms - half, moments_ms + half)

    def total(self, from_ms: float, until_ms: float) -> float:
        """Rows per second of all writers together, from then until then."""
        edges = np.array([from_ms], float), np.array([until_ms], float)
        return float(sum(self._mean(writer, *edges)[0] for writer in self.shares))

    def _mean(self, writer: str, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Rows per second between each two moments, as far as they are in the picture."""
        first, last = self.range_ms
        begins, ends = np.clip(begins, first, last), np.clip(ends, first, last)
        rows = np.zeros(len(begins))
        for start, end, count in self.shares[writer]:
            part = np.minimum(ends, end) - np.maximum(begins, start)
            rows += count * np.maximum(part, 0.0) / max(1, end - start)
        return 1000 * rows / np.maximum(ends - begins, 1.0)


def _shares(spans: Sequence[Span]) -> list[tuple[int, int, int]]:
    done = sorted((s.end_ms or 0, s.start_ms, s.rows) for s in spans if s.state == COMMITTED)
    if not done:
        return []
    ends = [done[0][1], *(end for end, _, _ in done)]
    return [(start, end, rows) for (start, end), (_, _, rows) in zip(pairwise(ends), done, strict=True)]


def draw_throughput(throughput: Throughput, width: int = 100) -> str:
    """For a terminal: a column's height is rows per second; under it what was built."""
    start, end = throughput.range_ms
    scale = Scale(start, end, width)
    moments = start + scale.cell_ms * (np.arange(width) + 0.5)
    rates = sum((throughput.curve(writer, moments) for writer in throughput.shares), np.zeros(width))
    highest = rates.max()
    heights = np.ceil(rates / max(highest, 1.0) * (len(_BARS) - 1)).astype(int)
    label = max([12, *(len(build.index) for build in throughput.builds)])
    told = f"one column = {scale.cell_ms:.0f} ms, the highest {highest:,.0f}"
    lines = [
        f"rows per second, all writers and tables: {told}",
        f"  {'rows/s':<{label}} {''.join(_BARS[height] for height in heights)}",
    ]
    for build in throughput.builds:
        cells = ["·"] * width
        first, last = scale.cell(build.start_ms), scale.cell(build.end_ms)
        cells[first : last + 1] = "─" * (last + 1 - first)
        cells[first], cells[last] = ("├", "┤") if last > first else ("┼", "┼")
        lines.append(f"  {build.index:<{label}} {''.join(cells)}")
    lines.append(f"  {'':<{label}} {scale.axis()}")
    return "\n".join(lines)


def draw_throughput_svg(throughput: Throughput, *, width: int = 1500, heading: str = "") -> str:
    """The same as an SVG document: writers on top of each other, builds as bands through them."""
    start, end = throughput.range_ms
    per_ms = (width - LEFT - RIGHT) / max(1, end - start)
    chart_top = 44 + len(throughput.builds) * _LANE + 10
    bottom = chart_top + _CHART
    parts = [f'<text x="10" y="24" class="h">{escape(heading)}</text>']
    parts += svg_seconds(start, end, per_ms, 40, bottom, bottom + 16)
    for number, build in enumerate(throughput.builds):
        parts += _svg_build(build, 44 + number * _LANE, bottom, start, per_ms)
    parts += _svg_rates(throughput, start, end, bottom, width)
    return svg_document(parts, width, bottom + 30)


def _svg_build(build: Build, y: int, bottom: int, start: int, per_ms: float) -> list[str]:
    left = LEFT + (build.start_ms - start) * per_ms
    across = max(1.0, (build.end_ms - build.start_ms) * per_ms)
    seconds = (build.end_ms - build.start_ms) / 1000
    tip = f"<title>{escape(build.index)}: {seconds:.1f} s</title>"
    place = f'x="{left:.1f}" y="{y}" width="{across:.1f}"'
    return [
        f'<text x="10" y="{y + 12}">{escape(build.index)}</text>',
        f'<rect {place} height="{bottom - y}" fill="#000" fill-opacity=".05"/>',
        f'<rect {place} height="{_LANE - 5}" fill="#555">{tip}</rect>',
        f'<text class="a" x="{left + across + 4:.1f}" y="{y + 12}">{seconds:.1f} s</text>',
    ]


def _svg_rates(throughput: Throughput, start: int, end: int, bottom: int, width: int) -> list[str]:
    moments = np.linspace(start, max(end, start + 1), _COLUMNS)
    rates = {writer: throughput.curve(writer, moments) for writer in throughput.shares}
    highest = max(1.0, float(sum(rates.values(), np.zeros(_COLUMNS)).max()))
    step = next(s for s in (1, 2, 5, 10, 50, 100, 500, 1000, 5000, 10**4, 10**5, 10**9) if highest / s <= 8)
    per_row = _CHART / highest
    parts = []
    for rows in range(step, int(highest) + 1, step):
        y = bottom - rows * per_row
        parts.append(f'<path class="g" d="M{LEFT} {y:.1f}H{width - RIGHT}"/>')
        place = f'x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end"'
        parts.append(f'<text class="a" {place}>{rows:,} rows/s</text>')
    xs = np.linspace(LEFT, width - RIGHT, _COLUMNS)
    below = np.zeros(_COLUMNS)
    for number, (writer, rate) in enumerate(rates.items()):
        above = below + rate
        colour = COLOURS[number % len(COLOURS)]
        points = [*zip(xs, bottom - above * per_row, strict=True)]
        points += reversed([*zip(xs, bottom - below * per_row, strict=True)])
        shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polygon points="{shape}" fill="{colour}" fill-opacity=".6"/>')
        y = bottom - 20 * (number + 1)
        x = width - RIGHT + 12
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}" fill-opacity=".6"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 10}">{escape(writer)}</text>')
        below = above
    return parts
