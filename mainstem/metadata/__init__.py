"""Hudi's metadata table: what its partitions hold, and reading it."""
