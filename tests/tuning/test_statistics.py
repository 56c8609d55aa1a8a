import math
import random

import pytest

from autotune.model.diagnosis import ServerFacts
from autotune.model.measurement import LevelRun, Measurement
from autotune.model.outcome import Measured, Trial
from autotune.tuning.statistics import judge, levels, nondominated_probability
from tests.fakes.bench import make_space

OBJECTIVES = make_space().objectives


def trial(number, tok_s, ttft):
    runs = tuple(
        LevelRun(
            workload="agent",
            concurrency=8,
            repeat=repeat,
            requests=(),
            metrics={"output_tok_s": speed, "ttft_ms.p50": wait},
            window_s=1.0,
        )
        for repeat, (speed, wait) in enumerate(zip(tok_s, ttft, strict=True))
    )
    return Trial(
        number=number,
        values={},
        outcome=Measured(measurement=Measurement(startup_s=1.0, runs=runs), facts=ServerFacts()),
    )


def test_the_interval_of_a_mean_covers_the_truth_about_as_often_as_it_claims():
    generator = random.Random(1)
    covered = 0
    for _ in range(400):
        samples = [[math.exp(generator.gauss(0.0, 0.02)) for _ in range(3)] for _ in range(8)]
        estimates = [level.estimate() for level in levels(samples, 0.015)]
        covered += sum((e.low or 0.0) <= 1.0 <= (e.high or 0.0) for e in estimates)

    assert 0.93 <= covered / 3200 <= 0.975


def test_a_single_run_has_no_interval():
    (level,) = levels([[100.0]], 0.015)

    assert level.estimate().mean == pytest.approx(100.0)
    assert level.estimate().low is None
    assert level.estimate().high is None


def test_one_quiet_configuration_borrows_the_noise_of_the_others():
    quiet, *_ = levels([[100.0, 100.0, 100.0], [90.0, 100.0, 110.0], [95.0, 100.0, 106.0]], 0.015)

    assert quiet.error > 0.01


def test_three_classes_tell_what_is_on_the_front_within_its_noise_and_beaten():
    members = judge(
        [
            trial(0, [100, 101, 99], [50, 50, 50]),
            trial(1, [200, 201, 199], [90, 91, 89]),
            trial(2, [60, 61, 59], [80, 81, 79]),
            trial(3, [199, 200, 201], [90, 90, 91]),
        ],
        OBJECTIVES,
    )

    standing = {member.trial.number: member.standing for member in members}
    assert standing[0] == "front"
    assert standing[2] == "dominated"
    assert {standing[1], standing[3]} <= {"front", "possible"}
    assert [member.standing for member in members] == sorted(
        (member.standing for member in members), key=["front", "possible", "dominated"].index
    )


def test_there_is_always_a_front_even_where_everything_is_within_the_noise():
    members = judge([trial(n, [100, 103, 97], [50, 53, 47]) for n in range(5)], OBJECTIVES)

    assert any(member.standing == "front" for member in members)


def test_a_trial_that_does_not_know_an_objective_is_left_out():
    unknown = trial(1, [None], [50.0])

    assert [m.trial.number for m in judge([trial(0, [1.0], [1.0]), unknown], OBJECTIVES)] == [0]
    assert judge([unknown], OBJECTIVES) == ()


def test_what_is_far_behind_has_no_chance_and_does_not_disturb_the_others():
    def columns(extra):
        return [
            levels([[100, 101], [150, 151], *extra], 0.015),
            levels([[50, 51], [60, 61], *extra], 0.06),
        ]

    with_laggard = nondominated_probability(columns([[1e-3, 1e-3]]), [1, -1])
    speed = levels([[100, 101], [150, 151], [1, 1]], 0.015)
    wait = levels([[50, 51], [60, 61], [9000, 9000]], 0.06)

    assert nondominated_probability([speed, wait], [1, -1])[2] == 0.0
    assert len(with_laggard) == 3


def test_an_objective_that_is_zero_somewhere_is_still_judged():
    members = judge([trial(0, [0.0, 0.0], [50, 51]), trial(1, [3.0, 3.0], [50, 51])], OBJECTIVES)

    estimates = {member.trial.number: member.estimates["output_tok_s"] for member in members}
    assert estimates[0].mean == 0.0
    assert estimates[1].mean == 3.0
    assert (estimates[1].low or 0.0) <= 3.0 <= (estimates[1].high or 0.0)


def test_the_shortcut_for_two_objectives_counts_as_the_general_rule_does():
    import numpy as np

    from autotune.tuning.statistics import _dominated, _survival

    draws = np.random.default_rng(3).normal(size=(200, 7, 2))

    general = [float((~_dominated(draws, row)).mean()) for row in range(7)]

    assert _survival(draws) == pytest.approx(general)
