"""One consistent view of a table at one moment: its timeline, files, file slices and schema.

``skipping`` decides which of the files a query reads; ``rows`` reads them.
"""
