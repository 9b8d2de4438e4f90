"""How a table lies on storage: properties, keys, buckets, partitions, schemas and file slices.

The modules here are rules, mostly pure functions of names, rows and properties. Writing, reading and merging
rows belong in other rooms.
"""
