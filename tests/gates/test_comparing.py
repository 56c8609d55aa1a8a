import pytest

from autotune.gates.comparing import SIGNIFICANT, Count, p_worse


@pytest.mark.parametrize(
    ("own", "baseline", "judged", "rejected"),
    [
        (16, 16, 16, False),
        (14, 16, 16, False),  # two of sixteen may be luck
        (10, 16, 16, True),
        (0, 16, 16, True),
        (0, 0, 16, False),
        (9, 10, 16, False),
        (44, 48, 48, False),  # 8 points less, within the margin
        (36, 48, 48, True),
        (0, 2, 2, False),  # two questions prove nothing
    ],
)
def test_only_what_luck_does_not_explain_is_worse(own, baseline, judged, rejected):
    probability = p_worse(
        Count(passed=own, judged=judged), Count(passed=baseline, judged=judged), margin=0.1
    )

    assert (probability < SIGNIFICANT) is rejected


def test_more_questions_see_more():
    few = p_worse(Count(passed=12, judged=16), Count(passed=16, judged=16), margin=0.1)
    many = p_worse(Count(passed=36, judged=48), Count(passed=48, judged=48), margin=0.1)

    assert many < few


def test_a_larger_margin_forgives_more():
    own, baseline = Count(passed=10, judged=16), Count(passed=16, judged=16)

    assert p_worse(own, baseline, margin=0.0) < p_worse(own, baseline, margin=0.2)


def test_without_questions_nothing_is_worse():
    assert p_worse(Count(passed=0, judged=0), Count(passed=5, judged=5), margin=0.1) == 1
