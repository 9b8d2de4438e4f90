"""Files of a folder into a table, each once.

The files that a commit holds stand in it, with those of before that are still in the folder: name and size
(``writers/stream_positions``, where a file is a partition that is read from nothing to its end). So a file is
taken when no commit names it, whatever its age; one that has another size than when it was taken is refused,
as only whole files are taken. Put files there by a rename, or under a name that begins with ``.`` or ``_``
until they are whole.

JSON files hold an object in each line; each line is a record as a topic's would be, with its number in the
file as its offset. CSV files have a line of names; their columns have the table's types. Of these and of
Parquet files, one that cannot be read is refused, or noted among the dead letters, as a whole.
"""

from __future__ import annotations

import glob
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from mainstem.errors import Invalid, Unavailable
from mainstem.ingestion.dead_letters import DeadLetters
from mainstem.ingestion.ingest_progress import IngestProgress
from mainstem.ingestion.ingester import AGAIN, Pace
from mainstem.ingestion.json_rows import objects_of
from mainstem.ingestion.nested_fields import wider
from mainstem.ingestion.records import Bad, Records
from mainstem.ingestion.target_table import TargetTable
from mainstem.writers.outcome import COMMITTED
from mainstem.writers.stream_positions import StreamPositions

_log = logging.getLogger(__name__)

#: names that a commit may carry
FILES_MAX = 20_000
#: in place of a record's number: the whole file
_WHOLE = -1
_LINES = 100_000
_BATCH_ROWS = 131_072


@dataclass(frozen=True)
class FoundFile:
    """A file by its name below the folder, as listed."""

    name: str
    path: str
    size: int
    modified_ns: int


class _Unreadable(Exception):
    """A file that cannot be read as a whole; the text says why."""


class FolderIngester:
    """The files that match a pattern. Arguments as for ``ingester.Ingester``."""

    def __init__(
        self,
        target: TargetTable,
        pattern: str,
        *,
        source: str,
        dead: DeadLetters | None = None,
        pace: Pace | None = None,
        on_progress: Callable[[IngestProgress], None] = lambda progress: None,
    ) -> None:
        self._target, self._pattern, self._source = target, pattern, source
        self._dead, self._pace, self._on_progress = dead, pace or Pace(), on_progress
        fixed = pattern.split("*")[0].split("?")[0].split("[")[0]
        self._folder = os.path.dirname(fixed)
        self._rows = self._commits = self._tries = 0

    def run(self, stopping: Callable[[], bool] = lambda: False, *, once: bool = False) -> int:
        """Until ``stopping()``, or ``once`` until the files that are there are in the table; returns the
        rows."""
        while not stopping():
            try:
                if self._round():
                    continue
                if once:
                    break
                pause = self._pace.every_s
            except AGAIN as error:
                self._tries += 1
                pause = self._pace.pause_s(self._tries, error)
                _log.warning("%s: %s; it is tried again", self._source, error)
            end = time.monotonic() + pause
            while not stopping() and time.monotonic() < end:
                time.sleep(min(0.1, pause))
        return self._rows

    def found(self) -> list[FoundFile]:
        """The files, in the order of their last changes."""
        files = []
        for path in glob.glob(self._pattern, recursive=True):
            name = os.path.relpath(path, self._folder or ".")
            if any(part.startswith((".", "_")) for part in name.split(os.sep)) or not os.path.isfile(path):
                continue
            about = os.stat(path)
            files.append(FoundFile(name, path, about.st_size, about.st_mtime_ns))
        return sorted(files, key=lambda file: (file.modified_ns, file.name))

    def _round(self) -> bool:
        """Commit some of the new files; False if there are none."""
        began = time.monotonic()
        stands = self._target.positions(self._source)
        files = self.found()
        if len(files) > FILES_MAX:
            raise Invalid(
                f"{self._pattern}: {len(files):,} files, of which at most {FILES_MAX:,} can be told from one"
                " another; move those away that are in the table"
            )
        for file in files:
            if stands.ends.get(file.name, file.size) != file.size:
                raise Invalid(
                    f"{file.path} had {stands.ends[file.name]:,} bytes when it was taken, and has"
                    f" {file.size:,} now: a file is taken once, whole. Give what is new another name; put"
                    " files there by a rename"
                )
        new = self._some([file for file in files if file.name not in stands.ends])
        if not new:
            return False
        ends = {file.name: file.size for file in new}
        guard = StreamPositions(
            self._source, dict.fromkeys(ends), ends, forget=self._gone(set(stands.ends), files)
        )
        first = next(self._parts(new, []), None)
        if first is None and self._target.table is None:
            raise Invalid(f"{new[0].path}: no row in it, of which a table could be made; give a schema")
        schema = pa.schema([]) if first is None else first.schema
        rows = dead = 0

        def parts() -> Iterator[pa.Table]:
            nonlocal rows, dead
            rows = dead = 0
            letters: list[tuple[Records, list[Bad]]] = []
            for part in self._parts(new, letters):
                rows += part.num_rows
                yield part
                dead += self._keep(letters)
            dead += self._keep(letters)

        outcome = self._target.write_parts(parts, schema, guard)
        if outcome.status != COMMITTED:
            _log.warning("%s: another process committed these files first", self._source)
            return True
        self._rows += rows
        self._commits += 1
        self._tries = 0
        progress = IngestProgress(
            self._source, outcome.instant or "", outcome.completion_time, rows, sum(ends.values()),
            dead, self._rows, self._commits, time.monotonic() - began, ends,
            {"files": sum(file.name not in stands.ends for file in files) - len(new)},
        )  # fmt: skip
        _log.info("%s", progress.describe())
        self._on_progress(progress)
        return True

    def _gone(self, taken: set[str], files: Sequence[FoundFile]) -> frozenset[str]:
        """Those of the taken files that are no longer there. One that a listing missed would be taken again
        once it is listed, so each is asked for by its name."""
        missed = taken - {file.name for file in files}
        return frozenset(n for n in missed if not os.path.lexists(os.path.join(self._folder, n)))

    def _keep(self, letters: list[tuple[Records, list[Bad]]]) -> int:
        """Write dead letters, before the commit that passes them over; returns their number."""
        count = 0
        for records, bad in letters:
            assert self._dead is not None
            self._dead.write(records, bad)
            count += len(bad)
        letters.clear()
        return count

    def _some(self, files: Sequence[FoundFile]) -> list[FoundFile]:
        """As many of the files as one commit takes, at least one."""
        taken: list[FoundFile] = []
        size = 0
        for file in files:
            size += file.size
            if taken and size > self._pace.bytes:
                break
            taken.append(file)
        return taken

    def _parts(
        self, files: Sequence[FoundFile], letters: list[tuple[Records, list[Bad]]]
    ) -> Iterator[pa.Table]:
        """The rows of the files, in parts; raises ``Unavailable`` for a file that changes meanwhile."""
        known = self._target.schema
        for file in files:
            some = False
            try:
                for part, offsets in self._read(file, known, letters):
                    rows = self._complete(file, part, offsets, letters)
                    if rows.num_rows:
                        known = wider(known, rows.schema)
                        some = True
                        yield rows
            except _Unreadable as error:
                if some:
                    raise Invalid(f"{file.path} is damaged: {error}. Nothing of it was committed") from error
                whole = Records([None], [None], [file.name], [_WHOLE], [-1])
                self._note(file, whole, [Bad(0, str(error))], letters)
            except FileNotFoundError as error:
                raise Unavailable(f"{file.path} was taken away while it was read") from error
            about = os.stat(file.path)
            if (about.st_size, about.st_mtime_ns) != (file.size, file.modified_ns):
                raise Unavailable(f"{file.path} changed while it was read; put files there by a rename")

    def _read(
        self, file: FoundFile, known: pa.Schema | None, letters: list[tuple[Records, list[Bad]]]
    ) -> Iterator[tuple[pa.Table, Sequence[int]]]:
        """Rows with their numbers in the file."""
        name, number = file.name.lower(), 0
        try:
            if name.endswith(".parquet"):
                with pq.ParquetFile(file.path) as opened:
                    for batch in opened.iter_batches(_BATCH_ROWS):
                        yield pa.Table.from_batches([batch]), range(number, number + batch.num_rows)
                        number += batch.num_rows
            elif name.endswith((".csv", ".csv.gz")):
                types = {} if known is None else {field.name: field.type for field in known}
                rows = pv.read_csv(file.path, convert_options=pv.ConvertOptions(column_types=types))
                yield rows, range(rows.num_rows)
            elif name.endswith((".json", ".jsonl", ".ndjson")):
                yield from self._lines(file, known, letters)
            else:
                raise Invalid(f"{file.path}: expected a name that ends with .json, .jsonl, .csv or .parquet")
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise _Unreadable(str(error)) from error

    def _lines(
        self, file: FoundFile, known: pa.Schema | None, letters: list[tuple[Records, list[Bad]]]
    ) -> Iterator[tuple[pa.Table, Sequence[int]]]:
        with open(file.path, "rb") as opened:
            number = 0
            while lines := [line for _, line in zip(range(_LINES), opened, strict=False)]:
                kept = [(number + at, line) for at, line in enumerate(lines) if line.strip()]
                number += len(lines)
                bad: list[Bad] = []
                values = [line for _, line in kept]
                rows, places = objects_of(values, known, range(len(values)), bad)
                if bad:
                    offsets = [at for at, _ in kept]
                    count = len(kept)
                    names = [file.name] * count
                    records = Records([None] * count, list(values), names, offsets, [-1] * count)
                    self._note(file, records, bad, letters)
                known = wider(known, rows.schema) if rows.num_rows else known
                yield rows, [kept[place][0] for place in places]

    def _complete(
        self,
        file: FoundFile,
        rows: pa.Table,
        offsets: Sequence[int],
        letters: list[tuple[Records, list[Bad]]],
    ) -> pa.Table:
        """The rows that have a value in each column that every row needs."""
        good = np.ones(rows.num_rows, bool)
        for name in self._target.needed if rows.num_rows else ():
            lacks = np.ones(rows.num_rows, bool)
            if name in rows.column_names:
                lacks = rows.column(name).is_null().to_numpy()
            if lacks.any():
                why = f"{int(lacks.sum()):,} rows have no value of column {name!r}, which every row needs"
                if self._dead is None:
                    raise Invalid(f"{file.path}: {why}. Nothing of this batch was committed")
                places = [int(at) for at in np.flatnonzero(lacks & good)]
                count = len(places)
                texts = [repr(rows.slice(at, 1).to_pylist()[0]).encode() for at in places]
                numbers = [offsets[at] for at in places]
                found = Records([None] * count, list(texts), [file.name] * count, numbers, [-1] * count)
                letters.append((found, [Bad(at, why) for at in range(count)]))
                good &= ~lacks
        return rows if good.all() else rows.filter(pa.array(good))

    def _note(
        self, file: FoundFile, records: Records, bad: list[Bad], letters: list[tuple[Records, list[Bad]]]
    ) -> None:
        if self._dead is None:
            first = min(bad, key=lambda item: item.at)
            line = records.offsets[first.at] + 1
            where = file.path if line == 0 else f"{file.path}, line {line}"
            raise Invalid(
                f"{where}: {first.reason}. Nothing of this batch was committed. Mend it, or keep"
                " such records in a table of their own: --on-error dead-letter"
            )
        letters.append((records, bad))
