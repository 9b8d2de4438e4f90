"""What a query need not read: partitions, file slices and row groups that cannot hold a row which passes.

Everything here errs towards reading. What a filter says comes from ``filters``; what indexes say, from
``metadata``.
"""
