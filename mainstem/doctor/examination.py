"""One examination of a table, from what writers meet first to what is only good to know.

1. The options and the lock: with these wrong nothing is written.
2. The timeline: who is at work, who left, which clocks are wrong, what is due.
3. The files of every partition, compared with what commits name.
4. The indexes.

Each part is looked at alone: what cannot be read is a finding, and the others are looked at all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from mainstem.doctor.examined_table import ExaminedTable
from mainstem.doctor.file_findings import file_findings
from mainstem.doctor.finding import ERROR, NOTE, SEVERITIES, Finding
from mainstem.doctor.setting_findings import setting_findings
from mainstem.doctor.timeline_findings import timeline_findings
from mainstem.errors import MainstemError
from mainstem.layout.properties import TableConfig
from mainstem.merge.compaction_cautions import Caution
from mainstem.storage.protocol import Storage
from mainstem.truetime.clock import Clock


def examine(
    storage: Storage,
    config: TableConfig,
    given: Mapping[str, str],
    clock: Clock,
    lock: str | MainstemError,
    cautions: Callable[[], Sequence[Caution]],
) -> tuple[Finding, ...]:
    """All findings, errors first; nothing is written.

    ``given``: the options of the process; ``lock``: which lock it would take, or why it cannot. ``cautions``:
    of the table. Raises ``Unsupported`` for a table that cannot be read at all.
    """
    table = ExaminedTable(storage, config, given, clock, lock)
    config.check_readable(storage.base)
    parts: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("settings", lambda: setting_findings(table)),
        ("timeline", lambda: timeline_findings(table)),
        ("files", lambda: file_findings(table)),
        ("cautions", lambda: (Finding(NOTE, one.name, one.text) for one in cautions())),
    )
    found: list[Finding] = []
    for part, findings in parts:
        try:
            for one in findings():  # one by one: what was found before an error counts
                found.append(one)
        except (MainstemError, OSError) as error:
            text = error.message if isinstance(error, MainstemError) else str(error)
            shown = {"file": path} if (path := getattr(error, "path", "")) else {}
            found.append(Finding(ERROR, part, f"not looked at to the end: {text}", shown))
    return tuple(sorted(found, key=lambda one: SEVERITIES.index(one.severity)))
