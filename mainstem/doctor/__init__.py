"""Looks at a table and says what is wrong with it, with what shows it and the command that mends it.

It only reads. What may be mended without asking is a round of table services; ``api.table`` runs it.
"""
