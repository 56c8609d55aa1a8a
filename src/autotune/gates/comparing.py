"""Holds a score against the baseline's: is it worse by more than luck explains.

A model that gets 14 of 16 calls right on the baseline may get 13 right on the same server tomorrow.
The test is exact for samples of any size: no normal approximation is used for a probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, binom

from autotune.model.outcome import CaseResult

SIGNIFICANT = 0.05
_NUISANCE_RISK = 0.001
"""Berger and Boos: the baseline's true rate is sought in its 99.9 % interval, at this price."""
_GRID = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Questions that were judged, and how many passed."""

    passed: int
    judged: int

    @property
    def share(self) -> float:
        return self.passed / self.judged if self.judged else 0.0


def count(results: Sequence[CaseResult]) -> Count:
    judged = [result for result in results if result.verdict != "inconclusive"]
    return Count(passed=sum(result.verdict == "pass" for result in judged), judged=len(judged))


def p_worse(own: Count, baseline: Count, *, margin: float) -> float:
    """Probability of a result this bad if the true rate were the baseline's less the margin.

    Small means: worse by more than the margin. The rate of the baseline is not known either, so the
    probability is the largest over all rates that its own result leaves plausible.
    """
    if not own.judged or not baseline.judged:
        return 1.0
    worse = _at_least_as_bad(own, baseline, margin)
    low, high = _plausible(baseline)
    highest = 0.0
    for rate in np.linspace(low, high, _GRID):
        ours = binom.pmf(np.arange(own.judged + 1), own.judged, max(rate - margin, 0.0))
        theirs = binom.pmf(np.arange(baseline.judged + 1), baseline.judged, rate)
        highest = max(highest, float(ours @ worse @ theirs))
    return min(1.0, highest + _NUISANCE_RISK)


def _at_least_as_bad(own: Count, baseline: Count, margin: float) -> np.ndarray:
    """Mark every pair of counts that speaks as loudly against us as the one that was seen."""
    ours = np.arange(own.judged + 1)[:, None]
    theirs = np.arange(baseline.judged + 1)[None, :]
    loudness = _distance(ours, own.judged, theirs, baseline.judged, margin)
    seen = loudness[own.passed, baseline.passed]
    return np.asarray(loudness <= seen + 1e-12, dtype=float)


def _distance(
    ours: np.ndarray, own_judged: int, theirs: np.ndarray, judged: int, margin: float
) -> np.ndarray:
    """Difference in standard errors; half a success more on each side keeps them above zero."""
    own_rate, rate = (ours + 0.5) / (own_judged + 1), (theirs + 0.5) / (judged + 1)
    error = np.sqrt(own_rate * (1 - own_rate) / own_judged + rate * (1 - rate) / judged)
    difference = ours / own_judged - theirs / judged + margin
    return np.asarray(difference / error)


def _plausible(baseline: Count) -> tuple[float, float]:
    """Bound the baseline's rate, after Clopper and Pearson."""
    passed, failed = baseline.passed, baseline.judged - baseline.passed
    half = _NUISANCE_RISK / 2
    low = float(beta.ppf(half, passed, failed + 1)) if passed else 0.0
    high = float(beta.ppf(1 - half, passed + 1, failed)) if failed else 1.0
    return low, high
