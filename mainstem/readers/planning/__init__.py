"""One consistent view of a table: its timeline, its files and file slices, its schema, at one moment.

Which of the files a query then reads is decided in ``skipping``; rows are read in ``rows``.
"""
