"""Computes from the data, by columns, what the rows of every metadata partition must be.

Writers, index builds and ``metadata validate`` call the same functions, so that they agree. Nothing here
reads the timeline or publishes.
"""
