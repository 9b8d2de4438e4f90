"""Queries: which files make up a view of the table, which of them to read, and how to produce the rows.

From the bottom up: ``rows`` decodes and merges a file slice, ``planning`` finds the files of a view,
``skipping`` leaves files out, ``queries`` combines the three, and ``changes`` reads ranges of instants.
Nothing here writes or depends on writers.
"""
