"""What a declaration of an option says, and how its value is read.

An option *is* its name: a declaration is a ``str``, so that ``properties[OPTION]`` asks for it and messages
name it. A copy or a pickle of it is the plain name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

from mainstem.errors import Invalid

_DECLARED: dict[str, Option] = {}


@dataclass(frozen=True, eq=False, repr=False)
class Option(str):
    """One option or table property.

    ``aliases``: Hudi's other names; ``flink``: its name in Hudi's Flink connector, where that is another.
    ``read_by``: what reads it; ``says``: one sentence on what it does. ``table``: a property of the table,
    which a job's options may repeat, or which a new table is made with. ``engines``: given in jobs of engines
    only. ``only``: the values that are accepted, in lower case, and ``why`` others are refused.
    """

    name: str
    _: KW_ONLY
    aliases: tuple[str, ...] = ()
    flink: str = ""
    read_by: str = ""
    says: str = ""
    table: bool = False
    engines: bool = False
    only: tuple[str, ...] = ()
    why: str = ""

    def __new__(cls, name: str, *_values: Any, **_about: Any) -> Self:
        """The name, as a text that knows the rest."""
        return super().__new__(cls, name)

    def __post_init__(self) -> None:
        if self.name in _DECLARED:
            raise ValueError(f"{self.name} is declared twice")
        _DECLARED[self.name] = self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (self.name,)

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and Hudi's other names for it, newest first."""
        return (self, *self.aliases)

    @property
    def shown_default(self) -> str:
        """The default as documents show it; "" for none."""
        return ""

    @property
    def expected(self) -> str:
        """What values are accepted, as documents show it."""
        return "text"

    def found_as(self, properties: Mapping[str, str]) -> str:
        """The name under which it is given, the newest that is; its own where it is not."""
        return next((name for name in self.names if name in properties), self)


@dataclass(frozen=True, eq=False, repr=False)
class Text(Option):
    """Any text, or one that its reader checks (``like``: what it expects)."""

    default: str = ""
    _: KW_ONLY
    like: str = "text"

    @property
    def shown_default(self) -> str:
        return self.default

    @property
    def expected(self) -> str:
        return " or ".join(self.only) or self.like

    def read(self, properties: Mapping[str, str]) -> str:
        """Its text, stripped."""
        return str(properties.get(self.found_as(properties), self.default)).strip()


@dataclass(frozen=True, eq=False, repr=False)
class Whole(Option):
    """A whole number of ``unit`` from ``low`` to ``high``."""

    default: int = 0
    low: int = 0
    high: int = 2**63 - 1
    unit: str = ""

    @property
    def shown_default(self) -> str:
        return f"{self.default:,}"

    @property
    def expected(self) -> str:
        bounds = f"{self.low:,} to {self.high:,}" if self.low < self.high else str(self.low)
        return f"{self.unit}, {bounds}" if self.unit else bounds

    def read(self, properties: Mapping[str, str], default: int | None = None) -> int:
        """The number; raises ``Invalid`` with name, value and bounds."""
        other = self.default if default is None else default
        return whole_number(properties, self.found_as(properties), other, self.low, self.high)

    def read_if_given(self, properties: Mapping[str, str]) -> int | None:
        """None where it is not given; raises as ``read``."""
        return self.read(properties) if self.found_as(properties) in properties else None


@dataclass(frozen=True, eq=False, repr=False)
class Flag(Option):
    """true or false."""

    default: bool = False

    @property
    def shown_default(self) -> str:
        return str(self.default).lower()

    @property
    def expected(self) -> str:
        return " or ".join(self.only) or "true or false"

    def read(self, properties: Mapping[str, str], default: bool | None = None) -> bool:
        """Whether it is on; raises ``Invalid`` for a text that is neither true nor false."""
        return flag(properties, self.found_as(properties), self.default if default is None else default)


@dataclass(frozen=True, eq=False, repr=False)
class Choice(Option):
    """One of several words, in upper case as Hudi parses them."""

    default: str = ""
    allowed: tuple[str, ...] = ()

    @property
    def shown_default(self) -> str:
        return self.default

    @property
    def expected(self) -> str:
        return ", ".join(self.allowed)

    def read(self, properties: Mapping[str, str]) -> str:
        """The word; raises ``Invalid`` for another one."""
        return one_of(properties, self.found_as(properties), self.default, self.allowed)


def every_option() -> tuple[Option, ...]:
    """Every declaration of the modules of this room that are loaded, in their order."""
    return tuple(_DECLARED.values())


def whole_number(properties: Mapping[str, str], key: str, default: int, low: int, high: int) -> int:
    """An integer option within bounds; ``Invalid`` names key, value and bounds."""
    text = str(properties.get(key, default)).strip()
    if not text.lstrip("-").isdecimal() or not low <= int(text) <= high:
        raise Invalid(f"{key}={text!r}, expected a whole number from {low} to {high}")
    return int(text)


def flag(properties: Mapping[str, str], key: str, default: bool) -> bool:
    """A boolean option."""
    text = str(properties.get(key, default)).strip().lower()
    if text not in ("true", "false"):
        raise Invalid(f"{key}={text!r}, expected true or false")
    return text == "true"


def one_of(properties: Mapping[str, str], key: str, default: str, allowed: tuple[str, ...]) -> str:
    """An enumeration option, upper case as Hudi parses it."""
    text = str(properties.get(key, default)).strip().upper()
    if text not in allowed:
        raise Invalid(f"{key}={text!r}, expected {' or '.join(allowed)}")
    return text
