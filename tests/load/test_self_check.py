import asyncio
import time

import pytest

from autotune.load.self_check import NO_LIMITS, ClientLimits, LagProbe
from autotune.model.measurement import ClientCheck


@pytest.mark.parametrize(
    ("check", "ttft_ms", "reason"),
    [
        (ClientCheck(cpu=0.61), 20.0, "of a core"),
        (ClientCheck(lag_p99_ms=5.1), 20.0, "event loop"),
        (ClientCheck(lag_p99_ms=5.1), None, "event loop"),
        (ClientCheck(lag_p99_ms=14.0), 400.0, None),
        (ClientCheck(lag_p99_ms=25.0), 400.0, "limit 20.0 ms"),
        (ClientCheck(), 20.0, None),
    ],
)
def test_a_client_beyond_its_limits_is_the_bottleneck(check, ttft_ms, reason):
    found = ClientLimits().broken_by(check, ttft_ms=ttft_ms)
    assert (found is None) if reason is None else (found is not None and reason in found)
    assert NO_LIMITS.broken_by(check, ttft_ms=ttft_ms) is None


@pytest.mark.parametrize(
    ("check", "tpot_ms", "reason"),
    [
        (ClientCheck(stamp_error_p99_ms=2.1), 40.0, "5% of TPOT"),
        (ClientCheck(stamp_error_p99_ms=1.9), 40.0, None),
        (ClientCheck(stamp_error_p99_ms=0.9), 5.0, None),
        (ClientCheck(stamp_error_p99_ms=3.0), None, None),
        (ClientCheck(), 20.0, None),
    ],
)
def test_late_stamps_blur_the_gaps_between_chunks(check, tpot_ms, reason):
    found = ClientLimits().blurred_by(check, tpot_ms=tpot_ms)
    assert (found is None) if reason is None else (found is not None and reason in found)
    assert NO_LIMITS.blurred_by(check, tpot_ms=tpot_ms) is None


def test_a_loop_that_is_held_up_is_seen_to_lag():
    async def hold_up():
        with LagProbe() as probe:
            for _ in range(12):
                time.sleep(0.05)  # noqa: ASYNC251 - holding the loop up is the point
                await asyncio.sleep(0.01)
        return probe.result()

    check = asyncio.run(hold_up())
    assert check.lag_p99_ms is not None
    assert check.lag_p99_ms > 20


def test_a_few_samples_say_nothing_about_a_percentile():
    async def look_briefly():
        with LagProbe() as probe:
            await asyncio.sleep(0.01)
        return probe.result()

    check = asyncio.run(look_briefly())
    assert check.lag_p99_ms is None
    assert check.cpu is not None
