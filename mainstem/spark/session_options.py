"""Options of object stores that a Spark session has: ``spark.hadoop.fs.s3a.*`` and their kin.

They count where a job says nothing. Spark plans reads and writes of a Python data source in processes that
see no session: ``register`` hands them on with the data source, as they are at that time. A secret that
stands in the session as text travels with them; ``${env.NAME}``, which Hadoop fills in too, travels as the
name of a variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from mainstem.api.given_options import shared_location
from mainstem.spark.in_tasks import is_connect
from mainstem.storage.backends import Place
from mainstem.storage.location import Location
from mainstem.storage.store_options import is_of_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HADOOP = "spark.hadoop."
# Between the entries of a Scala map as text, and within one.
_BETWEEN, _ARROW = "\x00", " -> "
_NONE: Mapping[str, str] = MappingProxyType({})


def session_options(spark: SparkSession) -> dict[str, str]:
    """Those of a session; what was set in it later, without ``spark.hadoop.``, counts first."""
    found = _all(spark)
    below = {name.removeprefix(_HADOOP): text for name, text in found.items() if name.startswith(_HADOOP)}
    return {name: text for name, text in {**below, **found}.items() if is_of_store(name)}


def _all(spark: SparkSession) -> dict[str, str]:
    """Every setting of a session."""
    if is_connect(spark):
        settings = spark.conf.getAll
        return dict(settings() if callable(settings) else settings)
    # One call into the JVM: each entry of its map would be two, and the map's end an exception.
    text = spark._jsparkSession.conf().getAll().mkString(_BETWEEN)
    pairs = (pair.partition(_ARROW) for pair in text.split(_BETWEEN))
    return {name: value for name, _, value in pairs}


def location_in(spark: SparkSession, path: Place, options: Mapping[str, str] = _NONE) -> Location:
    """The location of a job's table (``shared_location``), with the session's options below the job's."""
    return shared_location(path, options, session_options(spark))
