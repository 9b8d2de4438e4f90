"""Queries: snapshot, read optimized, as of a time, and the changes between two times."""
