"""A deterministic world that runs the production code of writers and readers: one seed, virtual time.

Every storage, clock and lock call is a scheduling point at which the actor may be delayed, paused,
killed or handed an error; the same seed gives the same run, call by call. ``python -m
mainstem.testing.run --seconds 60 --seed 0`` searches; ``--seed N --runs 1`` replays one run.
"""
