"""Queries: which files a view of the table consists of, what of them is read, and how rows come out.

From the ground up: ``rows`` decodes and merges a file slice, ``planning`` finds the files of a view,
``skipping`` leaves files out, ``queries`` puts the three together, ``changes`` answers for ranges of
instants. Nothing here writes, and nothing here knows writers.
"""
