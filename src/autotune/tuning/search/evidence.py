"""What the search knows: measured points, and how each server start ended.

A point is a configuration with its metrics, a start is a configuration with the kind of its failure.
With one point a start they coincide; with several loads a start they do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autotune.model.objective import Objective
from autotune.tuning.search.grid import Numbers, Rows

STARTUP = "startup"
DEFAULT_NOISE = 0.03
"""Relative standard error of a measurement that does not know its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured configuration.

    outcome: one number an objective, larger is better; noise: its variance
    feasible: whether it may stand on the front (an SLO may be missed)
    """

    row: Rows
    outcome: Numbers
    noise: Numbers
    feasible: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How one configuration came up. failures: how badly by kind, 0 to 1; a passed kind is 0.

    A kind that is absent was never reached: a server that did not start has no answers to judge.
    doubt: the chance that a failure says nothing of the configuration
    """

    row: Rows
    failures: Mapping[str, float]
    doubt: float = 0.0

    @property
    def good(self) -> bool:
        return all(degree <= 0 for degree in self.failures.values())


@dataclass(slots=True, kw_only=True)
class Evidence:
    """Everything a proposal may depend on. pending: configurations that are being tried."""

    points: list[Point] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    pending: list[Rows] = field(default_factory=list)

    @property
    def feasible(self) -> list[Point]:
        return [point for point in self.points if point.feasible]


def gains(values: Sequence[float], objectives: Sequence[Objective]) -> Numbers:
    """Turn metrics into numbers of which more is better: logarithms, so that ratios count.

    Shares and counts, which are often 0, stay as they are.
    """
    return np.array(
        [
            objective.sign * (value if objective.unit == "1" else np.log(max(value, 1e-6)))
            for value, objective in zip(values, objectives, strict=True)
        ]
    )
