from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.space_file.grids import GridError, doubled, kind_of, logarithmic, stepped


def numbers(values):
    return [float(value) for value in values]


def test_steps_carry_no_rounding_noise():
    grid = stepped(Decimal("0.70"), Decimal("0.95"), Decimal("0.05"))

    assert numbers(grid) == [0.7, 0.75, 0.8, 0.85, 0.9, 0.95]


def test_a_high_end_between_two_steps_names_both():
    with pytest.raises(
        GridError, match=r"high 0\.96 is not on the grid; the nearest are 0\.95 and 1$"
    ):
        stepped(Decimal("0.70"), Decimal("0.96"), Decimal("0.05"))


def test_an_endless_grid_is_refused_before_it_is_made():
    with pytest.raises(GridError, match="has 1000000001 values, more than 1000"):
        stepped(Decimal(0), Decimal(10**9), Decimal(1))


def test_doubling_ends_at_high():
    assert numbers(doubled(Decimal(8), Decimal(64))) == [8, 16, 32, 64]


def test_doubling_past_high_names_the_nearest():
    with pytest.raises(
        GridError, match="high 100 is not reached by doubling; the nearest are 64 and 128"
    ):
        doubled(Decimal(8), Decimal(100))


def test_a_log_range_has_two_round_points_in_every_doubling():
    assert numbers(logarithmic(Decimal(256), Decimal(2048), whole=True)) == [
        256,
        384,
        512,
        768,
        1024,
        1536,
        2048,
    ]


def test_a_log_range_of_small_integers_has_no_doubles():
    assert numbers(logarithmic(Decimal(1), Decimal(8), whole=True)) == [1, 2, 3, 4, 6, 8]


def test_a_log_range_of_floats_keeps_its_ends():
    grid = numbers(logarithmic(Decimal("0.001"), Decimal("0.01"), whole=False))

    assert (grid[0], grid[-1], len(grid)) == (0.001, 0.01, 8)


@pytest.mark.parametrize("low", [Decimal(0), Decimal(-1)])
def test_ratios_need_a_positive_start(low):
    with pytest.raises(GridError, match="needs low above 0"):
        logarithmic(low, Decimal(8), whole=True)
    with pytest.raises(GridError, match="needs low above 0"):
        doubled(low, Decimal(8))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ((1, 2, 4, 8), "log"),
        ((1, 2, 4), "linear"),
        ((0, 1, 2, 16), "linear"),
        ((0.7, 0.8), "linear"),
        ((4, 2, 1), "categorical"),
        ((1, 1), "categorical"),
        ((False, True), "categorical"),
        ((1, None), "categorical"),
        (("a", "b"), "categorical"),
    ],
)
def test_numbers_in_order_have_distances_and_the_rest_does_not(values, kind):
    assert kind_of(values) == kind


@given(low=st.integers(1, 10_000), span=st.integers(1, 1_000_000))
def test_a_log_range_ascends_from_end_to_end(low, span):
    grid = logarithmic(Decimal(low), Decimal(low + span), whole=True)

    assert (grid[0], grid[-1]) == (low, low + span)
    assert grid == sorted(set(grid))
