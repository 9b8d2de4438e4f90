"""The archived timeline of layout 2: an LSM tree of parquet files under ``timeline/history``.

File names, manifests, data files, the reader and the writer of single files live here. When instants are
archived, and by which protocol under the lock, is not decided here but in ``services``.
"""
