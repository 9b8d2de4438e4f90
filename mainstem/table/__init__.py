"""What a table is: its properties, keys, buckets, partitions and file slices."""
