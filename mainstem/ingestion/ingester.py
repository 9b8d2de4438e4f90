"""The loop that brings a topic into a table.

  join the group; partitions are given to this process: ask the table where each of them stands, read from
  there collect  records until a second has passed since the first one, or there are enough of them; they
  become
           columns meanwhile
  commit   dead letters to their table -> one transaction: the rows, guarded by where the partitions stood and
           now stand (``writers/stream_positions``)

Whatever goes wrong in between (a commit that another process of the group made first, one of unknown outcome,
storage or lock away), the answer is the same: forget what was read, ask the table where it stands, and read
again from there. So nothing here has to remember anything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from mainstem.errors import (
    Invalid,
    LeaseLost,
    LockUnavailable,
    OutcomeUnknown,
    RolledBack,
    Unavailable,
)
from mainstem.ingestion.dead_letters import DeadLetters
from mainstem.ingestion.ingest_progress import IngestProgress
from mainstem.ingestion.kafka_topic import KafkaTopic
from mainstem.ingestion.nested_fields import wider
from mainstem.ingestion.records import OFFSET_COLUMNS, Bad, Decoded, Decoder, Records, Undecodable, together
from mainstem.ingestion.target_table import TargetTable
from mainstem.writers.outcome import COMMITTED
from mainstem.writers.stream_positions import Positions, StreamPositions

_log = logging.getLogger(__name__)

AGAIN = (LeaseLost, LockUnavailable, OutcomeUnknown, RolledBack, Unavailable)
# So many records become columns together: enough to be quick, few enough to be done beside reading.
_CHUNK = 50_000
_ASK = 20_000
_WAIT_S = 0.05
_PAUSE_S = (0.2, 10.0)


@dataclass(frozen=True)
class Pace:
    """How much is committed at once: what comes within ``every_s`` seconds, and at most so many rows and
    bytes of values. ``tries``: how often in a row trouble with storage or lock is met by another try, None:
    always."""

    every_s: float = 1.0
    rows: int = 1_000_000
    bytes: int = 256 << 20
    tries: int | None = None

    def pause_s(self, tries: int, error: Exception) -> float:
        """How long to wait before the next of ``tries`` tries in a row; raises ``error`` if it was one too
        many."""
        if self.tries is not None and tries > self.tries:
            raise error
        return min(_PAUSE_S[0] * 2.0 ** min(tries - 1, 10), _PAUSE_S[1])


@dataclass
class _Held:
    """What was read and is not committed yet."""

    raw: Records = field(default_factory=Records)
    tables: list[pa.Table] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    #: records with those of them that are bad
    bad: list[tuple[Records, list[Bad]]] = field(default_factory=list)
    #: partition -> offset after the last record
    ends: dict[int, int] = field(default_factory=dict)
    since: float = 0.0
    #: there was no table yet when the first of them became columns
    tableless: bool = False


class Ingester:
    """One process of the group. ``dead``: where bad records go; None: they end the ingestion. ``anew``: a
    topic
    that was created again is read from its beginning, instead of a refusal."""

    def __init__(
        self,
        target: TargetTable,
        decoder: Decoder,
        topic: Callable[..., KafkaTopic],
        *,
        source: str,
        dead: DeadLetters | None = None,
        pace: Pace | None = None,
        append_offsets: bool = False,
        anew: bool = False,
        on_progress: Callable[[IngestProgress], None] = lambda progress: None,
        now_s: Callable[[], float] = time.monotonic,
        sleep_s: Callable[[float], None] = time.sleep,
    ) -> None:
        """``topic`` makes the topic from its callbacks (``KafkaTopic``)."""
        self._now_s, self._sleep_s = now_s, sleep_s
        self._target, self._decoder = target, decoder
        self._source, self._dead, self._pace = source, dead, pace or Pace()
        self._append_offsets, self._anew, self._on_progress = append_offsets, anew, on_progress
        self._topic = topic(positions=self._positions, flush=self._commit, discard=self._discard)
        self._held = _Held()
        #: partition -> where the table stands, as this process saw or left it last
        self._stands: dict[str, int] = {}
        self._about: dict[str, str] = {}
        self._fields: pa.Schema | None = None
        self._tries = self._rows = self._commits = 0
        self._once = False

    def run(self, stopping: Callable[[], bool] = lambda: False, *, once: bool = False) -> int:
        """Until ``stopping()``, or ``once`` until all that is there is in the table; returns the rows.

        Raises ``Invalid`` and ``Unsupported`` for what only a person can decide. What was not committed is
        read again by the next process.
        """
        try:
            self._once = once
            self._topic.identity()
            self._topic.subscribe()
            while not stopping():
                try:
                    self._step()
                    if once and self._finished():
                        break
                except AGAIN as error:
                    self._after(error)
            self._commit()
        finally:
            self._discard()
            self._topic.close()
        return self._rows

    def _after(self, error: Exception) -> None:
        """Whatever went wrong: read again from where the table stands, after a pause that grows."""
        self._tries += 1
        self._discard()
        pause_s = self._pace.pause_s(self._tries, error)
        _log.warning("%s: %s; it is read again from where the table stands", self._source, error)
        self._sleep_s(pause_s)
        self._topic.unplace()

    def _finished(self) -> bool:
        topic = self._topic
        return topic.joined and not self._held.records and set(topic.next) <= topic.ended

    # -- read ------------------------------------------------------------------------------------

    def _step(self) -> None:
        left_s = self._held.since + self._pace.every_s - self._now_s() if self._held.records else _WAIT_S
        most = min(_ASK, self._pace.rows - self._held.records)
        read = self._topic.collect(most, min(max(left_s, 0.0), _WAIT_S))
        held, pace = self._held, self._pace  # a rebalance within it gives up what was held
        if len(read):
            if not held.records:
                held.since = self._now_s()
            held.records += len(read)
            held.bytes += sum(map(len, filter(None, read.values)))
            held.ends |= {p: self._topic.next[p] for p in sorted(set(read.partitions))}
            held.raw.extend(read)
            if len(held.raw) >= _CHUNK:
                self._decode()
        if not held.records:
            return
        due = self._now_s() >= held.since + pace.every_s
        full = held.records >= pace.rows or held.bytes >= pace.bytes
        if due or full or (self._once and set(self._topic.next) <= self._topic.ended):
            self._commit()

    def _discard(self) -> None:
        self._held, self._fields = _Held(), None

    def _positions(self) -> Mapping[str, int]:
        """Where the table stands, of this very topic. Raises ``Invalid`` if it is another one."""
        identity = self._topic.identity()
        found = self._target.positions(self._source)
        self._about = identity.about
        if found.about and found.about != identity.about:
            self._other_topic(found)
            found = Positions()
        self._stands = dict(found.ends)
        return self._stands

    def _other_topic(self, found: Positions) -> None:
        if found.about.get("cluster") != self._about["cluster"]:
            raise Invalid(
                f"the table holds offsets of {self._source!r} of another Kafka cluster"
                f" ({found.about.get('cluster')!r}, this one is {self._about['cluster']!r}): name this"
                " stream otherwise (--source), or give the servers of that cluster",
                table=self._target.base,
            )
        if not self._anew:
            raise Invalid(
                f"topic {self._topic.topic!r} was deleted and created again since it was last read: its"
                " offsets count from 0 again. Nothing was read. If the table shall get the new topic's"
                " records, from its beginning, on top of the old ones: --on-lost earliest, once",
                table=self._target.base,
            )
        _log.warning("%s: the topic was created again; it is read from its beginning", self._source)
        guard = StreamPositions(
            self._source, {}, {}, topic=self._topic.topic, about=self._about, anew=found.instant
        )
        if self._target.write(pa.table({}), guard).status != COMMITTED:
            raise Unavailable("another process of the group was faster")

    # -- columns ---------------------------------------------------------------------------------

    def _decode(self) -> None:
        """Make columns of what was read since the last time."""
        held = self._held
        raw, held.raw = held.raw, Records()
        if not len(raw):
            return
        if self._fields is None:
            self._fields = self._target.schema
            held.tableless = self._target.table is None
        known = self._fields
        if known is not None and self._append_offsets:
            known = pa.schema([f for f in known if f.name not in OFFSET_COLUMNS.names])
        made = self._decoder.decode(raw, known)
        if self._append_offsets and made.rows.num_rows:
            made.rows = _with_offsets(made, raw)
        made = self._complete(made)
        if made.bad:
            self._refuse(raw, made.bad)
            held.bad.append((raw, made.bad))
        if made.rows.num_rows:
            held.tables.append(made.rows)
            self._fields = wider(self._fields, made.rows.schema)

    def _complete(self, made: Decoded) -> Decoded:
        """Without rows that lack a value which every row must have."""
        rows = made.rows
        if not rows.num_rows:
            return made
        good = np.ones(rows.num_rows, bool)
        bad = list(made.bad)
        for name in dict.fromkeys(self._target.needed):
            if name in rows.column_names:
                lacks = rows.column(name).is_null().to_numpy()
                if pa.types.is_null(rows.schema.field(name).type):
                    lacks = np.ones(rows.num_rows, bool)
            else:
                lacks = np.ones(rows.num_rows, bool)
            for at in np.flatnonzero(lacks & good):
                bad.append(Bad(made.places[at], f"it has no value of column {name!r}, which every row needs"))
            good &= ~lacks
        if good.all():
            return made
        places = [made.places[at] for at in np.flatnonzero(good)]
        return Decoded(rows.filter(pa.array(good)), places, sorted(bad, key=lambda item: item.at))

    def _refuse(self, raw: Records, bad: list[Bad]) -> None:
        if self._dead is not None:
            return
        first = min(bad, key=lambda item: item.at)
        raise Invalid(
            f"record {raw.offsets[first.at]} of {self._source}-{raw.partitions[first.at]} does not become a"
            f" row: {first.reason}. Nothing of this batch was committed. Mend what produces it, or keep such"
            " records in a table of their own: --on-error dead-letter",
            table=self._target.base,
        )

    # -- commit ----------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Commit what was read, with its offsets."""
        if not self._held.records:
            return
        began = self._now_s()
        self._decode()
        held = self._held
        try:
            rows = together(held.tables)
        except Undecodable as error:
            raise Invalid(f"{self._source}: {error}", table=self._target.base) from error
        if self._topic.identity().about != self._about:
            raise Unavailable(f"topic {self._topic.topic!r} was created again while it was read")
        if held.tableless and self._target.table is not None:  # these rows may lack columns that it has
            raise Unavailable("another process made the table meanwhile")
        dead = sum(len(bad) for _, bad in held.bad)
        for raw, bad in held.bad:
            assert self._dead is not None
            self._dead.write(raw, bad)
        if not rows.num_rows and self._target.table is None:
            self._held, self._fields = _Held(), None
            return  # nothing yet to make a table of, which could hold offsets: who starts anew reads it again
        ends = {str(p): end for p, end in sorted(held.ends.items())}
        guard = StreamPositions(
            self._source, {p: self._stands.get(p) for p in ends}, ends,
            topic=self._topic.topic, about=self._about,
        )  # fmt: skip
        outcome = self._target.write(rows, guard)
        self._held, self._fields = _Held(), None
        if outcome.status != COMMITTED:
            _log.warning(
                "%s: %s committed these records first (%s)", self._source, "another process", outcome.instant
            )
            self._topic.unplace()
            return
        self._stands |= ends
        self._tries = 0
        self._rows += rows.num_rows
        self._commits += 1
        self._topic.tell_group(held.ends)
        lag = {str(p): count for p, count in self._topic.lag().items()}
        progress = IngestProgress(
            self._source, outcome.instant or "", outcome.completion_time, rows.num_rows, held.bytes, dead,
            self._rows, self._commits, self._now_s() - began, dict(self._stands), lag,
        )  # fmt: skip
        _log.info("%s", progress.describe())
        self._on_progress(progress)


def _with_offsets(made: Decoded, raw: Records) -> pa.Table:
    """The rows with the columns that tell where each record came from."""
    found = raw.take(made.places)
    keys = [None if key is None else key.decode("utf-8", "replace") for key in found.keys]
    rows = made.rows.drop_columns([n for n in OFFSET_COLUMNS.names if n in made.rows.column_names])
    columns = (found.offsets, found.partitions, found.timestamps, keys)
    for column, values in zip(OFFSET_COLUMNS, columns, strict=True):
        rows = rows.append_column(column, pa.array(values, column.type))
    return rows
