"""Reads the values of lock options and formats them for messages; shared by all locks' options."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mainstem.errors import Invalid, Unsupported
from mainstem.options.declaration import Whole
from mainstem.storage.backends import location_of, split_scheme


def whole(props: Mapping[str, str], option: Whole) -> int:
    """The option's value as a whole number; raises ``Invalid`` with key, value, unit and bounds."""
    text = str(props.get(option, option.default)).strip()
    if re.fullmatch(r"[0-9]{1,10}", text) and option.low <= int(text) <= option.high:
        return int(text)
    raise Invalid(
        f"{option}={shown(text)}: expected a whole number of {option.unit}, {option.low} to {option.high}"
    )


def shown(value: str) -> str:
    """A value for a message, quoted and shortened."""
    return repr(value if len(value) <= 200 else value[:200] + "...")


def local_folder(key: str, value: str) -> str:
    """``/x/y`` from ``/x/y``, ``file:/x/y`` or ``file:///x/y``.

    Raises ``Unsupported`` for another scheme and ``Invalid`` for a relative path.
    """
    scheme, _ = split_scheme(value)
    if scheme not in (None, "file"):
        raise Unsupported(
            f"{key}={shown(value)}: the file-system lock needs hard links and OS locks of a local "
            f"POSIX file system, found scheme {scheme}:; use a local path"
        )
    try:
        return location_of(value, absolute=True).path
    except (Invalid, Unsupported) as error:
        raise Invalid(
            f"{key}={shown(value)}: expected an absolute local path (Java resolves a relative one "
            "against its working folder, so that two writers would lock different files)"
        ) from error
