"""The archived timeline of layout 2: an LSM tree of parquet files under ``timeline/history``."""
