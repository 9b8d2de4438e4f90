"""What an entry of a catalog is. Catalogs are written by others: an entry names a place and no more is
believed."""

from __future__ import annotations

from mainstem.catalogs.entries import PROVIDER
from mainstem.catalogs.protocol import Entry
from mainstem.errors import Invalid, MainstemError, Unsupported
from mainstem.options.catalogs import READ_OPTIMIZED
from mainstem.storage.backends import location_of
from mainstem.storage.location import Location

HUDI, VIEW = "hudi", "view"
_OURS = ("hudi", "org.apache.hudi", "mainstem")


def kind_of(entry: Entry) -> str:
    """``hudi``, ``iceberg``, ``delta``, ``view``, another provider of Spark, or ``hive``."""
    parameters = {key.lower(): text for key, text in entry.parameters.items()}
    if entry.kind == "VIRTUAL_VIEW":
        return VIEW
    provider = parameters.get(PROVIDER.lower(), "").lower()
    if parameters.get("table_type", "").lower() == "iceberg" or provider == "iceberg":
        return "iceberg"
    if provider in _OURS or parameters.get("connector", "").lower() in _OURS:
        return HUDI
    if provider:
        return provider
    return HUDI if "org.apache.hudi." in entry.input_format else "hive"


def read_optimized(entry: Entry) -> bool:
    """Whether the name is that of the base files alone."""
    return entry.serde_parameters.get(READ_OPTIMIZED, "").lower() == "true"


def place_of(entry: Entry, catalog: str) -> Location:
    """Where the table of an entry lies.

    Raises ``Unsupported`` for one of another format, ``Invalid`` for a place that cannot be a table's: none,
    a relative one, one with credentials.
    """
    kind, name = kind_of(entry), entry.full_name
    if kind != HUDI:
        way = {
            "iceberg": "read it with Iceberg (pyiceberg), or with Hudi by way of Apache XTable",
            "delta": "read it with Delta (deltalake), or with Hudi by way of Apache XTable",
            VIEW: "name the table that it reads",
        }.get(kind, "read it with what made it")
        what = "a view" if kind == VIEW else f"a table of the format {kind[:40]!r}"
        raise Unsupported(f"{name} in {catalog} is {what}, no Hudi table: {way}")
    if not entry.location:
        raise Invalid(f"{name} in {catalog} has no location: drop the entry, and register the table again")
    try:
        return location_of(entry.location, absolute=True)
    except MainstemError as error:
        # The text is not repeated: it may hold what nobody should see.
        raise type(error)(
            f"the location of {name} in {catalog} cannot be used: {error.message}. Register the table again,"
            " by"
            " its path"
        ) from None
