"""Searching vectors: a version is matched with a snapshot, graphs are searched, and distances compared
exactly.

Whichever version serves, the answer is that of the snapshot. Nothing here changes storage.
"""
