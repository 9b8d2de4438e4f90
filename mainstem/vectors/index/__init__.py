"""Versions of a vector index: built, listed, kept and tidied away, beside writers and without the lock.

A version never changes once its manifest is there. Searching is another room.
"""
