"""A table's location as a plain value, sent to tasks, workers and services instead of an open store."""

from __future__ import annotations

import base64
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mainstem.errors import Invalid


@dataclass(frozen=True)
class Location:
    """A parsed URL and the options of its store; made by ``storage.backends.location_of``.

    Picklable and comparable. ``secrets`` maps each secret option to the environment variable that holds its
    value in every process that makes the store. ``texts`` are secrets that the user gave as text: they are
    never shown, and travel in pickles, but not as text there. ``path`` is absolute, without a trailing slash;
    "" for a whole bucket.
    """

    scheme: str
    authority: str
    path: str
    options: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    secrets: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)
    texts: tuple[tuple[str, str], ...] = field(default=(), kw_only=True, repr=False)

    @property
    def base(self) -> str:
        """The location as messages and Hudi's records name it: a plain path if local, otherwise a URL."""
        return self.path if self.scheme == "file" else f"{self.scheme}://{self.authority}{self.path}"

    def below(self, folder: str) -> Location:
        """The location of a folder in this one."""
        return replace(self, path=f"{self.path.rstrip('/')}/{folder}")

    def option_values(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """All options with their values, secrets included, to make the store with.

        Raises ``Invalid`` if this process lacks one of the environment variables.
        """
        known = os.environ if environment is None else environment
        missing = sorted(variable for _, variable in self.secrets if variable not in known)
        if missing:
            raise Invalid(
                f"the environment has no {', '.join(missing)}, which holds a secret of the storage: set it in"
                " every process that reads or writes the table",
                table=self.base,
            )
        held = {name: known[variable] for name, variable in self.secrets}
        return {**dict(self.options), **dict(self.texts), **held}

    def __str__(self) -> str:
        return self.base

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, ({**self.__dict__, "texts": veiled(self.texts)},)


def veiled(texts: Iterable[tuple[str, str]]) -> bytes:
    """No encryption: whoever has the bytes can undo it. But no log and no dump of a task shows the texts."""
    return base64.b85encode(zlib.compress(json.dumps(list(texts)).encode()))


def unveiled(made: bytes) -> list[tuple[str, str]]:
    """What was veiled."""
    return [(name, text) for name, text in json.loads(zlib.decompress(base64.b85decode(made)))]


def _unpickled(fields: dict[str, Any]) -> Location:
    return Location(**{**fields, "texts": tuple(unveiled(fields["texts"]))})
