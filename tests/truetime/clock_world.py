"""Sections of mainstem and of Java under one lock, with clocks that differ, in virtual milliseconds.

The times are made by production code (``InstantTimes``, ``ClockSkew``), with a bound of a few milliseconds,
so that every edge is met. Java is of two kinds: from 1.1 on it makes a file in the section in which it takes
the file's time; 1.0 takes the time of a request in a section and makes the file later, outside of any.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.instant_times import InstantTimes

START_MS = 1_767_225_600_000


@dataclass(frozen=True)
class Machine:
    """``kind``: ``ours``, ``java`` (from 1.1 on) or ``late`` (1.0). ``offset``: of its clock, in ms."""

    kind: str
    offset: float


@dataclass
class ClockWorld:
    """One run: ``sections`` of machines that the seed draws, one after another."""

    seed: int
    skew: ClockSkew
    machines: list[Machine]
    #: how long a call takes, at most
    call_ms: float = 0.8
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.times = InstantTimes()
        self.now = float(START_MS)
        self.visible: list[tuple[str, str]] = []
        self.late: list[tuple[float, str]] = []

    def run(self, sections: int) -> list[str]:
        """What went wrong."""
        for _ in range(sections):
            if self.random.random() < 0.3:
                self.now += self.random.choice([1, 5, 30]) * self.skew.bound_ms * self.random.random()
            machine = self.random.choice(self.machines)
            makes = self.random.choice(["request", "completion", "plan"])
            section = self._our_section if machine.kind == "ours" else self._java_section
            section(machine, makes)
        self._arrive(float("inf"))
        return self.wrong

    def _call(self) -> None:
        self.now += self.random.random() * self.call_ms
        self._arrive(self.now)

    def _clock(self, machine: Machine) -> int:
        return int(self.now + machine.offset)

    def _our_section(self, machine: Machine, makes: str) -> None:
        self._call()
        newest = max((time for time, _ in self.visible), default="")
        reading = self.skew.reading(self._clock(machine))
        time = self.times.next(reading, newest, begins=makes == "request")
        self.now += self.skew.left_ms(self.times.ahead_ms(time, self._clock(machine)))
        self._call()
        self._show(time, makes)

    def _java_section(self, machine: Machine, makes: str) -> None:
        time = self.times.format(self._clock(machine))
        self.now += self.skew.bound_ms
        if machine.kind == "late" and makes == "request":
            self.late.append((self.now + self.random.random() * 4 * self.skew.bound_ms, time))
            return
        self._call()
        self._show(time, makes)

    def _arrive(self, now: float) -> None:
        for one in [one for one in self.late if one[0] <= now]:
            self.late.remove(one)
            self._show(one[1], "request")

    def _show(self, time: str, makes: str) -> None:
        """A file appears. A plan holds what completed at earlier times."""
        if any(time == other for other, _ in self.visible):
            self.wrong.append("two files have the same time")
        if makes == "completion" and any(time <= other for other, kind in self.visible if kind == "plan"):
            self.wrong.append("a plan lacks a commit with an earlier time")
        if makes == "completion" and any(time <= other for other, kind in self.visible if kind == makes):
            self.wrong.append("what completed later has the earlier time")
        self.visible.append((time, makes))
