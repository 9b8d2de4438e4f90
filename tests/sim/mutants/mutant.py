"""A seeded bug: a patch of production code in memory, with the scenario and the faults that find it.

Bugs stand in modules ``mutants_<topic>`` beside this one; ``mutants`` collects them::

    @seeded_bug("what goes wrong (where it is known from)", "scenario", FAULTS)
    def name_of_the_bug() -> list[Patch]:
        return [patch.object(Owner, "function", another)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.sim.world import Faults

Patch = AbstractContextManager[Any]

# Mixtures in which one kind of trouble is frequent, so that few seeds suffice whatever else changes.
LOSING_LEASES = Faults(
    pause=0.02, pause_ms_max=10_000, lease_loss=0.5, late_notice=1.0, skew_ms=100
)
STOPPING = Faults(
    pause=0.01, pause_ms_max=8000, lease_loss=0.3, late_notice=0.5, crash=0.001, skew_ms=50
)
FAILING = Faults(error_before=0.02, error_after=0.02)
TEARING = Faults(torn_listing=0.9)


@dataclass(frozen=True)
class Mutant:
    """A bug: what it does, the scenario that finds it, and how it gets into the code."""

    name: str
    what: str
    scenario: str
    patches: Callable[[], list[Patch]]
    #: a mixture of faults in place of a drawn one, for bugs that need one kind often
    faults: Faults | None = None
    #: what the table lies on
    body: str = "disk"

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Production code with this bug in it."""
        with ExitStack() as stack:
            for one in self.patches():
                stack.enter_context(one)
            yield


#: every bug of the modules that are imported so far; ask ``mutants.MUTANTS``, which imports all
REGISTERED: dict[str, Mutant] = {}


def seeded_bug(
    what: str, scenario: str = "tables", faults: Faults | None = None, *, body: str = "disk"
) -> Callable[[Callable[[], list[Patch]]], Callable[[], list[Patch]]]:
    """Registers a function that returns patches as a bug under its own name."""

    def register(function: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
        name = function.__name__
        if name in REGISTERED:
            raise ValueError(f"two seeded bugs are called {name}")
        REGISTERED[name] = Mutant(name, what, scenario, function, faults, body)
        return function

    return register


def nothing(*given: Any, **named: Any) -> None:
    """In place of a step that a bug leaves out."""


__all__ = [
    "FAILING",
    "LOSING_LEASES",
    "REGISTERED",
    "STOPPING",
    "TEARING",
    "Mutant",
    "Patch",
    "nothing",
    "seeded_bug",
]
