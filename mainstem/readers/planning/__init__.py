"""From a timeline to a plan: one consistent view, its file slices, its schema, its picklable splits.

Queries begin here (``snapshot``, ``history``) and end here (``scan_plan``, ``arrow_dataset``). Rows are read
in ``readers/rows``.
"""
