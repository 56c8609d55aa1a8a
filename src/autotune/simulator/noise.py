"""Seeded noise: what makes two measurements of one configuration differ.

Run noise and start effect have the sizes seen on a DGX Spark (1.5 % and 0.8 %, log-normal); the
time constants of the heat are assumed. All of it is a function of the seed and the virtual time.
"""

import math
import random

from autotune.simulator.switches import Switches

_RUN_SD = 0.015
_START_SD = 0.008
_STEP_SD = 0.02
_ACCEPTANCE_SD = 0.01
# A run of a minute or two sees one or two periods, so a run keeps most of the run noise.
_PERIOD_S = 90.0
_OUTLIER_LOSS = (0.05, 0.12)
_HEAT_S = 12 * 60.0
_COOL_S = 6 * 60.0


class Noise:
    """Speed of this start at a moment, relative to the model."""

    def __init__(self, seed: str, switches: Switches) -> None:
        self._seed = seed
        self._switches = switches
        self._random = random.Random(f"{seed}/steps")
        self._start = math.exp(
            random.Random(f"{seed}/start").gauss(0.0, _START_SD * switches.noise)
        )
        self._period = -1
        self._period_factor = 1.0
        self._heat = 0.0
        self._seen_s = 0.0
        self._step_sd = _STEP_SD * switches.noise

    def speed(self, clock_s: float) -> float:
        """Speed for the step that begins now; heat since the last call is taken as full load."""
        switches = self._switches
        speed = self._start * self._run(clock_s)
        if self._step_sd:
            speed *= 1.0 + self._random.gauss(0.0, self._step_sd)
        if switches.drift_per_hour:
            speed *= max(0.05, 1.0 + switches.drift_per_hour * clock_s / 3600)
        if switches.heat:
            speed *= 1.0 - switches.heat * self._heated(clock_s)
        return speed

    def acceptance_shift(self, content: int) -> float:
        """Points by which this content's acceptance differs; the same for the same content."""
        sd = _ACCEPTANCE_SD * self._switches.noise
        return random.Random(f"{content}/acceptance").gauss(0.0, sd) if sd else 0.0

    def cool(self, idle_s: float, clock_s: float) -> None:
        """Tell that nothing ran for a while."""
        self._heat *= math.exp(-idle_s / _COOL_S)
        self._seen_s = clock_s

    def _run(self, clock_s: float) -> float:
        period = int(clock_s / _PERIOD_S)
        if period != self._period:
            draw = random.Random(f"{self._seed}/{period}")
            factor = math.exp(draw.gauss(0.0, _RUN_SD * self._switches.noise))
            if draw.uniform(0.0, 1.0) < self._switches.outliers:
                factor *= 1.0 - draw.uniform(*_OUTLIER_LOSS)
            self._period, self._period_factor = period, factor
        return self._period_factor

    def _heated(self, clock_s: float) -> float:
        busy_s = max(0.0, clock_s - self._seen_s)
        self._seen_s = clock_s
        self._heat = 1.0 - (1.0 - self._heat) * math.exp(-busy_s / _HEAT_S)
        return self._heat
