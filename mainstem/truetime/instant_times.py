"""Instant times: created under the table lock, above every time on the timeline, in the table's zone.

Hudi's ``SkewAdjustingTimeGenerator`` reads the clock and waits out the expected skew before the lock
is released. mainstem keeps clear of other clocks, too (``truetime.clock_skew``), and also stays above the
newest time on the timeline, so the order of its own instants does not depend on clocks at all
(``hoodie.time.generator.*``, RFC-66).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from mainstem.errors import CorruptTable, Invalid
from mainstem.limits import TIMELINE_AHEAD_MS_DEFAULT
from mainstem.options.tables import TIMEZONE
from mainstem.options.writing import AHEAD_MS

_EPOCH = datetime(1970, 1, 1)
_MS = timedelta(milliseconds=1)


class InstantTimes:
    """Formats, parses and advances instant times of one table.

    ``zone`` is UTC, or the writers' zone for a table whose ``hoodie.table.timeline.timezone`` is LOCAL.
    ``ahead_ms_max``: how far the timeline may be ahead of the clock; outside UTC an hour more, for the change
    from daylight saving time.
    """

    def __init__(self, zone: tzinfo = UTC, ahead_ms_max: int = TIMELINE_AHEAD_MS_DEFAULT) -> None:
        self._zone = zone
        self._ahead_ms_max = ahead_ms_max + (0 if zone is UTC else 3_600_000)

    def format(self, epoch_ms: int) -> str:
        """17 digits ``yyyyMMddHHmmssSSS``."""
        return instant_text(self._wall(epoch_ms))

    def _wall(self, epoch_ms: int) -> datetime:
        if self._zone is UTC:
            return _EPOCH + timedelta(milliseconds=epoch_ms)
        moment = datetime.fromtimestamp(epoch_ms / 1000, UTC).astimezone(self._zone)
        return moment.replace(tzinfo=None, microsecond=epoch_ms % 1000 * 1000)

    def next(self, now_ms: int, newest: str, *, begins: bool = False) -> str:
        """The next instant time: not before the clock, and after ``newest`` ("" = empty timeline).

        A write begins at an odd millisecond, and everything else has an even one: so a write that begins
        beside the fence shares its time with nothing that is published in it (``publish.publisher``).

        Raises ``Invalid`` if ``newest`` is so far ahead of the clock that one of the two must be wrong:
        building on it would push every later instant into the future too.
        """
        wall = self._wall(now_ms)
        if newest:
            floor = parse_wall(newest) + _MS
            ahead_ms = (floor - wall) // _MS
            if ahead_ms > self._ahead_ms_max:
                raise Invalid(
                    f"the newest instant on the timeline, {newest}, is {ahead_ms / 1000:.1f} s ahead of"
                    f" this machine's clock ({instant_text(wall)}); at most {self._ahead_ms_max / 1000:.0f} s"
                    f" is accepted: set the clock right, check {TIMEZONE}, or raise"
                    f" {AHEAD_MS} if the instant is genuine"
                )
            wall = max(wall, floor)
        odd = wall.microsecond // 1000 % 2 == 1
        return instant_text(wall if odd == begins else wall + _MS)

    def ahead_ms(self, time: str, now_ms: int) -> int:
        """How far an instant time is ahead of ``now_ms``; negative if it is in the past."""
        return (parse_wall(time) - self._wall(now_ms)) // _MS


def instant_text(wall: datetime) -> str:
    """An instant time of 17 digits, the inverse of ``parse_wall``."""
    return wall.strftime("%Y%m%d%H%M%S") + f"{wall.microsecond // 1000:03d}"


def parse_wall(text: str) -> datetime:
    """Wall-clock value of an instant time. 14 digits get ``999`` as milliseconds, as in Java."""
    digits = text[:17] if len(text) >= 17 else text + "999"
    try:
        if not digits.isdecimal():
            raise ValueError(text)
        return datetime(  # not strptime, which takes twenty times as long
            int(digits[:4]), int(digits[4:6]), int(digits[6:8]), int(digits[8:10]), int(digits[10:12]),
            int(digits[12:14]), 1000 * int(digits[14:17]),
        )  # fmt: skip
    except ValueError as error:
        raise CorruptTable(
            f"instant time {text!r} is no time of the form yyyyMMddHHmmssSSS", path=text
        ) from error
