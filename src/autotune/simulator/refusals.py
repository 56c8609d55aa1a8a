"""Why a server does not start, in vLLM's words."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The last line of a traceback, and whose it is.

    process: `api` fails before the engine exists; `engine` adds the API server's consequence lines
    exception: the class as the traceback prints it
    """

    process: Literal["api", "engine"]
    exception: str
    message: str

    @property
    def root_line(self) -> str:
        return f"{self.exception}: {self.message}"


class RefusedError(Exception):
    """vLLM would not start with these settings."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.root_line)
        self.refusal = refusal


def api_value_error(message: str) -> RefusedError:
    return RefusedError(Refusal(process="api", exception="ValueError", message=message))


def engine_value_error(message: str) -> RefusedError:
    return RefusedError(Refusal(process="engine", exception="ValueError", message=message))


def validation_error(config: str, reason: str, *, field: str | None = None) -> RefusedError:
    """Word a pydantic error: the reason stands on the lines below the exception."""
    inner = f"{field}\n  {reason}" if field else f"  Value error, {reason}"
    return RefusedError(
        Refusal(
            process="api",
            exception="pydantic_core._pydantic_core.ValidationError",
            message=f"1 validation error for {config}\n{inner}",
        )
    )


def out_of_memory(*, wanted_gib: float, total_gib: float, free_gib: float) -> RefusedError:
    used_gib = max(0.0, total_gib - free_gib)
    return RefusedError(
        Refusal(
            process="engine",
            exception="torch.OutOfMemoryError",
            message=(
                f"CUDA out of memory. Tried to allocate {wanted_gib:.2f} GiB. GPU 0 has a total "
                f"capacity of {total_gib:.2f} GiB of which {max(free_gib, 0.0):.2f} GiB is free. "
                f"Including non-PyTorch memory, this process has {used_gib:.2f} GiB memory in use. "
                f"Of the allocated memory {used_gib * 0.97:.2f} GiB is allocated by PyTorch, and "
                f"{used_gib * 0.01:.2f} GiB is reserved by PyTorch but unallocated. If reserved but "
                "unallocated memory is large try setting "
                "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
            ),
        )
    )
