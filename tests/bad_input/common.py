"""What every refusal is checked against: its text, and that the table is as it was."""

from __future__ import annotations

import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.storage.unwaited import TIDYING

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("amount", pa.float64()),
    ]
)


def rows(*ids: str, ts: int = 1, city: str = "paris", amount: float = 1.0) -> pa.Table:
    """Full rows with these keys."""
    count = len(ids)
    return pa.table(
        {"id": ids, "city": [city] * count, "ts": [ts] * count, "amount": [amount] * count},
        schema=SCHEMA,
    )


@dataclass(frozen=True)
class Picture:
    """All that a reader or another writer could notice of a table."""

    timeline: frozenset[str]
    files: frozenset[str]
    rows: tuple[tuple, ...]
    properties: bytes


def picture(path: Path) -> Picture:
    """Timeline files, data files and markers, rows (read through the public API), properties."""
    timeline = path / ".hoodie" / "timeline"
    files = {
        str(p.relative_to(path))
        for p in path.rglob("*")
        if p.is_file() and (".hoodie" not in p.relative_to(path).parts or ".temp" in p.parts)
    }
    found = mainstem.open_table(path).scan().to_arrow()
    content = tuple(sorted(tuple(map(repr, row.values())) for row in found.to_pylist()))
    return Picture(
        frozenset(p.name for p in timeline.iterdir() if p.is_file()),
        frozenset(files),
        content,
        (path / ".hoodie" / "hoodie.properties").read_bytes(),
    )


def is_clear(text: str, needles: tuple[str, ...]) -> None:
    """One line that names all of ``needles`` (regular expressions) and has no control
    characters.
    """
    for needle in needles:
        assert re.search(needle, text), f"{needle!r} is not in: {text}"
    assert "\n" not in text and text.isprintable(), repr(text)
    assert len(text) < 1500


@contextmanager
def refused(path: Path, kind: type[Exception], *needles: str) -> Iterator[None]:
    """The block must raise exactly ``kind`` with a clear text, and leave the table as it was."""
    for thread in threading.enumerate():
        if thread.name == TIDYING:  # of the commit before
            thread.join()
    before = picture(path)
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) is kind, f"{type(caught.value)}: {caught.value}"
    is_clear(str(caught.value), needles)
    assert picture(path) == before


@contextmanager
def failed(path: Path, kind: type[Exception], *needles: str) -> Iterator[None]:
    """Like ``refused`` for trouble after data was written: a finished rollback may be on the
    timeline.
    """
    before = picture(path)
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) is kind, f"{type(caught.value)}: {caught.value}"
    is_clear(str(caught.value), needles)
    after = picture(path)
    assert after.rows == before.rows
    assert after.properties == before.properties
    new = {name for name in after.timeline - before.timeline if ".rollback" not in name}
    assert not new, f"left on the timeline: {sorted(new)}"
    assert not [i for i in mainstem.open_table(path).timeline() if not i.is_completed]
    left = {f for f in after.files - before.files if ".hoodie_partition_metadata" not in f}
    assert not left, f"left behind: {sorted(left)}"


def edit_properties(path: Path, **changes: str | None) -> None:
    """Change or drop keys of hoodie.properties, as another engine would (``__`` stands for a
    dot).
    """
    file = path / ".hoodie" / "hoodie.properties"
    lines = file.read_text().splitlines()
    for key, value in ((k.replace("__", "."), v) for k, v in changes.items()):
        lines = [line for line in lines if not line.startswith(f"{key}=")]
        if value is not None:
            lines.append(f"{key}={value}")
    file.write_text("\n".join(lines) + "\n")


def golden(name: str, folder: Path) -> Path:
    """A table that Java wrote, unpacked; its base path."""
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(folder)
    return next(folder.rglob(".hoodie")).parent
