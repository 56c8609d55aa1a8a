"""The declared grid as Optuna sees it: physical values, one distribution a knob, never an index."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from autotune.model.knob import Knob, Value, is_number
from autotune.model.search_space import SearchSpace


def distribution(knob: Knob) -> BaseDistribution:
    """Describe a knob to Optuna. Values between grid points are snapped before they are stored."""
    values = knob.values
    if knob.kind == "categorical" or not all(is_number(value) for value in values):
        return CategoricalDistribution(values)
    numbers = [value for value in values if isinstance(value, int | float)]
    low, high, log = min(numbers), max(numbers), knob.kind == "log"
    if all(isinstance(number, int) for number in numbers):
        return IntDistribution(int(low), int(high), log=log, step=1 if log else _gap(numbers))
    step = None if log else _even_step(numbers)
    return FloatDistribution(float(low), float(high), log=log, step=step)


def distributions(space: SearchSpace) -> dict[str, BaseDistribution]:
    return {knob.name: distribution(knob) for knob in space.knobs}


def snap(knob: Knob, value: object) -> Value:
    """Move a value onto the knob's grid; what is no number must be on it already."""
    if isinstance(value, bool | str | None):
        return knob.values[knob.index(value)]
    if not isinstance(value, int | float):
        raise TypeError(f"{knob.name}: {value!r} cannot be a knob's value")
    numbers = [own for own in knob.values if is_number(own)]
    return min(numbers, key=lambda own: _distance(knob, float(own), float(value)))  # type: ignore[arg-type]


def random_values(space: SearchSpace, generator: random.Random) -> dict[str, Value]:
    return {knob.name: generator.choice(knob.values) for knob in space.knobs}


def neighbor(
    space: SearchSpace, values: Mapping[str, Value], generator: random.Random
) -> dict[str, Value]:
    """Change one knob of a configuration."""
    knob = generator.choice(space.knobs)
    return {**values, knob.name: generator.choice(knob.values)}


def _distance(knob: Knob, left: float, right: float) -> float:
    if knob.kind == "log" and left > 0 and right > 0:
        return abs(math.log(left / right))
    return abs(left - right)


def _gap(numbers: Sequence[float]) -> int:
    """Greatest common step of whole numbers, so that every one of them is on Optuna's grid."""
    ordered = sorted(int(number) for number in numbers)
    gaps = [after - before for before, after in itertools.pairwise(ordered)]
    return max(math.gcd(*gaps), 1) if gaps else 1


def _even_step(numbers: Sequence[float]) -> float | None:
    ordered = sorted(numbers)
    if len(ordered) < 2:  # noqa: PLR2004  a step needs two points
        return None
    step = round(ordered[1] - ordered[0], 12)
    even = all(
        math.isclose(after - before, step, abs_tol=1e-9)
        for before, after in itertools.pairwise(ordered)
    )
    return step if even and step > 0 else None
