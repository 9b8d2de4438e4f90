"""One table as the page shows it: opened anew for each look, with what is worth remembering between looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, TypeVar

import mainstem
from mainstem.api.table import Table
from mainstem.errors import CorruptTable, Invalid, MainstemError, Unavailable, Unsupported
from mainstem.forks import Mutex
from mainstem.indexing.status import Index
from mainstem.options.reading import DAMAGED
from mainstem.options.tables import LOCAL_ZONE
from mainstem.storage.backends import reopens
from mainstem.timeline.active import TimelineReader
from mainstem.truetime.clock import Clock
from mainstem.truetime.instant_times import InstantTimes
from mainstem.ui.found_tables import FoundTable
from mainstem.ui.query_process import query_in_process
from mainstem.ui.row_query import ROWS_MAX, is_there
from mainstem.ui.shown_files import ShownFiles
from mainstem.ui.shown_instants import ShownInstants
from mainstem.ui.shown_options import shown_options
from mainstem.ui.shown_streams import shown_streams

Answer = dict[str, Any]
Kept = TypeVar("Kept")
#: seconds for which an answer is given again
ACTIVITY_S, FILES_S, DOCTOR_S = 2.0, 5.0, 10.0
_KINDS = ("activity", "files", "doctor")
QUERY_S = 20.0
WINDOW_S = 300.0


@dataclass
class ShownTable:
    """``given``: options on top of the table's own; ``turns``: what reads many files takes turns there."""

    found: FoundTable
    given: Mapping[str, str]
    clock: Clock
    turns: Mutex
    _instants: ShownInstants | None = None
    _remembered: dict[str, tuple[float, object]] = field(default_factory=dict)
    _mutex: Mutex = field(default_factory=Mutex)
    _looks: dict[str, Mutex] = field(default_factory=lambda: {kind: Mutex() for kind in _KINDS})

    def opened(self, *, damaged: bool = False) -> Table:
        """The table now. ``damaged``: its history tells of damaged commits instead of failing."""
        more = {str(DAMAGED): "skip"} if damaged else {}
        return mainstem.open_table(self.found.location, {**self.given, **more})

    # -- what the page asks for ----------------------------------------------------------------------

    def card(self) -> Answer:
        """What the list of tables says of this one; trouble as text."""
        told: Answer = {"id": self.found.id, "name": self.found.name, "path": self.found.location.base}
        try:
            table = self.opened()
            timeline = table.timeline()
        except (MainstemError, OSError) as error:
            return {**told, "trouble": str(error)}
        config = table.config
        return {
            **told, "table": config.name, "type": config.table_type, "version": config.version,
            "keys": list(config.record_key), "partitions": list(config.partition_fields),
            "instants": len(timeline), "pending": sum(not i.is_completed for i in timeline),
            "newest": max((i.completion or "" for i in timeline), default="") or None,
            "now": self._now(table),
        }  # fmt: skip

    def overview(self) -> Answer:
        """Who is at work, and what is due; the columns of the table."""
        table = self.opened(damaged=True)
        told = {**self.card(), "schema": [], "activity": None, "troubles": []}
        for what, look in (("schema", self._schema), ("activity", self._activity)):
            try:
                told[what] = look(table)
            except (MainstemError, OSError) as error:
                told["troubles"].append(f"{what}: {error}")
        return told

    def instants(self, view: str, since: int) -> Answer:
        """A page of what changed on the timeline (``shown_instants``)."""
        table = self.opened(damaged=True)
        return {**self._told_instants(table).page(table, view, since), "now": self._now(table)}

    def instant(self, requested: str, action: str) -> Answer:
        """All that is known of one instant."""
        found = self._told_instants(self.opened()).one(requested, action)
        if found is None:
            raise Invalid(f"no instant {requested} of {action} is known here", table=self.found.location.base)
        return found

    def streams(self) -> Answer:
        """Streams and their batches, of the instants that are known."""
        table = self.opened(damaged=True)
        shown = self._told_instants(table)
        more = shown.page(table, "", 0)["more"]
        return {"streams": shown_streams(shown.streams_told()), "more": more, "now": self._now(table)}

    def partitions(self, search: str, sort: str, offset: int, limit: int) -> Answer:
        """A page of partitions, and the sums of the table."""
        files = self._files()
        return {**files.partitions(search, sort, offset, limit), "totals": files.totals()}

    def groups(self, partition: str | None, search: str, sort: str, offset: int, limit: int) -> Answer:
        """A page of file groups."""
        return self._files().groups(partition, search, sort, offset, limit)

    def group(self, partition: str, file_id: str) -> Answer:
        """One file group with its files."""
        return {**self._files().group(partition, file_id), "now": self._now(self.opened())}

    def indexes(self) -> Answer:
        """The indexes, their states, and what the doctor finds about them."""
        table = self.opened()
        told = [
            {
                "name": one.name, "kind": one.kind, "columns": list(one.columns), "function": one.function,
                "state": one.state, "options": dict(one.options), "action": one.action,
                "partition": one.partition, "coverage": self._coverage(table, one),
            }
            for one in table.indexes()
        ]  # fmt: skip
        return {"indexes": told}

    @staticmethod
    def _coverage(table: Table, index: Index) -> Answer | None:
        """Of a vector index what it covers; every other index that is ready covers all, commit by commit."""
        if index.kind != "vector":
            return None
        try:
            return table.vectors.coverage(index.name).to_dict()
        except MainstemError:  # dropped since, or damaged: the doctor tells
            return None

    def properties(self) -> Answer:
        """``hoodie.properties``, explained."""
        return {"properties": shown_options(self.opened().properties)}

    def doctor(self) -> Answer:
        """What an examination finds."""

        def examine() -> list[Answer]:
            with self.turns.held:
                return [one.to_dict() for one in self.opened().doctor()]

        return {"findings": self._kept("doctor", DOCTOR_S, examine)}

    def explain(self, key: str, partition: str | None, as_of: str | None) -> Answer:
        """Every version of one row (``Table.explain_row``), as data and as text."""
        with self.turns.held:
            found = self.opened().explain_row(key, partition or None, as_of or None)
        return {**found.to_json(), "found": found.found, "text": str(found)}

    def query(self, sql: str, rows: int) -> Answer:
        """Rows by SQL (``row_query``)."""
        with self.turns.held:
            if not is_there():
                raise Unsupported("queries need DuckDB: pip install 'mainstem[ui]'")
            if not reopens(self.opened().opened.seams.storage):
                raise Unsupported("a table in memory is within reach of its process alone: no SQL")
            return query_in_process(self.found.location, self.given, sql, rows, QUERY_S)

    def query_terms(self) -> Answer:
        """Whether SQL is to be had, and its bounds."""
        return {"there": is_there(), "rows": ROWS_MAX, "seconds": QUERY_S, "name": "t"}

    # -- remembered ------------------------------------------------------------------------------------

    def _told_instants(self, table: Table) -> ShownInstants:
        """Begins anew when another table was created at the place."""
        with self._mutex.held:
            if self._instants is None or self._instants.identity != table.opened.identity:
                reader = TimelineReader(table.opened.seams.storage, stays=True)
                self._instants = ShownInstants(table.opened.identity, reader)
            return self._instants

    def _files(self) -> ShownFiles:
        def look() -> ShownFiles:
            with self.turns.held:
                return ShownFiles(self.opened().files())

        return self._kept("files", FILES_S, look)

    def _activity(self, table: Table) -> object:
        return self._kept("activity", ACTIVITY_S, lambda: table.activity(WINDOW_S).to_dict())

    def _kept(self, what: str, seconds: float, look: Callable[[], Kept]) -> Kept:
        """What a look found, for some seconds. One look at a time: others wait for it and share it."""
        with self._looks[what].held:
            until, found = self._remembered.get(what, (0.0, None))
            if self.clock.monotonic_ms() < until:
                return found  # type: ignore[return-value]  # what this look found before
            began = self.clock.monotonic_ms()
            made = look()
            took = self.clock.monotonic_ms() - began
            # A look that takes long is not repeated all the time.
            self._remembered[what] = self.clock.monotonic_ms() + max(seconds * 1000, 3 * took), made
            return made

    def _schema(self, table: Table) -> object:
        return [{"name": field.name, "type": str(field.type)} for field in table.schema]

    def _now(self, table: Table) -> str:
        """This machine's clock as an instant of the table."""
        zone = table.config.zone(LOCAL_ZONE.read(table.opened.given)) or UTC
        return InstantTimes(zone).format(self.clock.now_ms())


def trouble(error: Exception) -> Answer:
    """An error as an answer has it."""
    if isinstance(error, MainstemError):
        told: Answer = {"kind": type(error).__name__, "message": error.message, "table": error.table}
        if isinstance(error, CorruptTable) and error.path:
            told["file"] = error.path
        return {"error": told}
    if isinstance(error, OSError):
        text = f"storage: {error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
        return {"error": {"kind": Unavailable.__name__, "message": text, "table": None}}
    return {"error": {"kind": type(error).__name__, "message": "an error in mainstem itself", "table": None}}
