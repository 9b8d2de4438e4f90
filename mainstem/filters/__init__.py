"""Filters: parsing them from text or from pyarrow expressions, and reducing them to predicates on columns.

A predicate is never stricter than its filter, so readers may skip whatever a predicate rules out. Nothing
here touches files or the timeline; of indexes only their definitions are known.
"""
