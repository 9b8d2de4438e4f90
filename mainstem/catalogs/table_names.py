"""Names of databases and tables as users write them: ``table`` or ``database.table``."""

from __future__ import annotations

import re

from mainstem.errors import Invalid

DEFAULT_DATABASE = "default"
# What Hive, Glue and a folder have in common; a name is also the name of a folder.
_NAME = re.compile(r"\w[\w$-]{0,127}", re.ASCII)


def split_name(text: str) -> tuple[str, str]:
    """Database and table. Raises ``Invalid`` for anything else, a path among them."""
    parts = [part[1:-1] if len(part) > 1 and part[0] == part[-1] == "`" else part for part in text.split(".")]
    if len(parts) > 2 or not text:
        raise Invalid(f"{text!r} is no name of a table: expected TABLE or DATABASE.TABLE")
    database = checked(parts[0], "database") if len(parts) == 2 else DEFAULT_DATABASE
    return database, checked(parts[-1], "table")


def checked(name: str, what: str) -> str:
    """A name of one part, which can be a folder's name, too."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Invalid(
            f"{name!r} is no name of a {what}: expected up to 128 letters, digits, '_', '-' and '$', and"
            " first a"
            " letter, a digit or '_'"
        )
    return name
