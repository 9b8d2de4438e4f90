"""Draw a table's timeline: one lane per writer, its transactions, and the file slices under it.

    python -m demos.timeline_picture TABLE [picture.svg]

A transaction is drawn from its requested to its completion time, as they stand on the timeline.
Transactions of two writers overlap when each was requested before the other completed: under
optimistic concurrency control one of such a pair, if both touch one file group, would be aborted.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import combinations
from pathlib import Path

import mainstem
from mainstem.formats.avro_container import decode_container
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.lsm_archive.reader import Archive
from mainstem.options import WRITER_NAME
from mainstem.storage import paths
from mainstem.timeline.commit_metadata import STREAM_KEY, CommitMetadata, decode_commit
from mainstem.timeline.instant import COMPLETED, DELTACOMMIT, ROLLBACK, Instant

COMMITTED, ROLLED_BACK, PENDING = "committed", "rolled back", "pending"
UNKNOWN_WRITER = "unknown"
LEGEND = """\
A digit: so many transactions completed in this column (+: ten or more).  ─: one was open.
├──┤: requested, completed.  ✕: begun by a writer that died.  R: its rollback completed."""


@dataclass(frozen=True)
class Span:
    """One transaction. Times in milliseconds since the epoch, as the writers' clocks gave them.

    ``end_ms`` of a rolled back transaction is the rollback's completion, of a pending one None.
    """

    writer: str
    instant: str
    state: str
    start_ms: int
    end_ms: int | None
    rows: int = 0
    extra: Mapping[str, str] | None = None


@dataclass(frozen=True)
class SliceLine:
    """One file slice: its log files as (completion time, writer), oldest first."""

    label: str
    base_instant: str
    log_files: tuple[tuple[int, str], ...]
    bytes: int
    has_base_file: bool


@dataclass(frozen=True)
class Picture:
    """All that is drawn of one table."""

    title: str
    spans: tuple[Span, ...]
    slices: tuple[SliceLine, ...]

    @property
    def writers(self) -> list[str]:
        return sorted({span.writer for span in self.spans})

    @property
    def range_ms(self) -> tuple[int, int]:
        ends = [span.end_ms or span.start_ms for span in self.spans]
        return min((span.start_ms for span in self.spans), default=0), max(ends, default=1)


def instant_ms(text: str) -> int:
    """Milliseconds since the epoch of a 17-digit instant time of a table in UTC."""
    when = datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return int(when.timestamp()) * 1000 + int(text[14:17] or 0)


# ---------------------------------------------------------------- reading a table


def read_picture(path: str | Path, *, title: str = "", dead: Mapping[str, str] | None = None) -> Picture:
    """Read what is drawn from a table's timeline, active and archived, and its file slices.

    ``dead``: requested time -> writer, for transactions that were rolled back: their own files,
    which named the writer, are gone.
    """
    table = mainstem.open_table(path)
    spans = read_spans(table, dead or {})
    return Picture(title or Path(path).name, tuple(spans), tuple(_slice_lines(table, spans)))


def read_spans(table: mainstem.Table, dead: Mapping[str, str]) -> list[Span]:
    """Every transaction, active or archived, rolled back ones too, by requested time."""
    spans: dict[str, Span] = {}
    listed = table.timeline()  # before the archive is asked: what goes there meanwhile is found twice
    for instant in listed:
        if instant.completion is None:
            if instant.action == DELTACOMMIT:
                spans[instant.requested] = _open_span(table, instant)
        elif instant.action in (DELTACOMMIT, ROLLBACK):
            name = paths.timeline_file(instant.file_name)
            with suppress(FileNotFoundError):  # archived since
                spans |= _spans(instant, name, _read(table, name), dead)
    archive = Archive.load(table.opened.seams.storage)
    for old in archive.instants():
        if old.action in (DELTACOMMIT, ROLLBACK):
            instant = Instant(old.requested, old.action, COMPLETED, old.completion)
            data = archive.metadata(old.requested, old.action)
            spans |= _spans(instant, f"archived {old.requested}", data or b"", dead)
    return sorted(spans.values(), key=lambda span: span.instant)


def _read(table: mainstem.Table, name: str) -> bytes:
    return table.opened.seams.storage.read(name, max_bytes=TIMELINE_FILE_BYTES_MAX)


def _open_span(table: mainstem.Table, instant: Instant) -> Span:
    writer = UNKNOWN_WRITER
    name = paths.timeline_file(instant.file_name)
    with suppress(FileNotFoundError, mainstem.CorruptTable):  # still empty, or ended meanwhile
        writer = _writer(decode_commit(_read(table, name), path=name))
    return Span(writer, instant.requested, PENDING, instant_ms(instant.requested), None)


def _writer(metadata: CommitMetadata) -> str:
    """The name that it was given, else that of the stream that it commits."""
    if name := metadata.extra.get(WRITER_NAME):
        return name
    streams = json.loads(metadata.extra.get(STREAM_KEY) or "{}")
    return next(iter(streams), "mainstem" if metadata.ours else "Java Hudi")


def _spans(instant: Instant, name: str, data: bytes, dead: Mapping[str, str]) -> dict[str, Span]:
    """The transaction that a completed instant is, or those that it rolled back."""
    end = instant_ms(instant.completion or instant.requested)
    if instant.action == ROLLBACK:
        record, _ = decode_container(data, path=name)
        return {
            time: Span(dead.get(time, UNKNOWN_WRITER), time, ROLLED_BACK, instant_ms(time), end)
            for time in record["commitsRollback"]
        }
    metadata = decode_commit(data, path=name)
    rows = sum(stat.get("numWrites") or 0 for stats in metadata.stats.values() for stat in stats)
    start = instant_ms(instant.requested)
    span = Span(_writer(metadata), instant.requested, COMMITTED, start, end, rows, metadata.extra)
    return {instant.requested: span}


def _slice_lines(table: mainstem.Table, spans: Sequence[Span]) -> Iterable[SliceLine]:
    completed = {s.instant: s for s in spans if s.state == COMMITTED}
    for piece in table.file_slices():
        logs, size = [], 0
        for name in piece.log_files:
            log = paths.parse_log_name(name)
            span = completed.get(log.instant) if log else None
            if span is None or span.end_ms is None:
                continue
            info = table.opened.seams.storage.stat(f"{piece.partition}/{name}".lstrip("/"))
            size += info.size if info else 0
            logs.append((span.end_ms, span.writer))
        label = f"{piece.partition} {piece.file_id[:8]}".strip()
        has_base = piece.base_file is not None
        yield SliceLine(label, piece.base_instant, tuple(sorted(logs)), size, has_base)


def open_transactions(path: str | Path, writer: str) -> frozenset[str]:
    """Requested times of the transactions that ``writer`` has begun and not completed."""
    table = mainstem.open_table(path)
    pending = [i for i in table.timeline() if i.action == DELTACOMMIT and i.completion is None]
    spans = [_open_span(table, instant) for instant in pending]
    return frozenset(span.instant for span in spans if span.writer == writer)


def overlapping_pairs(spans: Iterable[Span]) -> Counter[tuple[str, str]]:
    """By writers: how many pairs of committed transactions of two writers were open at once."""
    pairs: Counter[tuple[str, str]] = Counter()
    committed = [s for s in spans if s.state == COMMITTED and s.end_ms is not None]
    for a, b in combinations(committed, 2):
        if a.writer != b.writer and a.start_ms < (b.end_ms or 0) and b.start_ms < (a.end_ms or 0):
            first, second = sorted((a.writer, b.writer))
            pairs[first, second] += 1
    return pairs


# ---------------------------------------------------------------- terminal


def draw_text(picture: Picture, width: int = 100) -> str:
    """The whole timeline and the file slices under it; ``LEGEND`` says what the signs mean."""
    start, end = picture.range_ms
    scale = Scale(start, end, width)
    lines = [f"{picture.title}: {(end - start) / 1000:.1f} s, one column = {scale.cell_ms:.0f} ms"]
    for writer in picture.writers:
        cells = _lane([s for s in picture.spans if s.writer == writer], scale)
        lines.append(f"  {writer:<12} {''.join(cells)}")
    lines.append(f"  {'':<12} {scale.axis()}")
    lines.append("  file slices: log files that became visible, all writers' in one slice")
    for piece in picture.slices:
        counts = Counter(scale.cell(when) for when, _ in piece.log_files)
        cells = [_digit(counts[i]) if counts[i] else "·" for i in range(width)]
        base = "base file + " if piece.has_base_file else ""
        note = f"{base}{len(piece.log_files)} log files, {piece.bytes / 1e6:.1f} MB"
        lines.append(f"  {piece.label:<12} {''.join(cells)} {note}")
    return "\n".join(lines)


def draw_window(picture: Picture, from_ms: int, until_ms: int, width: int = 100) -> str:
    """A few seconds of it, every transaction from ``├`` (requested) to ``┤`` (completed)."""
    scale = Scale(from_ms, until_ms, width)
    seconds = (until_ms - from_ms) / 1000
    lines = [f"{picture.title}: {seconds:.1f} s of it, one column = {scale.cell_ms:.0f} ms"]
    for writer in picture.writers:
        cells = ["·"] * width
        for span in picture.spans:
            if span.writer == writer:
                _draw_span(cells, span, scale)
        lines.append(f"  {writer:<12} {''.join(cells)}")
    lines.append(f"  {'':<12} {scale.axis()}")
    return "\n".join(lines)


@dataclass(frozen=True)
class Scale:
    """Times as columns of a terminal."""

    start_ms: int
    end_ms: int
    width: int

    @property
    def cell_ms(self) -> float:
        return max(1.0, (self.end_ms - self.start_ms) / self.width)

    def cell(self, when_ms: int) -> int:
        """The column of a time, unclipped at both ends but for the very last millisecond."""
        column = int((when_ms - self.start_ms) // self.cell_ms)
        return self.width - 1 if when_ms == self.end_ms else column

    def axis(self) -> str:
        cells = [" "] * (self.width + 8)
        step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 10**6) if s * 1000 / self.cell_ms >= 9)
        for second in range(0, int((self.end_ms - self.start_ms) / 1000) + 1, step):
            column = self.cell(self.start_ms + second * 1000)
            cells[column : column + 5] = f"{'╵' + str(second) + ' s':<5}"
        return "".join(cells).rstrip()


def _lane(spans: Sequence[Span], scale: Scale) -> list[str]:
    cells = ["·"] * scale.width
    ended: Counter[int] = Counter()
    for span in spans:
        if span.state == COMMITTED and span.end_ms is not None:
            ended[scale.cell(span.end_ms)] += 1
            for column in range(scale.cell(span.start_ms), scale.cell(span.end_ms)):
                cells[column] = "─"
    for column, count in ended.items():
        cells[column] = _digit(count)
    for span in spans:
        if span.state != COMMITTED:
            cells[scale.cell(span.start_ms)] = "✕"
            if span.end_ms is not None:
                cells[scale.cell(span.end_ms)] = "R"
    return cells


def _draw_span(cells: list[str], span: Span, scale: Scale) -> None:
    last = scale.width - 1
    first_cell = scale.cell(span.start_ms)
    end_cell = last + 1 if span.end_ms is None else scale.cell(span.end_ms)
    if first_cell > last or end_cell < 0:
        return
    fill = "─" if span.state == COMMITTED else "╌"
    for column in range(max(0, first_cell), min(last, end_cell) + 1):
        cells[column] = fill
    if first_cell >= 0:
        cells[first_cell] = "├" if span.state == COMMITTED else "✕"
    if end_cell <= last:
        closing = "┤" if span.state == COMMITTED else "R"
        cells[end_cell] = "┼" if end_cell == first_cell and closing == "┤" else closing


def _digit(count: int) -> str:
    return str(count) if count < 10 else "+"


# ---------------------------------------------------------------- SVG

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
LEFT, RIGHT, _LANE, _LINE = 150, 200, 26, 13


def draw_svg(pictures: Sequence[Picture], *, width: int = 1500, heading: str = "") -> str:
    """All ``pictures`` under each other as one SVG document; bars carry tooltips."""
    writers = sorted({writer for picture in pictures for writer in picture.writers})
    colours = {w: COLOURS[i % len(COLOURS)] for i, w in enumerate(writers)}
    parts: list[str] = [f'<text x="10" y="24" class="h">{escape(heading)}</text>'] if heading else []
    top = 44 if heading else 16
    for picture in pictures:
        block, height = _svg_table(picture, top, width, colours)
        parts += block
        top += height
    return svg_document(parts, width, top)


def svg_document(parts: Sequence[str], width: int, height: int) -> str:
    """The parts as one SVG document, on white."""
    style = (
        "text{font:11px sans-serif;fill:#222}.h{font-size:16px;font-weight:bold}"
        ".t{font-size:13px;font-weight:bold}.a{fill:#777}.g{stroke:#ddd}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><style>{style}</style>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>' + "".join(parts) + "</svg>\n"
    )


def svg_seconds(start_ms: int, end_ms: int, per_ms: float, top: int, bottom: int, y: int) -> Iterable[str]:
    """Lines for every so many seconds from ``top`` to ``bottom``, with their numbers at ``y``."""
    step = next(s for s in (1, 2, 5, 10, 20, 60, 600, 10**7) if s * 1000 * per_ms >= 60)
    for second in range(0, (end_ms - start_ms) // 1000 + 1, step):
        x = LEFT + second * 1000 * per_ms
        yield f'<path class="g" d="M{x:.1f} {top}V{bottom}"/>'
        yield f'<text class="a" x="{x + 2:.1f}" y="{y}">{second} s</text>'


def _svg_table(picture: Picture, top: int, width: int, colours: Mapping[str, str]) -> tuple[list[str], int]:
    start, end = picture.range_ms
    per_ms = (width - LEFT - RIGHT) / max(1, end - start)
    lanes = {writer: top + 24 + i * _LANE for i, writer in enumerate(picture.writers)}
    slices_top = top + 24 + len(lanes) * _LANE + 26
    bottom = slices_top + len(picture.slices) * _LINE
    parts = [f'<text x="10" y="{top + 12}" class="t">{escape(picture.title)}</text>']
    parts += svg_seconds(start, end, per_ms, top + 18, bottom, slices_top - 8)
    for writer, y in lanes.items():
        parts.append(f'<text x="10" y="{y + 14}">{escape(writer)}</text>')
    for span in picture.spans:
        left = LEFT + (span.start_ms - start) * per_ms
        right = LEFT + ((span.end_ms or end) - start) * per_ms
        parts.append(_svg_span(span, left, right, lanes[span.writer], colours))
    for i, piece in enumerate(picture.slices):
        parts += _svg_slice(piece, slices_top + i * _LINE, start, per_ms, width, colours)
    return parts, bottom - top + 24


def _svg_span(span: Span, left: float, right: float, y: int, colours: Mapping[str, str]) -> str:
    tip = f"{span.writer}: {span.instant}, {span.state}, {span.rows:,} rows"
    colour = colours[span.writer]
    body = f'x="{left:.1f}" y="{y}" width="{max(1.0, right - left):.1f}" height="18"'
    look = f'fill="{colour}" fill-opacity=".55" stroke="{colour}"'
    if span.state != COMMITTED:
        look = 'fill="none" stroke="#c00" stroke-dasharray="3 2"'
    return f"<rect {body} {look}><title>{escape(tip)}</title></rect>"


def _svg_slice(
    piece: SliceLine, y: int, start: int, per_ms: float, width: int, colours: Mapping[str, str]
) -> Iterable[str]:
    base = "base file + " if piece.has_base_file else ""
    note = f"{base}{len(piece.log_files)} log files, {piece.bytes / 1e6:.1f} MB"
    yield f'<text x="10" y="{y + 9}">{escape(piece.label)}</text>'
    yield f'<text class="a" x="{width - RIGHT + 8}" y="{y + 9}">{escape(note)}</text>'
    for when, writer in piece.log_files:
        x = LEFT + (when - start) * per_ms
        yield f'<path stroke="{colours[writer]}" d="M{x:.1f} {y}v{_LINE - 3}"/>'


def main(arguments: Sequence[str]) -> int:
    if not 1 <= len(arguments) <= 2:
        print(__doc__)
        return 2
    picture = read_picture(arguments[0])
    print(f"{LEGEND}\n{draw_text(picture)}")
    for pair, count in sorted(overlapping_pairs(picture.spans).items()):
        print(f"  {' and '.join(pair)}: {count} overlapping pairs of transactions")
    if len(arguments) == 2:
        Path(arguments[1]).write_text(draw_svg([picture]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
