"""Where a table lies, as a value: what travels to tasks, workers and services instead of an open store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mainstem.errors import Invalid


@dataclass(frozen=True)
class Location:
    """A URL taken apart, and the options of its store; made by ``storage.backends.location_of``.

    Picklable, comparable, and free of secrets: ``secrets`` names, for an option whose value nobody may see,
    the environment variable that holds it wherever the store is made. ``path`` is absolute and has no slash
    at its end.
    """

    scheme: str
    authority: str
    path: str
    options: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    secrets: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)

    @property
    def base(self) -> str:
        """What people, messages and Hudi's records call it: a plain path on this machine, a URL elsewhere."""
        return self.path if self.scheme == "file" else f"{self.scheme}://{self.authority}{self.path}"

    def below(self, folder: str) -> Location:
        """A folder of it."""
        return replace(self, path=f"{self.path.rstrip('/')}/{folder}")

    def option_values(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """All options with their values, for whoever makes the store. Raises ``Invalid`` if a variable is not
        set in this process."""
        known = os.environ if environment is None else environment
        missing = sorted(variable for _, variable in self.secrets if variable not in known)
        if missing:
            raise Invalid(
                f"the environment has no {', '.join(missing)}, which holds a secret of the storage: set it in"
                " every process that reads or writes the table",
                table=self.base,
            )
        return {**dict(self.options), **{name: known[variable] for name, variable in self.secrets}}

    def __str__(self) -> str:
        return self.base
