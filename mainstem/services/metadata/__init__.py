"""The metadata table's own services: compaction, cleaning and archiving below the data table's lock.

They follow the data table's services step by step. A user never calls them; rounds and commits do.
"""
