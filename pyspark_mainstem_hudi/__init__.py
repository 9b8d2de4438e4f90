"""Lets Spark find ``format("hudi")``, so that a job moves as it is; see ``pyspark_mainstem``.

Spark looks for Python data sources where no class on its class path has the name: a jar of Hudi keeps it.
"""

from mainstem.spark.source import HudiSource as DefaultSource

__all__ = ["DefaultSource"]
