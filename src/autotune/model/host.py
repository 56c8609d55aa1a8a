"""Where a study was measured. Numbers of different hosts must not share a study."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """Facts that decide whether two numbers may be compared, and some that only explain them."""

    hostname: str
    machine: str
    cpu_count: int
    memory_gib: float
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    kernel: str | None = None
    boot_id: str | None = None
    autotune: str | None = None

    def comparable(self) -> dict[str, object]:
        """Name the facts that must not change within a study."""
        return {
            "machine": self.machine,
            "cpu_count": self.cpu_count,
            "memory_gib": round(self.memory_gib),
            "gpus": list(self.gpus),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server that answers, and where.

    base_url: without a path, on loopback; served_model: the name that it must be asked by
    startup_s: from launch to the first answered request, in the server's own time
    time_scale: seconds of the server's time in one second of ours (1 for a real one)
    exit_code: asks whether it is still there: None while its process runs
    """

    base_url: str
    served_model: str
    log: str
    startup_s: float
    api_key: str | None = field(default=None, repr=False)
    time_scale: float = 1.0
    version: str | None = None
    max_model_len: int | None = None
    exit_code: Callable[[], int | None] = field(default=lambda: None, repr=False, compare=False)
