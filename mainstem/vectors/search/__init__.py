"""Searching vectors: a snapshot and a version put together, graphs asked, distances compared exactly.

Whatever version serves, the answer is that of the snapshot. Nothing here changes storage.
"""
