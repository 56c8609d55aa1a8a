import math

import numpy as np
import pytest

from autotune.tuning.search.improvement import (
    expected_improvement,
    hypervolume,
    non_dominated,
    normal_cdf,
)


def test_the_normal_distribution_is_right_far_out_in_the_tail():
    points = np.linspace(-8, 8, 401)
    exact = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in points])

    assert np.allclose(normal_cdf(points), exact, rtol=5e-7)


def test_two_objectives_agree_with_monte_carlo():
    generator = np.random.default_rng(0)
    points = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 0.5], [0.5, 0.7]])
    bound = np.array([0.0, 0.0])
    means = np.array([[2.5, 2.5], [1.0, 1.0], [3.5, 0.2]])
    deviations = np.array([[0.5, 0.8], [0.6, 0.6], [0.4, 0.3]])

    exact = expected_improvement(means, deviations, points, bound, generator)

    before = hypervolume(points, bound)
    for place in range(3):
        draws = generator.normal(means[place], deviations[place], (20_000, 2))
        gains = [hypervolume(np.vstack([points, draw]), bound) - before for draw in draws[:4000]]
        error = float(np.std(gains)) / math.sqrt(len(gains))
        assert exact[place] == pytest.approx(np.mean(gains), abs=4 * error + 1e-4)


def test_three_objectives_rank_like_two_where_the_third_is_settled():
    generator = np.random.default_rng(0)
    points = np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 0.5]])
    means = np.array([[2.5, 2.5], [1.0, 1.0], [3.2, 0.6]])
    deviations = np.full((3, 2), 0.2)
    two = expected_improvement(means, deviations, points, np.zeros(2), generator)

    three = expected_improvement(
        np.column_stack([means, np.ones(3)]),
        np.column_stack([deviations, np.full(3, 1e-3)]),
        np.column_stack([points, np.ones(3)]),
        np.zeros(3),
        generator,
    )

    assert np.argsort(three).tolist() == np.argsort(two).tolist()


def test_of_equal_points_one_stays_on_the_front():
    points = np.array([[1.0, 1.0], [1.0, 1.0], [0.5, 2.0], [0.4, 1.0]])

    assert non_dominated(points).tolist() == [True, False, True, False]
