"""Merges rows of one record key into one row: pure functions of Arrow tables and table properties.

``modes`` names the merge modes. ``rules`` holds a table's merge rules as one value, which every read and
write spec carries. ``comparison`` alone decides which row wins. Nothing here reads files or knows timelines
or queries.
"""
