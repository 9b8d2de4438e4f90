"""Turns an action of the data table into a delta commit of the metadata table, and takes it back.

This room makes the rows for each partition of the metadata table. ``writers`` and ``services`` publish them
through ``publish``.
"""
