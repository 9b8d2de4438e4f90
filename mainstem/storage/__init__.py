"""Storage: the only code that touches files, and every path of a table.

``protocol`` defines what every store of files can do. ``local`` implements it on a POSIX file system, which
can do more: ``links``, ``folders`` and ``maps`` offer that to the few modules that need it, and ``watches``
(``inotify``) tells what changes in a folder.
``object_store`` implements it on S3, Google Cloud Storage and Azure, which have ``swaps`` instead;
``store_options`` reads what users say of such a store (``aws_credentials`` and ``hadoop_files`` find what
stands elsewhere), ``store_errors`` what the store says; ``spellings`` compares its URLs; ``probe`` finds one
that does not keep the contract.
``location`` and ``backends`` turn a path or URL into a store. Nothing here knows what a file means, and no
other package opens files.
"""
