"""Every scenario on tables of version 10, and on tables that are upgraded to it in mid-history.

``of_version_10(S)`` is S on tables of version 10: native log files, in half of the seeds an LSM tree.
``raised(S)`` begins with a table of version 9; one process upgrades it beside everybody else, so that file
slices hold files of blocks and native ones, and transactions, plans and restores cross the upgrade. The names
of the scenarios are S's with ``-v10`` and ``-raised``. Both draw from random streams of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.errors import Invalid, MainstemError
from mainstem.layout.properties import load_config
from mainstem.storage.paths import PROPERTIES
from tests.sim import plain_format as plain
from tests.sim.births_world import Births
from tests.sim.indexed_world import Compacted
from tests.sim.kept_world import KeptDeletes
from tests.sim.log_compactor import LogCompactions
from tests.sim.native_world import (
    Native,
    NativeIndexed,
    NativeKept,
    NativeLogs,
    NativeResizes,
    NativeServices,
    NativeTasks,
)
from tests.sim.publishers import Publishers
from tests.sim.resize_world import ResizedServices
from tests.sim.services_world import Services
from tests.sim.statements_world import _Statements
from tests.sim.tables_world import Tables
from tests.sim.tasks_world import Tasks
from tests.sim.versions_world import Versions
from tests.sim.world import INTERRUPTS, Process, Violation

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from tests.sim.oracle import Intent
    from tests.sim.simulation import Simulation

#: scenarios without a variant of version 10 -> why
NOT_OF_VERSION_10: dict[type[Simulation], str] = {
    Publishers: "no table, no data file",
    Native: "is one",
    Versions: "is one",
}
#: scenarios of which ``native_world`` has the variant
_HAVE_ONE: dict[type[Simulation], type[Simulation]] = {
    Tasks: NativeTasks,
    Services: NativeServices,
    Compacted: NativeIndexed,
    KeptDeletes: NativeKept,
    ResizedServices: NativeResizes,
    LogCompactions: NativeLogs,
}
#: scenarios without a variant of a raised table -> why
NOT_RAISED: dict[type[Simulation], str] = {
    Publishers: "no table, no data file",
    Native: "has version 10 from the start",
    Versions: "changes its version already",
    Births: "each of its tables is as young as its last commit",
    KeptDeletes: "a delete with an ordering value meets one without by another rule from version 10 on",
    _Statements: "the same",
}


class Raised(Tables):
    """A table of version 9 that gets version 10 while everybody is at work."""

    knows_java_1_0 = False  # whose tables have version 8

    def build(self) -> None:
        self.native: set[str] = set()  # instants of transactions that were begun on a table of version 10
        super().build()
        self.start("raiser", self._raiser)

    def _is_raised(self) -> bool:
        inode = self.disk.get(PROPERTIES)
        return inode is not None and b"hoodie.table.version=10" in bytes(inode.data)

    def _begin(self, table: Table, name: str, kind: str, **options: Any) -> tuple[Any, Intent]:
        was_raised = self._is_raised()
        txn, intent = super()._begin(table, name, kind, **options)
        if was_raised:
            self.native.add(intent.instant)
        return txn, intent

    def _raiser(self, process: Process) -> None:
        table = self._patiently(process, lambda: self.open(process))
        self.pause_between(process, 6000)
        while True:
            self.pause_between(process, 200)
            try:
                self.world.counts.versions += table.upgrade(10).before == 9
                return
            except MainstemError as error:
                self._accept(error)
            except INTERRUPTS as error:
                self.interrupted(error)
            except OSError:
                self.world.counts.refused += 1

    def small_logs(self) -> dict[str, str]:
        """Of either version."""
        native = {"hoodie.parquet.max.file.size": str(self.log_bytes_max)} if self.log_bytes_max else {}
        return {**super().small_logs(), **native}

    def _accept(self, error: MainstemError) -> None:
        # What was planned before the upgrade and begun, or handed over, after it.
        crossed = ("since this transaction began", "the table has version", "log files of")
        if isinstance(error, Invalid) and any(words in str(error) for words in crossed):
            self.world.counts.refused += 1
        else:
            super()._accept(error)

    def _audit(self, table: Table) -> None:
        if load_config(table.opened.seams.storage).version != 10:
            raise Violation("the upgrade", "the table was not raised to version 10")
        for log in plain.log_files(self.disk):
            if log.instant in self.native and not log.kind:
                raise Violation("native logs", f"{log.path} is a file of blocks, begun at version 10")
        super()._audit(table)


def of_version_10(scenario: type[Simulation]) -> type[Simulation] | None:
    """None where there is no such variant."""
    if issubclass(scenario, tuple(NOT_OF_VERSION_10)):
        return None
    if scenario in _HAVE_ONE:
        return _HAVE_ONE[scenario]
    if not issubclass(scenario, Tables):
        return _variant(scenario, "v10", (), {"version": 10})
    own = {"compacts": scenario.compacts}
    if issubclass(scenario, LogCompactions):
        own["sorted"] = False  # the log files of an LSM tree are not compacted
    return _variant(scenario, "v10", (Native,), own)


def raised(scenario: type[Simulation]) -> type[Simulation] | None:
    """None where there is no such variant."""
    if issubclass(scenario, tuple(NOT_RAISED)):
        return None
    return _variant(scenario, "raised", (Raised,), {})


def _variant(
    scenario: type[Simulation], suffix: str, mixins: tuple[type, ...], own: dict[str, object]
) -> type[Simulation]:
    name = f"{scenario.__name__}{suffix.title()}"
    return type(name, (*mixins, scenario), {**own, "scenario": f"{scenario.scenario}-{suffix}"})


def variants(scenarios: dict[str, type[Simulation]]) -> dict[str, type[Simulation]]:
    """Name -> every variant of these scenarios."""
    made = [make(scenario) for make in (of_version_10, raised) for scenario in scenarios.values()]
    return {variant.scenario: variant for variant in made if variant is not None}
