"""The only way that the rest of the package touches files, and every path of a table.

``protocol`` is what a store of files can do and no more; ``local`` is one on a POSIX file system, which can
do more: ``links``, ``folders`` and ``maps`` give that to the few who need it. ``location`` and ``backends``
make a store of a path or URL. Nothing here knows what a file means, and nobody else opens one.
"""
