"""Keeps a fixed number of requests in flight until all are answered, or until it is hopeless.

The first request that breaks ends the pass: its number is void anyway, and a dead server should
not cost the rest of the timeout.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

import aiohttp

from autotune.load.self_check import LagProbe
from autotune.load.streaming import Recording, ServerGoneError, stream_completion
from autotune.model.measurement import ClientCheck

_LOOK_S = 0.5
"""Seconds between two looks at the progress. The end of a pass does not wait for a look."""
_POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds on the wall until a pass is given up.

    stall_s: without a token from anyone; deadline_s: for the whole pass
    """

    stall_s: float
    deadline_s: float


@dataclass(slots=True)
class Drive:
    """What happened while the requests ran; `began` is a `time.monotonic()`."""

    recordings: Sequence[Recording]
    began: float = 0.0
    problem: str | None = None
    hung: bool = False
    client: ClientCheck = field(default_factory=ClientCheck)

    @property
    def sent(self) -> list[Recording]:
        return [recording for recording in self.recordings if recording.scheduled_s is not None]


async def drive(
    session: aiohttp.ClientSession,
    recordings: Sequence[Recording],
    *,
    concurrency: int,
    patience: Patience,
    poll: Callable[[], Awaitable[None]],
) -> Drive:
    """Run the requests in their order; `poll` is called now and then, gently, while they run."""
    result = Drive(recordings)
    halfway = asyncio.Event()
    queue = _hand_out(recordings, halfway)
    with LagProbe() as probe:
        result.began = time.monotonic()
        polling = asyncio.create_task(_poll(poll, halfway))
        slots = [
            asyncio.create_task(_slot(session, queue))
            for _ in range(min(concurrency, len(recordings)))
        ]
        try:
            await _watch(slots, result, patience)
        finally:
            await _cancel([*slots, polling])
    result.client = probe.result()
    return result


def _hand_out(recordings: Sequence[Recording], halfway: asyncio.Event) -> Iterator[Recording]:
    """Give the next request to whoever asks. All slots share this one iterator."""
    for number, recording in enumerate(recordings):
        if 2 * number >= len(recordings):
            halfway.set()
        yield recording


async def _slot(session: aiohttp.ClientSession, queue: Iterator[Recording]) -> None:
    for recording in queue:
        await stream_completion(session, recording)


async def _watch(slots: Sequence[asyncio.Task[None]], result: Drive, patience: Patience) -> None:
    """Wait for the slots, but not for ever."""
    pending = set(slots)
    look_s = min(_LOOK_S, patience.stall_s / 4, patience.deadline_s / 4)
    while pending:
        done, pending = await asyncio.wait(
            pending, timeout=look_s, return_when=asyncio.FIRST_EXCEPTION
        )
        result.problem = _failure(done) or (_impatience(result, patience) if pending else None)
        if result.problem is not None:
            return


def _failure(done: set[asyncio.Task[None]]) -> str | None:
    """Find the request that broke; what is no server's fault is raised here."""
    for task in done:
        try:
            task.result()
        except ServerGoneError as error:
            return str(error)
    return None


def _impatience(result: Drive, patience: Patience) -> str | None:
    now = time.monotonic()
    still_s = now - max((result.began, *map(_last_progress, result.sent)))
    if still_s > patience.stall_s:
        result.hung = True
        return f"hang: no tokens for {still_s:.0f} s while requests run"
    if now - result.began > patience.deadline_s:
        result.hung = True
        return f"not done after {patience.deadline_s:.0f} s"
    return None


def _last_progress(recording: Recording) -> float:
    """When an answer last grew; comments that keep a stream alive are no progress."""
    if recording.ended_s is not None:
        return recording.ended_s
    for at, read in zip(reversed(recording.stamps), reversed(recording.reads), strict=True):
        if b"data:" in read:
            return at
    return 0.0


async def _poll(poll: Callable[[], Awaitable[None]], halfway: asyncio.Event) -> None:
    """Call `poll` every second and, for passes shorter than that, once in their middle."""
    try:
        async with asyncio.timeout(_POLL_S):
            await halfway.wait()
    except TimeoutError:
        pass
    while True:
        await poll()
        await asyncio.sleep(_POLL_S)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
