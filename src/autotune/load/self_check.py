"""Watches the client while it loads a server: a client that lags measures itself.

Left out: how late the kernel hands a packet over. Nothing in user space can see that.
"""

import asyncio
import contextlib
import os
import struct
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np

from autotune.model.measurement import ClientCheck

_PERIOD_S = 0.01
_FEWEST_SAMPLES = 50
"""A single hiccup decides a p99 of fewer."""
_STAMP = struct.Struct("d")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Beyond these the client is taken for the bottleneck.

    lag_p99_ms: lateness of the event loop that always passes; lag_of_ttft: what passes as a share
    of TTFT, since a stamp that is late by little of what it measures changes no conclusion
    stamp_error_of_tpot: share of TPOT by which a stamp may be late at p99 before gaps between
    chunks mean nothing; errors below stamp_error_floor_ms are let pass
    cpu: share of one core
    """

    lag_p99_ms: float = 5.0
    lag_of_ttft: float = 0.05
    stamp_error_of_tpot: float = 0.05
    stamp_error_floor_ms: float = 1.0
    cpu: float = 0.6

    def broken_by(self, check: ClientCheck, *, ttft_ms: float | None) -> str | None:
        """Say which limit voids a whole pass. `ttft_ms` is in the client's own time."""
        if check.cpu is not None and check.cpu > self.cpu:
            return f"it used {check.cpu:.0%} of a core (limit {self.cpu:.0%})"
        limit = max(self.lag_p99_ms, self.lag_of_ttft * (ttft_ms or 0.0))
        if check.lag_p99_ms is not None and check.lag_p99_ms > limit:
            return (
                f"its event loop was {check.lag_p99_ms:.1f} ms late at p99 (limit {limit:.1f} ms)"
            )
        return None

    def blurred_by(self, check: ClientCheck, *, tpot_ms: float | None) -> str | None:
        """Say why single gaps between chunks cannot be told, though averages over an answer can."""
        if tpot_ms is None or check.stamp_error_p99_ms is None:
            return None
        limit = max(self.stamp_error_floor_ms, self.stamp_error_of_tpot * tpot_ms)
        if check.stamp_error_p99_ms <= limit:
            return None
        return (
            f"stamps were {check.stamp_error_p99_ms:.1f} ms late at p99 (limit {limit:.1f} ms,"
            f" {self.stamp_error_of_tpot:.0%} of TPOT)"
        )


NO_LIMITS = ClientLimits(
    stamp_error_floor_ms=float("inf"), lag_p99_ms=float("inf"), cpu=float("inf")
)
"""For passes whose numbers nobody uses."""


class LagProbe:
    """Measures, inside a block, how late the running event loop sees what arrives.

    A thread writes into a pipe at fixed times and the loop reads it, as it reads a stream. Timers
    of the loop itself would not do: asyncio and libuv round them up to whole milliseconds. The
    lateness counts from when the write was due, so waiting for the interpreter lock counts too.
    """

    def __init__(self) -> None:
        self.lags_s: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="lag-probe", daemon=True)

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._loop.add_reader(self._reader, self._note)
        self._began = (time.monotonic(), time.process_time())
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        wall, busy = self._began
        elapsed = time.monotonic() - wall
        self._cpu = (time.process_time() - busy) / elapsed if elapsed > 0 else None
        self._stop.set()
        self._thread.join()
        self._loop.remove_reader(self._reader)
        os.close(self._reader)
        os.close(self._writer)

    def result(self) -> ClientCheck:
        """Sum the block up. A stamp is late by what the loop is late; few samples say nothing."""
        if len(self.lags_s) < _FEWEST_SAMPLES:
            return ClientCheck(cpu=self._cpu)
        late_ms = float(np.percentile(self.lags_s, 99)) * 1e3
        return ClientCheck(stamp_error_p99_ms=late_ms, lag_p99_ms=late_ms, cpu=self._cpu)

    def _write(self) -> None:
        due = time.monotonic() + _PERIOD_S
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            # A full pipe means that the loop has not read for seconds: its lag is on record.
            with contextlib.suppress(BlockingIOError):
                os.write(self._writer, _STAMP.pack(due))
            due = max(due + _PERIOD_S, time.monotonic())

    def _note(self) -> None:
        data = os.read(self._reader, 4096)
        now = time.monotonic()
        self.lags_s.extend(now - due for (due,) in _STAMP.iter_unpack(data))
