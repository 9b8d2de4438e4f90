"""Histories of one table, drawn by chance with hostile values, held against a model of plain dictionaries."""
