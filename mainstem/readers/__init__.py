"""Queries: which files a view of the table consists of, what of them is read, and how rows come out.

``planning`` chooses files, ``skipping`` leaves files out, ``rows`` decodes and merges, ``changes`` answers
for ranges of instants. Nothing here writes, and nothing here knows writers.
"""
