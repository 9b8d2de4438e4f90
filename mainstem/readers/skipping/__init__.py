"""Data skipping: rules out partitions and file slices that cannot hold a row that passes the filter.

In doubt, they are read. ``filters`` interprets filters, ``metadata`` reads indexes. Row groups of a base
file are skipped where the slice is read (``rows.row_groups``).
"""
