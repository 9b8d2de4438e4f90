"""Values as Spark stores them in a column (``spark.sql.storeAssignmentPolicy``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType


@dataclass(frozen=True)
class Storing:
    """How a session stores values. ``verb`` and ``table`` are for messages."""

    spark: SparkSession
    verb: str
    table: str

    def alike(self, one: str, other: str) -> bool:
        """Whether two names are one, by ``spark.sql.caseSensitive``."""
        if str(self.spark.conf.get("spark.sql.caseSensitive")).lower() == "true":
            return one == other
        return one.lower() == other.lower()

    def __call__(
        self, column: Column, found: DataType, wanted: DataType, name: str, *, literal: bool = False
    ) -> Column:
        """``column`` of type ``found`` in the type of the table's column ``name``. ``literal``: it is a text
        in the statement, which may be a number or a time, as in Hudi.

        Raises ``Invalid`` for types that do not fit; a value that does not fit fails the query, whether or
        not the session is in ANSI mode.
        """
        from pyspark.sql import functions as F

        if found == wanted:
            return column
        policy = str(self.spark.conf.get("spark.sql.storeAssignmentPolicy")).upper()
        jvm, parse = self.spark._jvm, self.spark._jsparkSession.parseDataType
        assert jvm is not None
        cast = jvm.org.apache.spark.sql.catalyst.expressions.Cast
        types = parse(found.json()), parse(wanted.json())
        fits = cast.canUpCast(*types) if policy == "STRICT" else cast.canANSIStoreAssign(*types)
        if policy != "LEGACY" and not fits and not (literal and found.typeName() == "string"):
            raise Invalid(
                f"{self.verb}: a value of type {found.simpleString()} is assigned to {name!r}, which is"
                f" {wanted.simpleString()}: cast it (spark.sql.storeAssignmentPolicy is {policy})",
                table=self.table,
            )
        stored = column.cast(wanted)
        if policy == "LEGACY" or str(self.spark.conf.get("spark.sql.ansi.enabled")).lower() == "true":
            return stored
        message = F.lit(f"{self.verb}: a value does not fit into {name} {wanted.simpleString()}")
        return F.when(column.isNotNull() & stored.isNull(), F.raise_error(message)).otherwise(stored)
