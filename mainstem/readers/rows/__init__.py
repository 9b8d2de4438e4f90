"""Rows of one file slice: decodes base file and log blocks by column, and merges them.

Memory is bounded by the batch size or by a given limit. The caller decides which slices to read.
"""
