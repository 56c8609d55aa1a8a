import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.load.steady import steady_window


def in_step(concurrency, rounds, *, prefill, decode):
    """Hand-outs and first tokens of slots that march in step."""
    length = prefill + decode
    hand_outs = [number * length for number in range(rounds) for _ in range(concurrency)]
    return hand_outs, [at + prefill for at in hand_outs], rounds * length


@given(
    concurrency=st.integers(1, 9),
    rounds=st.integers(3, 12),
    prefill=st.floats(0.01, 5.0),
    decode=st.floats(0.1, 5.0),
)
def test_slots_in_step_are_measured_in_whole_rounds(concurrency, rounds, prefill, decode):
    hand_outs, firsts, end = in_step(concurrency, rounds, prefill=prefill, decode=decode)
    window = steady_window(
        hand_outs, concurrency=concurrency, first_tokens=firsts, sent=0.0, end=end
    )
    whole = window.length / (prefill + decode)
    assert window.kind == "steady"
    assert whole == pytest.approx(round(whole))
    assert whole >= 1


def test_ramp_and_drain_are_left_out():
    hand_outs, firsts, end = in_step(4, 8, prefill=1, decode=9)
    window = steady_window(hand_outs, concurrency=4, first_tokens=firsts, sent=0.0, end=end)
    assert (window.start, window.end, window.warning) == (10, 70, None)


def test_the_window_waits_until_every_slot_has_its_first_token():
    hand_outs = [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    window = steady_window(
        hand_outs, concurrency=2, first_tokens=[0.1, 3.5, *hand_outs[2:]], sent=0.0, end=11
    )
    assert window.start == 4


def test_two_requests_a_slot_keep_the_ramp_and_say_so():
    hand_outs, firsts, end = in_step(4, 2, prefill=1, decode=9)
    window = steady_window(hand_outs, concurrency=4, first_tokens=firsts, sent=0.0, end=end)
    assert (window.kind, window.length) == ("with_ramp", 10)
    assert window.warning is not None


def test_fewer_are_measured_over_the_whole_run():
    hand_outs = [0.0, 0.0, 0.0, 2.0]
    window = steady_window(hand_outs, concurrency=3, first_tokens=[1, 1, 1, 3], sent=0.1, end=5.0)
    assert (window.kind, window.start, window.end) == ("whole_run", 0.1, 5.0)
