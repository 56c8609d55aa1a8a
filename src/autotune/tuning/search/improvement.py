"""How much a configuration may be expected to improve the front. Everything is maximized here."""

import math

import numpy as np

from autotune.tuning.search.grid import Flags, Numbers

PROBES = 192
"""Random points of the space above the front that stand for its volume, from three objectives on."""

_ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806,
    0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277,
)  # fmt: skip


def normal_cdf(values: Numbers) -> Numbers:
    """Cumulative normal distribution; relative error below 1.2e-7 in the lower tail too.

    A Chebyshev fit to erfc, since numpy has none and scipy costs a tenth of a second to import.

    >>> float(normal_cdf(np.array([1.959964])).round(6)[0])
    0.975
    """
    size = np.abs(values) / math.sqrt(2.0)
    t = 1.0 / (1.0 + 0.5 * size)
    polynomial = np.full_like(t, _ERFC[-1])
    for coefficient in reversed(_ERFC[:-1]):
        polynomial = polynomial * t + coefficient
    tail = 0.5 * t * np.exp(-(size**2) + polynomial)
    result: Numbers = np.where(values < 0, tail, 1.0 - tail)
    return result


def expected_excess(mean: Numbers, deviation: Numbers, threshold: float) -> Numbers:
    """E[max(Z - threshold, 0)] of a normal Z."""
    u = (mean - threshold) / deviation
    density = np.exp(-0.5 * u**2) / math.sqrt(2.0 * math.pi)
    result: Numbers = np.maximum(deviation * (u * normal_cdf(u) + density), 0.0)
    return result


def non_dominated(points: Numbers) -> Flags:
    """Tell which points no other one beats; of equal ones the first."""
    kept = np.ones(len(points), dtype=bool)
    for number, point in enumerate(points):
        better = np.all(points >= point, axis=1) & np.any(points > point, axis=1)
        twin = np.all(points[:number] == point, axis=1)
        kept[number] = not (better.any() or twin.any())
    return kept


def reference(points: Numbers) -> Numbers:
    """Stay a tenth of the range below the worst that was measured."""
    low, high = points.min(axis=0), points.max(axis=0)
    result: Numbers = low - 0.1 * np.maximum(high - low, 1e-3)
    return result


def expected_improvement(
    means: Numbers,
    deviations: Numbers,
    points: Numbers,
    bound: Numbers,
    generator: np.random.Generator,
) -> Numbers:
    """Expect so much growth of the volume that the points dominate above the bound.

    A column an objective. One: expected improvement. Two: exact. More: averaged over random points.
    """
    front = points[non_dominated(points)]
    objectives = means.shape[1]
    if objectives == 1:
        return expected_excess(means[:, 0], deviations[:, 0], float(front.max()))
    if objectives == 2:  # noqa: PLR2004  the case that has a closed form
        return _two(means, deviations, front, bound)
    return _many(means, deviations, front, bound, generator)


def _two(means: Numbers, deviations: Numbers, front: Numbers, bound: Numbers) -> Numbers:
    """Sum over the strips between the front's members, the first objective descending."""
    ordered = front[np.argsort(-front[:, 0])]
    lefts = [*ordered[:, 0].tolist(), float(bound[0])]
    floors = [float(bound[1]), *ordered[:, 1].tolist()]
    total = np.zeros(len(means))
    before = np.zeros(len(means))
    for left, floor in zip(lefts, floors, strict=True):
        now = expected_excess(means[:, 0], deviations[:, 0], left)
        total += (now - before) * expected_excess(means[:, 1], deviations[:, 1], floor)
        before = now
    return np.maximum(total, 0.0)


def _many(
    means: Numbers,
    deviations: Numbers,
    front: Numbers,
    bound: Numbers,
    generator: np.random.Generator,
) -> Numbers:
    """Average the chance of dominating over random points that nothing dominates yet."""
    top = np.maximum(front.max(axis=0), np.quantile(means + 2.0 * deviations, 0.98, axis=0))
    probes = bound + generator.random((PROBES * 8, len(bound))) * (top - bound)
    covered = np.any(np.all(front[None] >= probes[:, None], axis=2), axis=1)
    open_probes = probes[~covered][:PROBES]
    if not len(open_probes):
        return np.zeros(len(means))
    chance = np.ones((len(means), len(open_probes)))
    for column in range(means.shape[1]):
        gap = means[:, column, None] - open_probes[None, :, column]
        chance *= normal_cdf(gap / deviations[:, column, None])
    result: Numbers = chance.mean(axis=1)
    return result


def hypervolume(points: Numbers, bound: Numbers) -> float:
    """Area that two-objective points dominate above the bound.

    >>> hypervolume(np.array([[2.0, 1.0], [1.0, 2.0]]), np.zeros(2))
    3.0
    """
    inside = points[np.all(points > bound, axis=1)]
    area, floor = 0.0, float(bound[1])
    for first, second in inside[np.argsort(-inside[:, 0])].tolist():
        if second > floor:
            area += (first - float(bound[0])) * (second - floor)
            floor = second
    return area
