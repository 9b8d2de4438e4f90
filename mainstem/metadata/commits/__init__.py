"""One action of the data table as a delta commit of the metadata table, and its taking back.

What is added to each partition is made here; it is published by ``writers`` and ``services`` through
``publish``.
"""
