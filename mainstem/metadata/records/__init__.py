"""Rows of the metadata table as bytes and as columns: keys, values, bounds, and the merging of rows.

Pure functions of Arrow tables and bytes. What a row must say is computed in ``metadata/derive``.
"""
