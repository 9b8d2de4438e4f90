"""Maps Hudi's own payload classes to merge rules, as Hudi 1.1 and later do (format rules 1.5).

Tables of version 8 name a payload class where version 9 has merge mode, partial update mode and
delete marker. Any other class is the user's own Java code, which mainstem cannot run.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.merge.modes import COMMIT_TIME, EVENT_TIME, FILL_UNAVAILABLE, IGNORE_DEFAULTS

_MODEL = "org.apache.hudi.common.model."
_DEBEZIUM_DELETE = ("_change_operation_type", "d")


@dataclass(frozen=True)
class PayloadRules:
    """What a payload class does, in the terms of table version 9."""

    mode: str
    partial: str | None = None
    unavailable: str | None = None
    delete: tuple[str, str] | None = None
    #: ordering fields, where the class has its own
    ordering: tuple[str, ...] = ()


KNOWN_PAYLOADS = {
    _MODEL + "DefaultHoodieRecordPayload": PayloadRules(EVENT_TIME),
    _MODEL + "EventTimeAvroPayload": PayloadRules(EVENT_TIME),
    _MODEL + "OverwriteWithLatestAvroPayload": PayloadRules(COMMIT_TIME),
    _MODEL + "PartialUpdateAvroPayload": PayloadRules(EVENT_TIME, IGNORE_DEFAULTS),
    _MODEL + "OverwriteNonDefaultsWithLatestAvroPayload": PayloadRules(COMMIT_TIME, IGNORE_DEFAULTS),
    _MODEL + "debezium.PostgresDebeziumAvroPayload": PayloadRules(
        EVENT_TIME, FILL_UNAVAILABLE, "__debezium_unavailable_value", _DEBEZIUM_DELETE, ("_event_lsn",)
    ),
    _MODEL + "debezium.MySqlDebeziumAvroPayload": PayloadRules(
        EVENT_TIME, delete=_DEBEZIUM_DELETE, ordering=("_event_bin_file", "_event_pos")
    ),
    _MODEL + "AWSDmsAvroPayload": PayloadRules(COMMIT_TIME, delete=("Op", "D")),
}
