"""Every bound that protects readers and writers against hostile or damaged input, with its reason."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# A timeline file is one Avro record; Java's largest seen plans are a few MiB.
TIMELINE_FILE_BYTES_MAX = 256 * MIB
# hoodie.properties, partition metafiles, lock files, manifests.
PROPERTIES_BYTES_MAX = 4 * MIB
LOCK_FILE_BYTES_MAX = 64 * KIB
# A file of many markers: a line of some hundred bytes for each file of a transaction.
MARKERS_BYTES_MAX = 64 * MIB
# A heartbeat file holds one line; Java's are empty.
HEARTBEAT_BYTES_MAX = 4 * KIB
# The expiry that it may promise: the least and the most that the options for interval and misses allow.
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
# Filters are walked recursively. A deeper one is not used to skip files.
EXPRESSION_DEPTH_MAX = 200
# Filters given as text: nested brackets, and conditions, which Arrow evaluates recursively (10,000 crash it).
FILTER_DEPTH_MAX = 50
FILTER_CONDITIONS_MAX = 1_000
# Record keys in a filter that are looked up one by one; with more, files are read instead.
WANTED_KEYS_MAX = 100_000
# Versions of one row that are told one by one, and those of which each column's is looked for.
EXPLAINED_VERSIONS_MAX = 1_000
EXPLAINED_COLUMNS_OF_MAX = 100
# One value of a string or bytes column.
VALUE_BYTES_MAX = 1 * GIB
# Arrow's 32-bit offsets: a chunk of encoded or decoded bytes stays below this.
CHUNK_BYTES_MAX = 1 * GIB
CHUNK_ROWS = 65_536
# A binary array of Arrow: 32-bit offsets.
ARRAY_BYTES_MAX = 2 * GIB - 1
# Uncompressed bytes of one HFile block: 1 MiB as Hudi writes them, more if a single value is larger.
HFILE_BLOCK_BYTES_MAX = 1 * GIB
# Folder depth below the base path that partition discovery follows.
PARTITION_DEPTH_MAX = 32
FILE_NAME_BYTES_MAX = 255
# How far the newest instant may lie ahead of the local clock before we refuse to build on it.
TIMELINE_AHEAD_MS_DEFAULT = 60_000
# How often a publication that was fenced off takes a new lease and tries again.
PUBLISH_ATTEMPTS_MAX = 20
# Values of one vector, and vectors in one engine file (some libraries use 32-bit labels).
VECTOR_DIMENSION_MAX = 65_536
VECTOR_ROWS_MAX = 2**31 - 1
# How widely one search of a graph may look: the memory of every search grows with it.
VECTOR_EFFORT_MAX = 100_000
# Rows that one vector search returns over all its queries: they are in memory at once.
SEARCH_HITS_MAX = 50_000_000
# New file groups that one group of a clustering's plan becomes: each costs a reading of the group.
CLUSTERING_OUTPUTS_MAX = 10_000
# Columns that have or once had a vector index; graphs of one version; file slices that it is made from.
VECTOR_INDEXES_MAX = 10_000
VECTOR_CLUSTERS_MAX = 4_096
VECTOR_SLICES_MAX = 1_000_000
# Cache, per open table, of vectors that the index does not hold yet.
VECTOR_DELTA_BYTES_MAX = 1 * GIB
# Files of an index version that are read into memory for searches; larger versions go to temporary files.
VECTOR_MEMORY_BYTES_MAX = 1 * GIB
# An object that is replaced by compare-and-swap (``storage.swaps``): locks, the gate.
SWAPPED_BYTES_MAX = 4 * MIB
# A file is held in memory until it is put to an object store whole.
STORE_UPLOAD_BYTES_MAX = 2 * GIB
# A longer one is put to S3 in parts: one request has one time-out, and takes at most 5 GiB.
STORE_PUT_BYTES_MAX = 256 * MIB
# Files with profiles (``~/.aws``), and Hadoop's with options (``core-site.xml``).
AWS_FILE_BYTES_MAX = 1 * MIB
HADOOP_FILE_BYTES_MAX = 4 * MIB
# Ends of files that never change again, kept in memory: a footer, or a small file as a whole.
KEPT_END_BYTES = 512 * KIB
# Memory for the column chunks of one row group that are fetched from an object store together.
PREFETCH_BYTES_MAX = 128 * MIB
# One text and one list in an answer of a catalog: a table's columns and properties, the partitions of a
# table.
CATALOG_ANSWER_BYTES_MAX = 64 * MIB
CATALOG_ANSWER_ITEMS_MAX = 10_000_000
# One file of Iceberg's metadata beside a table, and entries in a manifest that is written: they are in
# memory.
ICEBERG_FILE_BYTES_MAX = 256 * MIB
ICEBERG_MANIFEST_ENTRIES = 10_000
