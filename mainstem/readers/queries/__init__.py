"""Queries from their beginning to their end: a snapshot planned into splits, and what hands out its rows.

Where ``planning``, ``skipping`` and ``rows`` come together. Ranges of instants are asked in ``changes``.
"""
