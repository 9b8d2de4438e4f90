"""How a table lies on storage: properties, keys, buckets, partitions, schemas and file slices.

These are rules, mostly pure functions of names, rows and properties. Who writes, reads or merges is no
business of this room.
"""
