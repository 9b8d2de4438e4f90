"""Vector indexes: exact distances, engines, versions on storage, and searches.

``engines`` builds and searches single files, ``index`` makes and keeps the versions of an index, ``search``
answers queries. Rows and commits of the table itself belong in other rooms.
"""
