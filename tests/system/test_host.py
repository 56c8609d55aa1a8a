import re

import pytest

from autotune.system.clock import SystemClock
from autotune.system.gpu import GpuTelemetry, gpu_names
from autotune.system.host import read_boot_id, read_host


def test_a_host_says_what_two_numbers_must_share_to_be_compared():
    host = read_host()

    assert host.hostname
    assert host.memory_gib > 0
    assert set(host.comparable()) == {"machine", "cpu_count", "memory_gib", "gpus"}


def test_a_boot_has_an_identity():
    identity = read_boot_id()

    assert identity is None or re.fullmatch(r"[0-9a-f-]{36}", identity)


def test_a_host_without_a_gpu_is_no_error():
    assert isinstance(gpu_names(), tuple)
    assert set(GpuTelemetry().read()) == {"temperature_c", "power_w", "sm_mhz"}


@pytest.mark.parametrize("time_of_day", ["00:00", "07:00", "23:59"])
def test_the_next_time_of_day_is_within_a_day(time_of_day):
    assert 0 < SystemClock().seconds_until(time_of_day) <= 25 * 3600
