"""The sizes of the noise."""

import math
import statistics

from autotune.simulator.noise import Noise
from autotune.simulator.switches import Switches


def run_speeds(switches, seeds=200):
    """Mean speed over the first minute of as many starts."""
    speeds = []
    for seed in range(seeds):
        noise = Noise(str(seed), switches)
        speeds.append(statistics.fmean(noise.speed(float(second)) for second in range(60)))
    return speeds


def test_without_noise_every_step_is_as_the_model_says():
    noise = Noise("1", Switches(noise=0))

    assert {noise.speed(float(second)) for second in range(500)} == {1.0}
    assert noise.acceptance_shift(5) == 0.0


def test_runs_differ_by_about_one_and_a_half_percent():
    spread = statistics.stdev(math.log(speed) for speed in run_speeds(Switches()))

    # 1.5 % of a run and 0.8 % of a start make 1.7 %.
    assert 0.014 < spread < 0.020


def test_outliers_are_slow_runs():
    slow = [speed for speed in run_speeds(Switches(outliers=0.5)) if speed < 0.95]

    assert 60 < len(slow) < 140


def test_heat_takes_its_share_and_idling_gives_it_back():
    noise = Noise("1", Switches(noise=0, heat=0.06))
    cold = noise.speed(0.0)
    hot = noise.speed(3600.0)
    noise.cool(3600.0, 7200.0)

    assert cold == 1.0
    assert 0.939 < hot < 0.943
    assert noise.speed(7200.0) > 0.999


def test_the_acceptance_of_a_text_is_the_same_every_time():
    noise = Noise("1", Switches())

    assert noise.acceptance_shift(5) == noise.acceptance_shift(5) != noise.acceptance_shift(6)
