"""Hudi's metadata table: its partitions and definitions, reading it, and deciding which of its rows count.

``records`` holds its bytes, ``derive`` computes rows from data, and ``commits`` decides what an action adds
and what a rollback removes. How an index is built and dropped belongs in ``indexing``; the metadata table's
own services are in ``services/metadata``.
"""
