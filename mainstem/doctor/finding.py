"""What an examination finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: rows are missing or wrong, or writers are refused
ERROR = "error"
#: somebody has to do something, or it gets slower
WARNING = "warning"
#: good to know
NOTE = "note"
SEVERITIES = (ERROR, WARNING, NOTE)


@dataclass(frozen=True)
class Finding:
    """One finding about a table.

    ``severity``: ``error``, ``warning`` or ``note``. ``check``: what was looked for, the same words in each
    release. ``evidence``: what shows it, as plain values. ``command``: what mends it, "" where no command
    does. ``fixable``: a round of services may mend it (``Table.doctor(fix=True)``).
    """

    severity: str
    check: str
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    fixable: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "severity": self.severity, "check": self.check, "text": self.text,
            "evidence": dict(self.evidence), "command": self.command or None, "fixable": self.fixable,
        }  # fmt: skip

    @property
    def shown_by(self) -> str:
        """The evidence, for people."""
        return ", ".join(f"{name} {value}" for name, value in self.evidence.items())

    def __str__(self) -> str:
        shown = self.shown_by
        lines = [f"{self.severity}: {self.check}: {self.text}", *([f"  shown by: {shown}"] if shown else [])]
        return "\n".join([*lines, *([f"  do: {self.command}"] if self.command else [])])
