"""Rows of one file slice: base file and log blocks decoded by columns and merged.

Memory is bounded by the batch, or by what was asked for. Which slices are read was decided before.
"""
