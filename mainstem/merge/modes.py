"""How a table says that it merges: the modes' names, their properties, and the defaults.

Hudi: ``HoodieTableConfig`` and ``RecordMergeMode.getValue``, which takes a merge mode in any case;
``PartialUpdateMode.valueOf``, which does not, and is asked from table version 9 on (format rules 1.4 to 1.6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainstem.errors import Unsupported
from mainstem.options.tables import MERGE_MODE, ORDERING_FIELDS, PARTIAL_UPDATES, PRECOMBINE, TABLE_VERSION

# The declarations of the two options name the words once.
MODES, PARTIAL_MODES = MERGE_MODE.allowed, PARTIAL_UPDATES.allowed
EVENT_TIME, COMMIT_TIME, CUSTOM = MODES
IGNORE_DEFAULTS, FILL_UNAVAILABLE = PARTIAL_MODES

#: merge strategy ids of the modes, and the one that says "as the payload class does"
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
    """The ordering columns that a table names, whatever its merge mode."""
    text = properties.get(ORDERING_FIELDS, "").strip() or properties.get(PRECOMBINE, "")
    return tuple(part.strip() for part in text.split(",") if part.strip())


def merge_mode(properties: Mapping[str, str], ordering: Sequence[str] | None = None) -> str:
    """The merge mode, in capitals; where none is named, the ordering fields decide.

    ``ordering``: the table's ordering fields where ``properties`` do not hold them yet. A mode that nobody
    knows is returned as it is.
    """
    fields = ordering_fields(properties) if ordering is None else ordering
    return properties.get(MERGE_MODE, "").strip().upper() or (EVENT_TIME if fields else COMMIT_TIME)


def partial_update_mode(properties: Mapping[str, str]) -> str | None:
    """The partial update mode; None where there is none, and before table version 9, which has none.

    ``Unsupported`` for any other text, also one in small letters: every Java reader fails on it.
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
