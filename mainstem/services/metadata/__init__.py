"""The metadata table's own services: compaction, cleaning and archiving, under the data table's lock.

They follow the data table's services step by step. Users never call them; rounds and commits do.
"""
