"""Queries end to end: plans a snapshot as splits and returns its rows.

Combines ``planning``, ``skipping`` and ``rows``. Queries of a range of instants are in ``changes``.
"""
