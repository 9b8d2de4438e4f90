"""How times keep clear of the clocks of other machines: they lie in the past, or they are waited for.

Java takes its times from its clock and never looks at the timeline. So whatever time we give must lie below
every other machine's clock when the lock is free again. Hudi's ``SkewAdjustingTimeGenerator`` reads the clock
and waits for the skew. A time that lies that far in the past needs no wait (SAFETY.md, "Times in the past").
"""

from __future__ import annotations

from dataclasses import dataclass

# Our clock may be ahead of Java's by half as much again as the bound allows, at no cost.
_MARGIN = 1.5
# A write begins at an odd millisecond, all else has an even one: a time may be one later than asked for.
_PARITY_MS = 1
# What is newest within the bound lies no further above the clock that follows it.
_AHEAD_MS_MAX = 4


@dataclass(frozen=True)
class ClockSkew:
    """``bound_ms``: how far the clocks of writers may be apart (``hoodie.time.generator.
    max_expected_clock_skew_ms``). ``lags``: times may lie in the past. Java 1.0, which writes tables up to
    version 8, takes a time under the lock and makes its file later: it needs the clock, and the wait.
    """

    bound_ms: int
    lags: bool = True

    def reading(self, now_ms: int) -> int:
        """What a writer whose clock shows ``now_ms`` takes for the time, if nothing newer is listed."""
        return now_ms - self._clear_ms - _PARITY_MS if self.lags and self.bound_ms else now_ms

    def left_ms(self, ahead_ms: int) -> int:
        """For how long a section must wait before it shows a time that is ``ahead_ms`` ahead of its clock.

        Never for longer than clocks within the bound need: a time beyond that is of a machine whose clock is
        wrong, and no wait would help.
        """
        return max(0, min(ahead_ms, _AHEAD_MS_MAX) + self._clear_ms)

    @property
    def _clear_ms(self) -> int:
        """Below the clock by so much, a time is below all clocks."""
        return int(self.bound_ms * _MARGIN) + 1 if self.lags and self.bound_ms else self.bound_ms
