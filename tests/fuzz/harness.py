"""Feeding damaged bytes to a parser: mutations, and the judging of one case.

A case is right when the parser gives a result that its target accepts, or raises one of the three
errors for damaged or foreign input (``CorruptTable``, ``Invalid``, ``Unsupported``), within a second
of processor time. Anything else is a ``Finding``, which holds the bytes that led to it.
"""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mainstem.errors import CorruptTable, Invalid, Unsupported

ALLOWED = (CorruptTable, Invalid, Unsupported)
SECONDS_MAX = 1.0
_EXTREMES = (
    b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80", b"\xff", b"\xff" * 4, b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00", b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\xff" * 9 + b"\x01", b"\x01" * 8,
    b"\x80" * 9 + b"\x01", b"\xfe\xff\xff\xff\x0f", b"#HUDI#", b"PAR1", b"Obj\x01", b"null", b'"', b"[",
    b"{", b"}", b"..", b"/", b"=", b"\n", b"\\u0000", b"1e999", b"-1", b"99999999999999999999",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """One parser. ``run`` parses bytes and raises ``AssertionError`` for a result that cannot be.

    ``seeds`` are valid inputs; the smallest one is cut at every byte and has its bits flipped.
    ``may_cut`` says whether the result of the first n bytes is right beside that of all of them; None
    where a cut must be an error.
    """

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Sequence[bytes]]
    may_cut: Callable[[object, object], bool] | None = None
    slow: bool = False


class Finding(Exception):
    """What a parser did wrong, and the bytes that made it."""

    def __init__(self, target: str, what: str, data: bytes) -> None:
        super().__init__(f"{target}: {what}\n  base64: {base64.b64encode(data).decode()}")
        self.what = what
        self.data = data


def parsed(target: Target, data: bytes) -> tuple[bool, object]:
    """``(True, result)``, or ``(False, error)`` for one of our three errors. Raises ``Finding``."""
    began = time.process_time()
    try:
        outcome = (True, target.run(data))
    except ALLOWED as error:
        str(error)  # a message that cannot be made is a finding, too
        outcome = (False, error)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise Finding(target.name, f"{type(error).__name__}: {error}", data) from error
    taken = time.process_time() - began
    if taken > SECONDS_MAX:
        raise Finding(target.name, f"took {taken:.1f} s of processor time", data)
    return outcome


def smallest(target: Target) -> bytes:
    """The smallest seed that is not empty."""
    return min((seed for seed in target.seeds() if seed), key=len)


def check_seeds(target: Target) -> None:
    """Every seed is valid, or the target tests nothing."""
    for seed in target.seeds():
        good, found = parsed(target, seed)
        if not good:
            raise Finding(target.name, f"refuses a valid input: {found}", seed)


def check_truncation(target: Target, ends: Sequence[int] | None = None) -> None:
    """A seed cut at every byte (or at ``ends``) is an error, or a result that ``may_cut`` accepts."""
    seed = smallest(target)
    whole = parsed(target, seed)[1]
    for end in range(len(seed)) if ends is None else ends:
        good, found = parsed(target, seed[:end])
        if good and (target.may_cut is None or not target.may_cut(whole, found)):
            raise Finding(target.name, f"takes the first {end} of {len(seed)} bytes", seed[:end])


def flipped(data: bytes, bit: int) -> bytes:
    """``data`` with one bit turned over."""
    made = bytearray(data)
    made[bit // 8] ^= 1 << bit % 8
    return bytes(made)


def check_flips(target: Target, chance: random.Random, most: int) -> None:
    """Single bits of the smallest seed turned over: all of them, or ``most`` chosen ones."""
    seed = smallest(target)
    bits = range(8 * len(seed))
    for bit in bits if len(bits) <= most else chance.sample(bits, most):
        parsed(target, flipped(seed, bit))


def mutants(seeds: Sequence[bytes], chance: random.Random) -> Iterator[bytes]:
    """Damaged inputs without end: flips, extremes at places that matter, cuts, repeats, splices."""
    while True:
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
            _damage(data, seeds, chance)
        yield bytes(data)


def _damage(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    if chance.random() < 0.3:
        at = min(at, chance.randrange(64))  # headers are at the beginning
    elif chance.random() < 0.2:
        at = max(at, len(data) - chance.randrange(64))  # and footers at the end
    how = chance.randrange(8)
    if how == 0 and at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    elif how == 1:
        extreme = chance.choice(_EXTREMES)
        data[at : at + len(extreme)] = extreme
    elif how == 2:
        data[at:at] = chance.choice(_EXTREMES)
    elif how == 3:
        del data[at : at + chance.choice((1, 2, 4, 8, 100))]
    elif how == 4:
        del data[at:]
    elif how == 5:
        data[at:at] = data[at : at + chance.choice((1, 8, 64, 500))] * chance.choice((1, 2, 20))
    elif how == 6:
        other = chance.choice(seeds)
        begin = chance.randrange(len(other) + 1)
        data[at : at + chance.randrange(50)] = other[begin : begin + chance.randrange(200)]
    elif at < len(data):
        data[at] = (data[at] + chance.choice((1, -1, 2, 16, 64))) % 256


def fuzz(target: Target, seconds: float, seed: int, before: Callable[[bytes], None] | None = None) -> int:
    """Mutated inputs for so long (wall time); the number of cases. Raises ``Finding``.

    ``before`` is told of each case before it runs.
    """
    chance = random.Random(f"{seed} {target.name}")
    end, cases = time.monotonic() + seconds, 0
    for data in mutants(list(target.seeds()), chance):
        if time.monotonic() >= end:
            return cases
        if before is not None:
            before(data)
        parsed(target, data)
        cases += 1
    return cases
