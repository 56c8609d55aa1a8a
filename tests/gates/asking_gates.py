"""Runs a gate against a replay server."""

import asyncio
from collections.abc import Callable

from autotune.model.outcome import Reference, Verdict
from autotune.protocols import Gate
from autotune.system.openai_client import connect
from tests.fakes.replay_server import Asked, Recorded, ReplayServer


def check(
    gate: Gate,
    answer: Callable[[Asked], Recorded] | Recorded,
    *,
    moment: str = "warm",
    timeout_s: float = 20.0,
    reference: Reference | None = None,
) -> Verdict:
    with ReplayServer(answer) as replay:
        return check_at(gate, replay, moment=moment, timeout_s=timeout_s, reference=reference)


def check_at(
    gate: Gate,
    replay: ReplayServer,
    *,
    moment: str = "warm",
    timeout_s: float = 20.0,
    reference: Reference | None = None,
) -> Verdict:
    async def once() -> Verdict:
        async with connect(replay.running(), timeout_s=timeout_s) as client:
            return await gate.check(client, moment=moment, reference=reference)

    return asyncio.run(once())


def reasons(verdict: Verdict) -> set[str]:
    return {case.reason for case in verdict.cases if case.verdict != "pass"}
