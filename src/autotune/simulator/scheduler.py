"""The engine's scheduler in virtual time: continuous batching, chunked prefill, KV blocks, drafts.

Pure: no clock, no sockets, no asyncio. `begin` plans a step and says how long it takes, `finish`
hands out its tokens. Follows vLLM's V1 scheduler: running sequences first, then the waiting ones in
order while sequences, tokens and blocks last; the youngest is preempted and recomputed when blocks
run out.
"""

import random
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autotune.simulator.memory import MemoryPlan
from autotune.simulator.noise import Noise
from autotune.simulator.performance import (
    PrefillChunk,
    StepLoad,
    StepModel,
    conditional_acceptance,
    extended_acceptance,
)
from autotune.simulator.settings import SchedulerLimits
from autotune.simulator.speculation import Speculation
from autotune.simulator.switches import JitSpike


class Sink(Protocol):
    """Receives what a sequence produces."""

    def tokens(self, work: "Work", clock_s: float) -> None:
        """Take what the work has produced since the last call."""

    def finished(self, work: "Work", clock_s: float) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """One sequence on its way through the engine; times are virtual seconds."""

    prompt_tokens: int
    output_tokens: int
    content: int
    block_keys: Sequence[Hashable]
    sink: Sink
    arrived_s: float
    scheduled_s: float = 0.0
    first_token_s: float = 0.0
    last_token_s: float = 0.0
    cached_tokens: int = 0
    computed: int = 0
    target: int = 0
    produced: int = 0
    blocks: int = 0
    preemptions: int = 0
    drafts: int = 0
    accepted: int = 0
    ended: bool = False
    chances: tuple[float, ...] = ()
    luck: random.Random = field(default_factory=random.Random)

    @property
    def prefilling(self) -> bool:
        return self.computed < self.target

    @property
    def context(self) -> int:
        return self.prompt_tokens + self.produced


@dataclass(slots=True, kw_only=True)
class Step:
    """A planned step: who decodes, who prefills how much, and for how long."""

    seconds: float
    draft_tokens: int
    decodes: list[Work]
    prefills: list[tuple[Work, int]]


@dataclass(slots=True)
class Counts:
    """What the engine has done since it started."""

    steps: int = 0
    preemptions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_by_position: list[int] = field(default_factory=list)
    prefix_queries: int = 0


class Scheduler:
    """Decides what each step does."""

    def __init__(
        self,
        *,
        limits: SchedulerLimits,
        memory: MemoryPlan,
        speculation: Speculation | None,
        model: StepModel,
        noise: Noise,
        prefix_caching: bool,
        jit_spike: JitSpike,
    ) -> None:
        self._limits = limits
        self._block_size = memory.block_size
        self._all_blocks = memory.blocks
        self._free_blocks = memory.blocks
        self._speculation = speculation
        self._model = model
        self._noise = noise
        self._cache: OrderedDict[Hashable, None] | None = OrderedDict() if prefix_caching else None
        self._jit_left = jit_spike.requests if jit_spike.seconds else 0
        self._jit_s = jit_spike.seconds
        self.on_step: Callable[[int], None] = _ignore
        self.waiting: deque[Work] = deque()
        self.running: list[Work] = []
        self.counts = Counts()
        self.jit_happened = False

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    @property
    def kv_usage(self) -> float:
        return 1.0 - self._free_blocks / self._all_blocks if self._all_blocks else 0.0

    def add(self, work: Work) -> None:
        work.target = work.prompt_tokens
        if self._speculation is not None:
            shift = self._noise.acceptance_shift(work.content)
            survival = extended_acceptance(
                self._speculation.acceptance, self._most_draft_tokens(self._speculation)
            )
            chances = conditional_acceptance(survival)
            work.chances = tuple(min(1.0, max(0.0, chance + shift)) for chance in chances)
            work.luck = random.Random(work.content)
        self.waiting.append(work)

    def abort(self, work: Work) -> None:
        """Forget a sequence whose client is gone."""
        if work.ended:
            return
        work.ended = True
        if work in self.running:
            self.running.remove(work)
            self._release(work)
        elif work in self.waiting:
            self.waiting.remove(work)

    def forget_prefixes(self) -> None:
        if self._cache is not None:
            self._cache.clear()

    @staticmethod
    def _most_draft_tokens(speculation: Speculation) -> int:
        return max([speculation.draft_tokens, *(tokens for _, _, tokens in speculation.by_batch)])

    # Planning

    def begin(self, clock_s: float) -> Step | None:
        """Plan the step that starts now; None when no sequence can do anything."""
        limits = self._limits
        speculation = self._speculation
        draft_tokens = speculation.tokens_for(len(self.running)) if speculation else 0
        budget = limits.max_num_batched_tokens
        decodes: list[Work] = []
        prefills: list[tuple[Work, int]] = []
        may_prefill = (
            limits.prefill_interval == 1 or self.counts.steps % limits.prefill_interval == 0
        )
        for work in list(self.running):
            if not work.blocks:
                continue  # preempted by an older one in this very step
            if work.prefilling:
                chunk = self._chunk(work, budget) if may_prefill or not decodes else 0
                if chunk:
                    prefills.append((work, chunk))
                    budget -= chunk
            elif budget > draft_tokens and self._reserve(work, 1 + draft_tokens, decodes):
                decodes.append(work)
                budget -= 1 + draft_tokens
        if may_prefill or not decodes:
            self._admit(clock_s, budget, prefills)
        if not decodes and not prefills:
            return None
        seconds = self._seconds(clock_s, draft_tokens, decodes, prefills)
        return Step(seconds=seconds, draft_tokens=draft_tokens, decodes=decodes, prefills=prefills)

    def _seconds(
        self,
        clock_s: float,
        draft_tokens: int,
        decodes: list[Work],
        prefills: list[tuple[Work, int]],
    ) -> float:
        load = StepLoad(
            decodes=len(decodes),
            draft_tokens=draft_tokens,
            context_tokens=sum([work.prompt_tokens + work.produced for work in decodes]),
            prefills=[
                PrefillChunk(tokens=tokens, position=work.computed) for work, tokens in prefills
            ],
        )
        seconds = self._model.step_ms(load) / 1000 / self._noise.speed(clock_s)
        self.jit_happened = False
        for work, tokens in prefills:
            if self._jit_left and work.computed + tokens >= work.target and not work.produced:
                self._jit_left -= 1
                self.jit_happened = True
                seconds += self._jit_s
        return seconds

    def _chunk(self, work: Work, budget: int) -> int:
        wanted = work.target - work.computed
        threshold = self._limits.long_prefill_threshold
        if threshold:
            wanted = min(wanted, threshold)
        if not self._limits.chunked_prefill and wanted > budget:
            return 0
        return max(0, min(wanted, budget))

    def _admit(self, clock_s: float, budget: int, prefills: list[tuple[Work, int]]) -> None:
        while self.waiting and budget > 0 and len(self.running) < self._limits.max_running:
            work = self.waiting[0]
            work.target = work.prompt_tokens + work.produced
            needed = -(-work.target // self._block_size)
            if needed > self._free_blocks:
                return  # vLLM admits only what fits whole (scheduler_reserve_full_isl)
            first_time = not work.preemptions
            work.computed = min(self._hits(work), work.target - 1)
            chunk = self._chunk(work, budget)
            if not chunk:
                return
            self.waiting.popleft()
            self._free_blocks -= needed
            work.blocks = needed
            if first_time:
                work.scheduled_s = clock_s
                work.cached_tokens = work.computed
                self.counts.prefix_queries += work.prompt_tokens if self._cache is not None else 0
                self.counts.cached_tokens += work.computed
            self.running.append(work)
            prefills.append((work, chunk))
            budget -= chunk

    def _hits(self, work: Work) -> int:
        if self._cache is None:
            return 0
        blocks = 0
        for key in work.block_keys:
            if key not in self._cache:
                break
            self._cache.move_to_end(key)
            blocks += 1
        return min(blocks * self._block_size, work.prompt_tokens)

    def _reserve(self, work: Work, tokens: int, decodes: list[Work]) -> bool:
        """Make room for the tokens of a step, at the cost of younger sequences if need be."""
        needed = -(-(work.context + tokens) // self._block_size) - work.blocks
        while needed > self._free_blocks:
            victim = self.running[-1]
            self._preempt(victim)
            if victim in decodes:
                decodes.remove(victim)
            if victim is work:
                return False
        if needed > 0:
            self._free_blocks -= needed
            work.blocks += needed
        return True

    def _preempt(self, work: Work) -> None:
        self.running.remove(work)
        self._release(work)
        work.computed = 0
        work.target = work.prompt_tokens + work.produced
        work.preemptions += 1
        self.counts.preemptions += 1
        self.waiting.appendleft(work)

    def _release(self, work: Work) -> None:
        self._free_blocks += work.blocks
        work.blocks = 0

    # Results

    def finish(self, step: Step, clock_s: float) -> None:
        """Hand out what the step produced."""
        self.counts.steps += 1
        produced = 0
        for work in step.decodes:
            if not work.ended:
                produced += self._emit(work, self._verified(work, step.draft_tokens), clock_s)
        for work, tokens in step.prefills:
            if work.ended:
                continue
            work.computed += tokens
            if not work.prefilling:
                self._remember(work)
                produced += self._emit(work, 1, clock_s)
        self.counts.generation_tokens += produced
        self.on_step(produced + sum(tokens for _, tokens in step.prefills))

    def _verified(self, work: Work, draft_tokens: int) -> int:
        """Draw how many draft tokens are right; plus the one that verification yields."""
        if not draft_tokens:
            return 1
        counts = self.counts
        positions = counts.accepted_by_position
        while len(positions) < draft_tokens:
            positions.append(0)
        accepted = 0
        draw = work.luck.random
        for chance in work.chances[:draft_tokens]:
            if draw() >= chance:
                break
            positions[accepted] += 1
            accepted += 1
        counts.drafts += 1
        counts.draft_tokens += draft_tokens
        counts.accepted_tokens += accepted
        work.drafts += 1
        work.accepted += accepted
        return 1 + accepted

    def _emit(self, work: Work, tokens: int, clock_s: float) -> int:
        tokens = min(tokens, work.output_tokens - work.produced)
        if not work.produced:
            work.first_token_s = clock_s
            self.counts.prompt_tokens += work.prompt_tokens
        work.produced += tokens
        # The tokens just produced are in the cache once the next step has run over them.
        work.computed = work.target = work.prompt_tokens + work.produced
        work.sink.tokens(work, clock_s)
        work.last_token_s = clock_s
        if work.produced >= work.output_tokens and not work.ended:
            work.ended = True
            self.running.remove(work)
            self._release(work)
            work.sink.finished(work, clock_s)
        return tokens

    def _remember(self, work: Work) -> None:
        if self._cache is None:
            return
        for key in work.block_keys:
            self._cache[key] = None
            self._cache.move_to_end(key)
        while len(self._cache) > self._all_blocks:
            self._cache.popitem(last=False)


def _ignore(_tokens: int) -> None:
    """Stand in until somebody wants to know."""
