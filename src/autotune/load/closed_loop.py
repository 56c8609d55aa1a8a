"""A closed loop: so many users, each of whom sends the next request when the last was answered.

The same prompts in the same order for every configuration, exact lengths both ways, greedy. What
a closed loop cannot show is how long a queue grows when requests come at their own rate.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import aiohttp

from autotune.errors import MeasurementError
from autotune.load.driver import Drive, Patience, drive
from autotune.load.engine import UsageWatch, fetch_counters
from autotune.load.plan import Plan
from autotune.load.pressure import pressure
from autotune.load.prompts import Corpus, PromptKey, tokenize_corpus
from autotune.load.report import Outside, level_run
from autotune.load.self_check import NO_LIMITS, ClientLimits
from autotune.load.streaming import (
    Recording,
    ServerGoneError,
    open_connections,
    open_session,
)
from autotune.model.host import RunningServer
from autotune.model.measurement import LevelRun
from autotune.model.presets import default_requests
from autotune.model.search_space import WorkloadSpec

WARM_UP_OUTPUT_TOKENS = 64
PRESSED_ROUNDS = 2
"""Requests of a slot until it begins again; new prompts would make the prefill as heavy as ever."""
SHORTEST_STALL_S = 20.0
SHORTEST_DEADLINE_S = 60.0
"""Floors on the wall: a server may run faster than the clock, but our own client does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """A workload at fixed concurrency.

    warm_up_rounds: requests a slot sends before anything counts, at the busiest level
    stall_s: server seconds without a token after which a pass is given up
    deadline_s: server seconds that a pass may take in all; by default ten times what a slow host
        would need
    """

    spec: WorkloadSpec
    warm_up_rounds: int = 1
    stall_s: float = 120.0
    deadline_s: float | None = None
    limits: ClientLimits = field(default_factory=ClientLimits)
    _corpora: dict[RunningServer, Corpus] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def levels(self) -> tuple[int, ...]:
        return self.spec.concurrency

    async def warm_up(self, server: RunningServer) -> Sequence[LevelRun]:
        """Fill every slot of the busiest level with short answers.

        Raises:
            MeasurementError: The server does not serve the load.
        """
        busiest = max(self.levels)
        plan = Plan(
            key=self._key("warm-up", busiest, 0),
            requests=busiest * self.warm_up_rounds,
            input_tokens=self.spec.input_tokens,
            output_tokens=min(self.spec.output_tokens, WARM_UP_OUTPUT_TOKENS),
        )
        # Compilation stalls a warm-up, and a client that lags behind one harms no number.
        run = await self._pass(server, plan, NO_LIMITS)
        if run.problem is not None:
            raise MeasurementError(
                f"warm-up of {self.name} at concurrency {busiest}: {run.problem}",
                family="hang" if run.problem.startswith("hang") else "unknown",
                hint=f"The server's log may say why: {server.log}",
            )
        return (run,)

    async def run(self, server: RunningServer, *, concurrency: int, repeat: int) -> LevelRun:
        """Load the server once at one level."""
        counts = dict(zip(self.spec.concurrency, self.spec.requests, strict=False))
        plan = Plan(
            key=self._key("run", concurrency, repeat),
            requests=counts.get(concurrency, default_requests(concurrency)),
            input_tokens=self.spec.input_tokens,
            output_tokens=self.spec.output_tokens,
        )
        return await self._pass(server, plan, self.limits)

    @contextlib.asynccontextmanager
    async def pressed(self, server: RunningServer) -> AsyncIterator[None]:
        """Keep the busiest level in flight for the length of a block; what is unfinished is dropped."""
        busiest = max(self.levels)
        plan = Plan(
            key=self._key("pressed", busiest, 0),
            requests=busiest * PRESSED_ROUNDS,
            input_tokens=self.spec.input_tokens,
            output_tokens=self.spec.output_tokens,
        )
        async with open_session(server) as session:
            corpus = await self._corpus(session, server)
            async with pressure(
                session,
                plan.bodies(corpus, server.served_model),
                concurrency=busiest,
                patience=self._patience(plan, server.time_scale),
            ):
                yield

    def _key(self, phase: str, concurrency: int, repeat: int) -> PromptKey:
        return PromptKey(
            seed=self.spec.seed,
            workload=self.name,
            phase=phase,
            concurrency=concurrency,
            repeat=repeat,
        )

    async def _pass(self, server: RunningServer, plan: Plan, limits: ClientLimits) -> LevelRun:
        concurrency = plan.key.concurrency
        async with open_session(server) as session:
            corpus = await self._corpus(session, server)
            recordings = [Recording(body=body) for body in plan.bodies(corpus, server.served_model)]
            usage = UsageWatch(session)
            try:
                await open_connections(session, min(concurrency, len(recordings)))
            except ServerGoneError as error:
                result = Drive(recordings, problem=str(error))
                before = after = None
            else:
                before = await fetch_counters(session)
                result = await drive(
                    session,
                    recordings,
                    concurrency=concurrency,
                    patience=self._patience(plan, server.time_scale),
                    poll=usage.look,
                )
                after = await fetch_counters(session)
        outside = Outside(
            before=before, after=after, kv_cache_usage=usage.highest(before, after), corpus=corpus
        )
        return level_run(result, plan, outside, server=server, limits=limits)

    async def _corpus(self, session: aiohttp.ClientSession, server: RunningServer) -> Corpus:
        """Tokenize once for every start of a server, and forget the server before."""
        corpus = self._corpora.get(server)
        if corpus is None:
            corpus = await tokenize_corpus(session, server)
            self._corpora.clear()
            self._corpora[server] = corpus
        return corpus

    def _patience(self, plan: Plan, time_scale: float) -> Patience:
        rounds = -(-plan.requests // plan.key.concurrency)
        # 200 prompt tokens and 2 answer tokens a second are slower than any host worth tuning.
        one_s = plan.input_tokens / 200 + plan.output_tokens / 2
        deadline_s = 600.0 + rounds * one_s if self.deadline_s is None else self.deadline_s
        return Patience(
            stall_s=max(self.stall_s / time_scale, min(self.stall_s, SHORTEST_STALL_S)),
            deadline_s=max(deadline_s / time_scale, min(deadline_s, SHORTEST_DEADLINE_S)),
        )


def closed_loop(spec: WorkloadSpec, *, limits: ClientLimits | None = None) -> ClosedLoop:
    """Build the workload that a search space asks for."""
    return ClosedLoop(spec=spec, limits=limits or ClientLimits())
