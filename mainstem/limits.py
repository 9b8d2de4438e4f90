"""Every bound that protects a reader or writer against hostile or damaged input, with its reason."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# A timeline file is one Avro record; Java's largest seen plans are a few MiB.
TIMELINE_FILE_BYTES_MAX = 256 * MIB
# hoodie.properties, partition metafiles, lock files, manifests.
PROPERTIES_BYTES_MAX = 4 * MIB
LOCK_FILE_BYTES_MAX = 64 * KIB
# What a heartbeat says of itself: one line. Java's are empty.
HEARTBEAT_BYTES_MAX = 4 * KIB
# What it may ask for: the least and the most that the options of its interval and of tolerable misses give.
HEARTBEAT_EXPIRE_MS_MIN = 100
HEARTBEAT_EXPIRE_MS_MAX = 86_400_000 * 1_000
MANIFEST_BYTES_MAX = 64 * MIB
# A part file of committables: one line per batch and worker of one checkpoint.
PART_FILE_BYTES_MAX = 64 * MIB
# Hudi reads block sizes as a 32-bit int.
LOG_BLOCK_BYTES_MAX = 2 * GIB - 1
LOG_HEADER_COUNT_MAX = 64
LOG_HEADER_BYTES_MAX = 16 * MIB
# Avro schemas: fastavro and our own walker recurse, so depth and size are bounded before parsing.
SCHEMA_BYTES_MAX = 1 * MIB
SCHEMA_DEPTH_MAX = 64
SCHEMA_FIELDS_MAX = 10_000
# Filters: a tree is walked by recursion. One that is deeper leaves nothing out.
EXPRESSION_DEPTH_MAX = 200
# Filters that are given as texts: brackets in one another, and conditions, which Arrow evaluates by recursion
# (it dies of 10,000).
FILTER_DEPTH_MAX = 50
FILTER_CONDITIONS_MAX = 1_000
# Record keys that a filter may name and that are looked up one by one; above it files are read instead.
WANTED_KEYS_MAX = 100_000
# One value of a string or bytes column.
VALUE_BYTES_MAX = 1 * GIB
# Arrow's 32-bit offsets: a chunk of encoded or decoded bytes stays below this.
CHUNK_BYTES_MAX = 1 * GIB
CHUNK_ROWS = 65_536
# A binary array of Arrow: 32-bit offsets.
ARRAY_BYTES_MAX = 2 * GIB - 1
# Plain bytes of one block of an HFile: 1 MiB as Hudi writes them, more where one value is larger.
HFILE_BLOCK_BYTES_MAX = 1 * GIB
# Folder depth below the base path that partition discovery follows.
PARTITION_DEPTH_MAX = 32
FILE_NAME_BYTES_MAX = 255
# How far the newest instant may lie ahead of the local clock before we refuse to build on it.
TIMELINE_AHEAD_MS_DEFAULT = 60_000
# A publish that was fenced takes a new lease and tries again this many times.
PUBLISH_ATTEMPTS_MAX = 20
# Values of one vector, and vectors of one engine file (labels of libraries are 32 bits wide in part).
VECTOR_DIMENSION_MAX = 65_536
VECTOR_ROWS_MAX = 2**31 - 1
# How widely one search of a graph may look: memory of every search grows with it.
VECTOR_EFFORT_MAX = 100_000
# Rows that one search of vectors answers with, over all queries: they are held at once.
SEARCH_HITS_MAX = 50_000_000
# Columns that have, or once had, a vector index; parts of one version; file slices that it is made of.
VECTOR_INDEXES_MAX = 10_000
VECTOR_CLUSTERS_MAX = 4_096
VECTOR_SLICES_MAX = 1_000_000
# What searches of one open table remember of vectors that the index does not hold yet.
VECTOR_DELTA_BYTES_MAX = 1 * GIB
# Files of a version that are read into memory for searches; those of a larger one go to temporary files.
VECTOR_MEMORY_BYTES_MAX = 1 * GIB
