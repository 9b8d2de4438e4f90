"""How rows of one key become one row: pure functions of Arrow tables and of a table's properties.

``modes`` names the ways to merge, ``rules`` is one value that says how a table does it and travels in every
spec, ``comparison`` alone says who wins. Nothing here reads a file, knows a timeline or a query.
"""
