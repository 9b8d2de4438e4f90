"""Lets Spark find ``format("org.apache.hudi")``, as ``pyspark_mainstem_hudi`` does for ``hudi``."""

from mainstem.spark.source import ApacheHudiSource as DefaultSource

__all__ = ["DefaultSource"]
