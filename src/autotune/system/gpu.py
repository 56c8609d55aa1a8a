"""What the GPUs say of themselves, through NVML. Every reading may be missing.

On GB10 the memory readings and the power limits are not supported; without a driver there is no
GPU at all. Neither is an error.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pynvml


@contextlib.contextmanager
def _nvml() -> Iterator[bool]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def gpu_names() -> tuple[str, ...]:
    with _nvml() as available:
        if not available:
            return ()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return tuple(_text(pynvml.nvmlDeviceGetName(handle)) for handle in handles)


def driver_version() -> str | None:
    with _nvml() as available:
        if not available:
            return None
        with contextlib.suppress(pynvml.NVMLError):
            return _text(pynvml.nvmlSystemGetDriverVersion())
        return None


class GpuTelemetry:
    """Temperature (°C), power (W) and SM clock (MHz) of the first GPU; None where it says N/A."""

    def read(self) -> Mapping[str, float | None]:
        readings: dict[str, float | None] = {"temperature_c": None, "power_w": None, "sm_mhz": None}
        with _nvml() as available:
            if not available:
                return readings
            with contextlib.suppress(pynvml.NVMLError):
                handle = pynvml.nvmlDeviceGetHandleByIndex(0)
                for name, ask in _READINGS.items():
                    with contextlib.suppress(pynvml.NVMLError):
                        readings[name] = float(ask(handle))
        return readings


_READINGS: Mapping[str, Callable[[Any], float]] = {
    "temperature_c": lambda handle: pynvml.nvmlDeviceGetTemperature(
        handle, pynvml.NVML_TEMPERATURE_GPU
    ),
    "power_w": lambda handle: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    "sm_mhz": lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
}
