"""Every error that mainstem raises, in one tree; each kind says what the caller should do.

    MainstemError
    |-- Invalid              fix the call, the data or the settings; nothing was written
    |   |-- TableExists      create_table found a table: open it
    |   `-- TableReplaced    the opened table is gone; there may be another at its path: open that one
    |-- Unsupported          the table uses (or the call asks for) something that mainstem refuses by name
    |-- CorruptTable         bytes on storage are damaged: stop and look at path and offset
    |-- LockUnavailable      the table lock was not free in time: try again later
    |-- Unavailable          storage or a service failed: try again later
    |-- LeaseLost            this holder was superseded; nothing was published by it
    |-- NotSynchronised      a commit stands, and a catalog was not told of it: sync, write nothing again
    |-- RolledBack           another writer rolled this instant back: write the data again
    `-- OutcomeUnknown       the commit may or may not be visible: look at the timeline, delete nothing

A message says what went wrong, where (table, path, offset), what was found against what was
expected, and what to do about it. Messages are not API; classes and attributes are.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class MainstemError(Exception):
    """Base of all errors. ``table`` is the base path, ``instant`` a requested time, where known."""

    def __init__(
        self, message: str, *, table: str | None = None, instant: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.table = table
        self.instant = instant

    # Keyword attributes must survive pickling between Spark processes.
    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))

    def __str__(self) -> str:
        where = [f"table {self.table}"] if self.table else []
        where += [f"instant {self.instant}"] if self.instant else []
        return self.message + (f" [{', '.join(where)}]" if where else "")


def _rebuild(cls: type[MainstemError], message: str, attributes: dict[str, object]) -> MainstemError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(attributes)
    return error


class Invalid(MainstemError):
    """The call, the data or an option is wrong. Nothing was written; fix it and call again."""


class TableExists(Invalid):
    """The table exists already, or another process has just created it. Open it instead."""


class TableReplaced(Invalid):
    """The opened table was deleted, and perhaps another was created at its path.

    Nothing was done to the new one; open it, and write the data again if it belongs there.
    """


class Unsupported(MainstemError):
    """A feature, named in the message, that mainstem does not implement or refuses to mix in."""


class CorruptTable(MainstemError):
    """Stored bytes do not parse. ``path`` is relative to the table, ``offset`` in bytes."""

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        offset: int | None = None,
        table: str | None = None,
        instant: str | None = None,
    ) -> None:
        super().__init__(message, table=table, instant=instant)
        self.path = path
        self.offset = offset

    def __str__(self) -> str:
        at = f" (file {self.path}" + (f", offset {self.offset})" if self.offset is not None else ")")
        return super().__str__() + (at if self.path else "")


class LockUnavailable(MainstemError):
    """The table lock was not obtained within ``hoodie.write.lock.wait_time_ms`` and its retries."""


class Unavailable(MainstemError):
    """Storage or a service failed (full disk, read-only folder, lock service away). Try again."""


class LeaseLost(MainstemError):
    """Another process took the lock over. This holder published nothing; the call may be repeated."""


class RolledBack(MainstemError):
    """The transaction's instant was rolled back by another writer. Its rows must be written again."""


class ValidationFailed(MainstemError):
    """A pre-commit validator refused the transaction, which ended. Nothing of it is visible."""


class NotSynchronised(MainstemError):
    """A commit stands, but the catalog does not know of it yet: sync again (``mainstem sync``), or let the
    next commit do it. The rows must not be written again."""


class OutcomeUnknown(MainstemError):
    """Publication failed, and it is unknown whether it took effect. Never delete files."""


@contextmanager
def naming(table: str, failed: str, advice: str) -> Iterator[None]:
    """Add ``table`` to errors of the block; ``OSError`` becomes ``Unavailable``: "failed: ...; advice"."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{failed}: {error}; {advice}", table=table) from error
    except MainstemError as error:
        error.table = error.table or table
        raise
