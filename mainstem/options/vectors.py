"""Options of vector indexes: defaults for new ones, and when service rounds refresh them."""

from __future__ import annotations

from mainstem.limits import VECTOR_CLUSTERS_MAX
from mainstem.options.declaration import Flag, Text, Whole

_MADE, _REFRESHED = "vectors.index", "services (rounds)"

VECTOR_ENGINE = Text(
    "hoodie.mainstem.vector.engine", "hnsw", like="hnsw, faiss, jvector, flat", read_by=_MADE,
    says="The library that builds and searches a new index.",
)  # fmt: skip
VECTOR_METRIC = Text(
    "hoodie.mainstem.vector.metric", "cosine", like="cosine, l2, dot_product", read_by=_MADE,
    says="The distance of a new index.",
)  # fmt: skip
VECTOR_CLUSTERS = Whole(
    "hoodie.mainstem.vector.clusters", 0, 0, VECTOR_CLUSTERS_MAX, "graphs", read_by=_MADE,
    says="How many graphs a new index consists of; 0 chooses by the number of rows.",
)  # fmt: skip
VECTOR_AFTER_COMPACTION = Flag(
    "hoodie.mainstem.vector.refresh.after.compaction", True, read_by=_REFRESHED,
    says="A compaction makes a refresh due.",
)  # fmt: skip
VECTOR_FRESH_PERCENT = Whole(
    "hoodie.mainstem.vector.refresh.fresh.percent", 20, 0, 100, "percent", read_by=_REFRESHED,
    says="How many vectors that the index lacks, in percent, make a refresh due.",
)  # fmt: skip
