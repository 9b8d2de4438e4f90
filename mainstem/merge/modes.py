"""Merge modes: their names, the table properties that select them, and the defaults.

In Hudi: ``HoodieTableConfig``; ``RecordMergeMode.getValue``, which ignores case; and
``PartialUpdateMode.valueOf``, which does not and is used from table version 9 on (format rules 1.4 to 1.6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainstem.errors import Unsupported
from mainstem.options.tables import MERGE_MODE, ORDERING_FIELDS, PARTIAL_UPDATES, PRECOMBINE, TABLE_VERSION

# The declarations of the two options name the words once.
MODES, PARTIAL_MODES = MERGE_MODE.allowed, PARTIAL_UPDATES.allowed
EVENT_TIME, COMMIT_TIME, CUSTOM = MODES
IGNORE_DEFAULTS, FILL_UNAVAILABLE = PARTIAL_MODES

#: merge strategy ids of the modes; ``BY_PAYLOAD`` leaves merging to the payload class
STRATEGIES = {
    EVENT_TIME: "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
    COMMIT_TIME: "ce9acb64-bde0-424c-9b91-f6ebba25356d",
}
BY_PAYLOAD = "00000000-0000-0000-0000-000000000000"
#: the payload class that version 8 stores beside a merge mode
VERSION_8_PAYLOADS = {
    EVENT_TIME: "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
    COMMIT_TIME: "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
}


def ordering_fields(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The ordering columns that a table declares, whatever its merge mode."""
    text = properties.get(ORDERING_FIELDS, "").strip() or properties.get(PRECOMBINE, "")
    return tuple(part.strip() for part in text.split(",") if part.strip())


def merge_mode(properties: Mapping[str, str], ordering: Sequence[str] | None = None) -> str:
    """The merge mode in capitals; if none is set, event time with ordering fields, else commit time.

    ``ordering``: the table's ordering fields if ``properties`` do not hold them yet. An unknown mode is
    returned too.
    """
    fields = ordering_fields(properties) if ordering is None else ordering
    return properties.get(MERGE_MODE, "").strip().upper() or (EVENT_TIME if fields else COMMIT_TIME)


def partial_update_mode(properties: Mapping[str, str]) -> str | None:
    """The partial update mode; None if there is none, as always before table version 9.

    Raises ``Unsupported`` for any other text, including lower case: every Java reader fails on it.
    """
    mode = properties.get(PARTIAL_UPDATES, "").strip()
    if not mode or int(properties.get(TABLE_VERSION, "9")) < 9:
        return None
    if mode not in PARTIAL_MODES:
        raise Unsupported(
            f"{PARTIAL_UPDATES}={mode!r}; known are {IGNORE_DEFAULTS} and {FILL_UNAVAILABLE}, in capitals as"
            " Hudi takes them"
        )
    return mode
