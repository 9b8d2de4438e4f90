"""Seeded bugs: each breaks one step of the production code, and the simulator must find it.

A test of the tester: a simulation that finds nothing proves nothing. Every mutant stands for a mistake
that was made in life (Hudi's published bugs R1 ... R16, the omissions of the completion fence, and bugs
that this simulator found here). They stand in the modules beside this one, by topic, all
of which are collected here.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tests.sim import mutants
from tests.sim.mutants.mutant import REGISTERED, Mutant

for _name in sorted(module.name for module in iter_modules(mutants.__path__)):
    if _name not in ("collected", "mutant"):
        import_module(f"{mutants.__name__}.{_name}")

MUTANTS: dict[str, Mutant] = REGISTERED

__all__ = ["MUTANTS", "Mutant"]
