"""Options of vector indexes: what they are made with unless told otherwise, and when rounds refresh them."""

from __future__ import annotations

from mainstem.limits import VECTOR_CLUSTERS_MAX
from mainstem.options.declaration import Flag, Text, Whole

_MADE, _REFRESHED = "vectors.index", "services (rounds)"

VECTOR_ENGINE = Text(
    "hoodie.mainstem.vector.engine", "hnsw", like="hnsw, faiss, jvector, flat", read_by=_MADE,
    says="The library that searches a new index.",
)  # fmt: skip
VECTOR_METRIC = Text(
    "hoodie.mainstem.vector.metric", "cosine", like="cosine, l2, dot_product", read_by=_MADE,
    says="The distance of a new index.",
)  # fmt: skip
VECTOR_CLUSTERS = Whole(
    "hoodie.mainstem.vector.clusters", 0, 0, VECTOR_CLUSTERS_MAX, "graphs", read_by=_MADE,
    says="Into how many graphs a new index is cut; 0 leaves it to the number of rows.",
)  # fmt: skip
VECTOR_AFTER_COMPACTION = Flag(
    "hoodie.mainstem.vector.refresh.after.compaction", True, read_by=_REFRESHED,
    says="A compaction makes a refresh due.",
)  # fmt: skip
VECTOR_FRESH_PERCENT = Whole(
    "hoodie.mainstem.vector.refresh.fresh.percent", 20, 0, 100, "percent", read_by=_REFRESHED,
    says="So many vectors that the index does not hold make a refresh due.",
)  # fmt: skip
