"""Hudi's metadata table: its partitions and definitions, reading it, and what counts in it.

``records`` holds its bytes, ``derive`` computes rows from data, ``commits`` says what an action adds and
takes back. The life of an index is told in ``indexing``, the table's own services in ``services/metadata``.
"""
