"""Versions of a vector index: building, listing, keeping and removing them, beside writers and without the
lock.

A version never changes once its manifest exists. Searching belongs in ``search``.
"""
