"""What a load yields: one sample a request, one run a pass, one measurement a server's lifetime.

Times are seconds or milliseconds of the server's own time: behind a simulated server that runs
faster than the clock on the wall they are already scaled back.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.model.objective import PER_START, Quantity

CLIENT_BOTTLENECK = "the client was the bottleneck"
"""How the problem of a pass begins that was lost to something else on this host, for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSample:
    """One request as the client saw it. Times are seconds since the run began.

    scheduled_s: when the load wanted it sent; sent_s: when it was on the wire
    first_token_s, last_token_s: first and last token-bearing chunk, None if none came
    first_chunk_tokens: tokens in that first chunk (speculation can put several into one)
    queue_ms, prefill_ms: from the engine, where it reports them
    error: why the request does not count, else None
    """

    scheduled_s: float
    sent_s: float
    first_token_s: float | None
    last_token_s: float | None
    prompt_tokens: int
    output_tokens: int
    first_chunk_tokens: int = 1
    chunks: int = 0
    queue_ms: float | None = None
    prefill_ms: float | None = None
    error: str | None = None

    @property
    def ttft_ms(self) -> float | None:
        return None if self.first_token_s is None else (self.first_token_s - self.sent_s) * 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCheck:
    """Whether the client itself was the bottleneck.

    stamp_error_p99_ms: how late the client may have stamped a chunk; lag_p99_ms: event-loop lag
    cpu: share of one core that the client used (0..1)
    """

    stamp_error_p99_ms: float | None = None
    lag_p99_ms: float | None = None
    cpu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRun:
    """One pass of a workload at one concurrency.

    metrics: names of `autotune.model.objective.UNITS`; None where it is unknown
    window_s: length of the steady window in seconds
    problem: why the pass yields no number at all, else None
    """

    workload: str
    concurrency: int
    repeat: int
    requests: tuple[RequestSample, ...]
    metrics: Mapping[str, float | None]
    window_s: float
    warnings: tuple[str, ...] = ()
    problem: str | None = None
    client: ClientCheck = field(default_factory=ClientCheck)

    @property
    def failed(self) -> int:
        return sum(sample.error is not None for sample in self.requests)

    @property
    def client_was_the_bottleneck(self) -> bool:
        return self.problem is not None and self.problem.startswith(CLIENT_BOTTLENECK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Every pass of one server's lifetime, and how long it took to come up."""

    startup_s: float
    runs: tuple[LevelRun, ...]

    def values(self, quantity: Quantity) -> tuple[float, ...]:
        """Collect a quantity over the repeats; passes that do not know it are left out."""
        if quantity.metric in PER_START:
            return (self.startup_s,)
        found = (
            run.metrics.get(quantity.metric)
            for run in self.runs
            if (run.workload, run.concurrency) == (quantity.workload, quantity.concurrency)
        )
        return tuple(value for value in found if value is not None)


def geometric_mean(values: Sequence[float]) -> float:
    """Average positive values by their logs, others plainly.

    >>> round(geometric_mean([2.0, 8.0]), 9)
    4.0
    """
    if all(value > 0 for value in values):
        return math.exp(sum(math.log(value) for value in values) / len(values))
    return sum(values) / len(values)
