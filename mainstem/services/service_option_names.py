"""The names of all options of table services; refuses names that nothing reads."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping

from mainstem.errors import Invalid
from mainstem.metadata import metadata_compaction_plan
from mainstem.options import FAILED_WRITES, FAILED_WRITES_OLD, families, services
from mainstem.options.tables import PAYLOAD_CLASS
from mainstem.services import archive_plan, clean_plan, log_compaction_plan
from mainstem.services.clustering_order import RowOrder
from mainstem.services.clustering_plan import ClusteringOptions
from mainstem.services.service_switches import RunOptions

SERVICE_KEYS = frozenset(name for option in services.OPTIONS for name in option.names)
#: Flink's names of options that have another name everywhere else
FLINK_KEYS = {
    option.flink: option for option in services.OPTIONS if option.flink.startswith(families.SERVICES)
}

#: names that begin like options of services but are read elsewhere
_ELSEWHERE = frozenset((FAILED_WRITES, FAILED_WRITES_OLD, PAYLOAD_CLASS))


def name_meant(name: str) -> str | None:
    """The service's option that an unknown name misspells, or that has this name in Flink; None if none."""
    # Most of Hudi's options of clustering have no meaning here, and some are spelt much like one that has.
    cutoff = 0.95 if name.startswith(families.CLUSTERING) else 0.85
    known = SERVICE_KEYS.difference(services.OF_RINGS)  # which are spelt like options of buckets
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=cutoff)
    return FLINK_KEYS.get(name) or (near[0] if near else None)


def check_service_names(names: Iterable[str]) -> None:
    """Make sure that no option of a table service is ignored silently.

    Raises ``Invalid`` for typing errors and for Flink's own names, and names the option meant; warns about
    Hudi's other service options, which have no effect here. Ignores options of anything else.
    """
    idle = []
    for name in sorted(names):
        if name in SERVICE_KEYS or name in _ELSEWHERE:
            continue
        if name in FLINK_KEYS:
            raise Invalid(f"option {name!r} is Flink's name; here it is {FLINK_KEYS[name]!r}")
        if not name.startswith(families.SERVICES):
            continue
        meant = name_meant(name)
        if meant or not name.startswith("hoodie."):
            hint = f"; did you mean {meant!r}?" if meant else ""
            raise Invalid(f"unknown option {name!r}{hint}")
        idle.append(name)
    if idle:
        warnings.warn(f"these options have no effect in mainstem: {', '.join(idle)}", stacklevel=4)


def check_service_values(properties: Mapping[str, str]) -> None:
    """Check the values of all service options, whether or not the service runs.

    Raises ``Invalid`` for a value that does not parse and for contradictory bounds, ``Unsupported`` for an
    unknown compaction strategy.
    """
    RunOptions.from_properties(properties)
    log_compaction_plan.LogCompactionOptions.from_properties(properties)
    metadata_compaction_plan.MetadataCompactionOptions.from_properties(properties)
    clean_plan.CleanOptions.of_metadata_table(properties)
    RowOrder.from_properties(properties)
    ClusteringOptions.from_properties(properties)
    archive_plan.ArchiveOptions.from_properties(properties)  # compaction's and cleaning's among them
