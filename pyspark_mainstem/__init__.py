"""Lets Spark find ``format("mainstem")`` without ``mainstem.spark.register``.

Spark imports every top-level package named ``pyspark_*`` and takes its ``DefaultSource``. If any
one of them fails to import, Spark registers none: ``mainstem.spark.register(spark)`` is the sure
way.
"""

from mainstem.spark.source import MainstemSource as DefaultSource

__all__ = ["DefaultSource"]
