"""Refuses indexes that make Java's readers fail or leave out rows (Hudi 1.2.0, whichever engine built them).

They are built only if the user says that no Java job reads the table through its metadata table. The problem
also occurs on tables made by Java alone; docs/metadata.md says which queries are affected, and how.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainstem.errors import Unsupported
from mainstem.metadata.metadata_partitions import BLOOM_FILTERS, Kind
from mainstem.options import UNSAFE_FOR_JAVA, flag
from mainstem.options.reading import DATA_SKIPPING

_WRONG = {
    str(Kind.EXPRESSION_INDEX): (
        "Java takes it for one of whatever function a query has of the column: beside one of lower(s) its"
        " query upper(s) = 'A' leaves out files that have such rows, beside one of month(d) year(d) = 1970"
    ),
    BLOOM_FILTERS: "Java's queries of record keys leave out file groups whose rows are in log files only",
}


def check_for_java(kind: str, options: Mapping[str, str]) -> None:
    """``Unsupported`` for an index that makes Java's default reads wrong, unless the options insist."""
    why = _WRONG.get(kind)
    if why is None or flag(options, UNSAFE_FOR_JAVA, False):
        return
    raise Unsupported(
        f"an index of the kind {kind}: {why} (Hudi 1.2.0, with its default options, whoever built it). If no"
        f" Java job reads this table, or all read it with {DATA_SKIPPING}=false, say"
        f" {UNSAFE_FOR_JAVA}=true, as an option of the index or of the table that is opened"
    )
