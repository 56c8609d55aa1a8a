"""A load that nobody measures: it runs while something else looks at the server.

Left out: stamps that matter. A request that breaks ends its slot; whoever looks at the server will
see for himself.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence

import aiohttp

from autotune.load.driver import Patience
from autotune.load.streaming import Recording, ServerGoneError, stream_completion

_LOOK_S = 0.003


@contextlib.asynccontextmanager
async def pressure(
    session: aiohttp.ClientSession,
    bodies: Sequence[bytes],
    *,
    concurrency: int,
    patience: Patience,
) -> AsyncIterator[None]:
    """Run so many requests at a time, over and over, until the block ends.

    The block begins when all slots have a first token, or when one of them has been waiting for as
    long as a pass may stall: with fewer sequences than slots, some wait in the queue.
    """
    first: list[Recording] = []
    endless = itertools.cycle(bodies)
    slots = [asyncio.create_task(_slot(session, endless, first)) for _ in range(concurrency)]
    try:
        await _wait_for_tokens(first, slots, patience.stall_s)
        yield
    finally:
        for slot in slots:
            slot.cancel()
        await asyncio.gather(*slots, return_exceptions=True)


async def _slot(
    session: aiohttp.ClientSession, bodies: Iterator[bytes], first: list[Recording]
) -> None:
    recording = Recording(body=next(bodies))
    first.append(recording)
    with contextlib.suppress(ServerGoneError):
        while True:
            await stream_completion(session, recording)
            recording = Recording(body=next(bodies))


async def _wait_for_tokens(
    first: Sequence[Recording], slots: Sequence[asyncio.Task[None]], longest_s: float
) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(longest_s):
            while not _is_on(first, slots):  # noqa: ASYNC110 - the answer comes from a recording
                await asyncio.sleep(_LOOK_S)


def _is_on(first: Sequence[Recording], slots: Sequence[asyncio.Task[None]]) -> bool:
    """Tell whether the load is on: somebody is served, and all others are sent."""
    sent = [recording for recording in first if recording.scheduled_s is not None]
    started = any(recording.stamps for recording in sent)
    return (started and len(sent) == len(slots)) or all(slot.done() for slot in slots)
