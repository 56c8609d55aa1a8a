"""Ranges become grids: finite lists of values, exact as written.

Decimal arithmetic throughout: 0.7 to 0.95 in steps of 0.05 holds 0.8, not 0.7999999999999999, which
would reach argv, reports and the detection of duplicates.
"""

import itertools
import math
from collections.abc import Sequence
from decimal import Decimal

from autotune.model.knob import Kind, Value, is_number

MAX_VALUES = 1000
POINTS_PER_DOUBLING = 2
LOG_FROM_RATIO = 8
"""A list of numbers that spans three doublings is compared by ratio."""


class GridError(ValueError):
    """The range has no usable grid."""


def stepped(low: Decimal, high: Decimal, step: Decimal) -> list[Decimal]:
    """Count from low to high, which must be hit."""
    steps = (high - low) / step
    whole = int(steps)
    if whole + 1 > MAX_VALUES:
        raise GridError(f"has {whole + 1} values, more than {MAX_VALUES}; take a larger step")
    if low + whole * step != high:
        near = [low + whole * step, low + (whole + 1) * step]
        raise GridError(f"high {high} is not on the grid; the nearest are {_either(near)}")
    return [low + index * step for index in range(whole + 1)]


def doubled(low: Decimal, high: Decimal) -> list[Decimal]:
    """Double from low to high, which must be hit."""
    _refuse_below(low, "doubling")
    values = [low]
    while values[-1] < high and len(values) <= MAX_VALUES:
        values.append(values[-1] * 2)
    if values[-1] != high:
        raise GridError(
            f"high {high} is not reached by doubling; the nearest are {_either(values[-2:])}"
        )
    return values


def logarithmic(low: Decimal, high: Decimal, *, whole: bool) -> list[Decimal]:
    """Place two points in every doubling; both ends belong to the grid.

    >>> [int(value) for value in logarithmic(Decimal(256), Decimal(2048), whole=True)]
    [256, 384, 512, 768, 1024, 1536, 2048]
    """
    _refuse_below(low, "log")
    ratio = float(high / low)
    intervals = max(1, round(POINTS_PER_DOUBLING * math.log2(ratio)))
    if intervals >= MAX_VALUES:
        raise GridError(f"has {intervals + 1} values, more than {MAX_VALUES}; narrow the range")
    raw = (float(low) * ratio ** (index / intervals) for index in range(1, intervals))
    nice = {_nice_integer(value) if whole else Decimal(f"{value:.3g}") for value in raw}
    return [low, *sorted(value for value in nice if low < value < high), high]


def kind_of(values: Sequence[Value]) -> Kind:
    """Numbers in ascending order have distances, everything else is a choice."""
    numbers = [
        float(value) for value in values if isinstance(value, int | float) and is_number(value)
    ]
    if len(numbers) < len(values) or any(
        right <= left for left, right in itertools.pairwise(numbers)
    ):
        return "categorical"
    return "log" if numbers[0] > 0 and numbers[-1] / numbers[0] >= LOG_FROM_RATIO else "linear"


def _nice_integer(value: float) -> Decimal:
    """Round to 1, 1.25, 1.5, 1.75 times a power of two: sizes that hardware likes."""
    grain = 2 ** max(0, math.floor(math.log2(value)) - 2)
    return Decimal(round(value / grain) * grain)


def _refuse_below(low: Decimal, spacing: str) -> None:
    if low <= 0:
        raise GridError(
            f"{spacing} needs low above 0, not {low}; list the values as choices instead"
        )


def _either(values: Sequence[Decimal]) -> str:
    return " and ".join(f"{value.normalize():f}" for value in values)
