"""Runs the scheduler against real time: virtual seconds pass `time_scale` times as fast.

A step ends when real time has caught up with its virtual end. When the process is late it does not
sleep, so throughput stays true as long as the CPU keeps up. While steps are overdue their output is
collected and written once.
"""

import asyncio
import time
from collections.abc import Callable

from autotune.simulator.noise import Noise
from autotune.simulator.scheduler import Scheduler, Work
from autotune.simulator.switches import Condition

# How long overdue steps may run before sockets are looked at again.
_BURST_S = 0.002


class EngineDeadError(Exception):
    """The engine is gone; the message is vLLM's."""

    def __init__(self) -> None:
        super().__init__(
            "EngineCore encountered an issue. See stack trace (above) for the root cause."
        )


class VirtualClock:
    """Virtual seconds since the process started; the start-up counts with its own length."""

    def __init__(self, *, startup_s: float, time_scale: float) -> None:
        self.startup_s = startup_s
        self.time_scale = time_scale
        self._began = time.perf_counter()

    def now(self) -> float:
        return self.startup_s + (time.perf_counter() - self._began) * self.time_scale

    def real_seconds_until(self, clock_s: float) -> float:
        return (clock_s - self.now()) / self.time_scale


class Engine:
    """One engine core."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        clock: VirtualClock,
        noise: Noise,
        dies_at: Condition | None,
        hangs_at: Condition | None,
        on_tick: Callable[[float], None] = lambda _: None,
        on_jit: Callable[[], None] = lambda: None,
    ) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.dead = asyncio.Event()
        self._noise = noise
        self.flush: Callable[[], None] = _nothing
        self._dies_at = dies_at
        self._hangs_at = hangs_at
        self._on_tick = on_tick
        self._on_jit = on_jit
        self._wake = asyncio.Event()
        self._requests = 0
        self._hanging = False
        self._step_end_s = 0.0

    def now(self) -> float:
        """Virtual time as the engine sees it: never ahead of the step that runs."""
        now = self.clock.now()
        return min(now, self._step_end_s) if self.scheduler.busy and self._step_end_s else now

    def count_request(self) -> None:
        """Count a generation request, which may be the one that ends the engine.

        Raises:
            EngineDeadError: The engine is gone.
        """
        if self.dead.is_set():
            raise EngineDeadError
        self._requests += 1
        if self._hangs_at and self._requests >= self._hangs_at.request > 0:
            self._hanging = True
        if self._dies_at and self._requests >= self._dies_at.request > 0:
            self.dead.set()
            self._wake.set()

    def add(self, work: Work) -> None:
        self.scheduler.add(work)
        self._wake.set()

    def abort(self, work: Work) -> None:
        self.scheduler.abort(work)

    async def run(self) -> None:
        """Serve until the engine dies."""
        idle_since = self.clock.now()
        while not self.dead.is_set():
            if self._hanging or not self.scheduler.busy:
                self.flush()
                self._wake.clear()
                await self._wake.wait()
                now = self.clock.now()
                self._noise.cool(now - idle_since, now)
                continue
            await self._serve_batch()
            idle_since = self.clock.now()
        self.flush()

    async def _serve_batch(self) -> None:
        """Run steps until there is nothing left to do."""
        scheduler = self.scheduler
        # The first step begins when its request came, not when this task was woken: at 60 virtual
        # seconds a second the way through the event loop would count as queueing.
        now = scheduler.waiting[0].arrived_s if scheduler.waiting else self.clock.now()
        burst = time.perf_counter()
        while scheduler.busy and not self._hanging and not self.dead.is_set():
            step = scheduler.begin(now)
            if step is None:
                # Nothing fits and nothing runs: wait for an abort.
                await asyncio.sleep(0.01)
                now = self.clock.now()
                continue
            now += step.seconds
            self._step_end_s = now
            if scheduler.jit_happened:
                self._on_jit()
            if self.clock.real_seconds_until(now) > 0:
                self.flush()
                await self._wait_until(now)
                burst = time.perf_counter()
            elif time.perf_counter() - burst > _BURST_S:
                self.flush()
                await asyncio.sleep(0)
                burst = time.perf_counter()
            if self.dead.is_set():
                return
            scheduler.finish(step, now)
            self._on_tick(now)
        self._step_end_s = 0.0

    async def _wait_until(self, clock_s: float) -> None:
        while not self.dead.is_set():
            remaining = self.clock.real_seconds_until(clock_s)
            if remaining <= 0:
                return
            await asyncio.sleep(remaining)


def _nothing() -> None:
    """Stand in until there is somebody to write to."""
