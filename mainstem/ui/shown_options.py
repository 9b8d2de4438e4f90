"""A table's properties as the page shows them: what each means, its default, and what is unusual."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import mainstem.options  # noqa: F401  # declares all of them
from mainstem.errors import MainstemError
from mainstem.options.declaration import Option, every_option

# What may hold a secret is shown to nobody.
_SECRET = re.compile(
    r"passw|secret|token|credential|(access|account|api|private)[._]?key|\.auth|[._]sas|jaas|headers", re.I
)
_LOGIN = re.compile(r"//[^/@\s]+@")
HIDDEN = "(not shown)"


def shown_options(properties: Mapping[str, str]) -> list[dict[str, Any]]:
    """Each property with ``value``, ``default``, ``says``, and ``unusual``: "" or why to look at it."""
    declared: dict[str, Option] = {}
    for option in every_option():
        for name in option.names:
            declared.setdefault(name, option)
    return [_shown(key, properties, declared.get(key)) for key in sorted(properties)]


def _shown(key: str, properties: Mapping[str, str], option: Option | None) -> dict[str, Any]:
    value = properties[key]
    hidden = _SECRET.search(key) is not None
    shown = HIDDEN if hidden else _LOGIN.sub(f"//{HIDDEN}@", value)
    told: dict[str, Any] = {
        "key": key, "value": shown, "default": None, "says": "", "expected": "", "unusual": "",
    }  # fmt: skip
    if option is None:
        return {**told, "unusual": "" if _is_hudis(key) else "no property of Hudi or mainstem"}
    told |= {"default": option.shown_default or None, "says": option.says, "expected": option.expected}
    read = getattr(option, "read", None)
    try:
        if read is not None:
            read(properties)
    except MainstemError as error:
        return {**told, "unusual": "cannot be used" if hidden else error.message}
    if key != option:
        return {**told, "unusual": f"an older name of {option}"}
    differs = option.shown_default and value.strip().lower() != _plain(option.shown_default)
    return {**told, "unusual": "" if option.table or not differs or hidden else "not the default"}


def _plain(default: str) -> str:
    """A default as it would stand in a file: documents group digits."""
    return re.sub(r"(?<=\d),(?=\d{3})", "", default).lower()


def _is_hudis(key: str) -> bool:
    """Hudi has far more properties than those that are read here."""
    return key.startswith("hoodie.") and not key.startswith("hoodie.mainstem.")
