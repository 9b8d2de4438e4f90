"""What a query need not read: partitions and file slices that cannot hold a row which passes.

Everything here errs towards reading. What a filter says comes from ``filters``; what indexes say, from
``metadata``. Row groups of a base file are left out where the slice is read (``rows.row_groups``).
"""
