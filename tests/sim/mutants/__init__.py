"""Seeded bugs: each breaks one step of production code, and a run of the simulator must find it."""
