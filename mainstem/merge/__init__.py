"""Merging log blocks onto a base file, on columns: pure functions of Arrow tables."""
