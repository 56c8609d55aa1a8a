"""Turns the answers of one pass into metrics, by the names of `autotune.model.objective.UNITS`.

Throughput is counted inside the window, latencies over every request of the pass. A metric that
cannot be known is None: a percentile of too few requests, counters that the server does not keep.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autotune.load.sse import TokenSource
from autotune.load.steady import Window
from autotune.model.measurement import RequestSample
from autotune.model.objective import PER_START, STATISTICS, UNITS
from autotune.system.metrics import Counters

Numbers = npt.NDArray[np.float64]
Metrics = dict[str, float | None]

FEWEST_REQUESTS = {"mean": 1, "p50": 3, "p95": 59, "p99": 299}
"""From 59 (299) on, one request lies beyond the p95 (p99) 95 times in 100; with fewer the figure is
the largest value by another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A request's sample and its token-bearing chunks, in seconds since the pass began."""

    sample: RequestSample
    at: Numbers
    tokens: Numbers
    source: TokenSource | None

    @property
    def tpot_ms(self) -> float | None:
        """Time per token after the first chunk, whose tokens cost no gap."""
        sample = self.sample
        later = sample.output_tokens - sample.first_chunk_tokens
        if later <= 0 or sample.first_token_s is None or sample.last_token_s is None:
            return None
        return (sample.last_token_s - sample.first_token_s) / later * 1e3

    @property
    def itl_ms(self) -> Numbers:
        """The gap before every token but the first chunk's; tokens that came together share it."""
        tokens = self.tokens[1:]
        return np.repeat(np.diff(self.at) / tokens, tokens.astype(int)) * 1e3


def unknown() -> Metrics:
    """Every metric of a level, none of them known."""
    return {name: None for name in UNITS if name not in PER_START}


def throughput(answers: Sequence[Answer], window: Window) -> Metrics:
    """Count what came inside the window, and beside it the whole run."""
    at = np.concatenate([answer.at for answer in answers])
    tokens = np.concatenate([answer.tokens for answer in answers])
    firsts = np.array([answer.at[0] for answer in answers])
    lasts = np.array([answer.at[-1] for answer in answers])
    prompts = np.array([answer.sample.prompt_tokens for answer in answers])
    output = float(tokens[_inside(at, window)].sum())
    prompted = float(prompts[_inside(firsts, window)].sum())
    duration = float(lasts.max()) - min(answer.sample.sent_s for answer in answers)
    return {
        "output_tok_s": _rate(output, window.length),
        "output_tok_s_total_run": _rate(float(tokens.sum()), duration),
        "total_tok_s": _rate(output + prompted, window.length),
        "requests_s": _rate(float(_inside(lasts, window).sum()), window.length),
    }


def latencies(answers: Sequence[Answer]) -> Metrics:
    """Mean and percentiles over requests; of ITL over tokens, if there are enough requests."""
    samples = [answer.sample for answer in answers]
    by_request: dict[str, list[float | None]] = {
        "ttft_ms": [sample.ttft_ms for sample in samples],
        "tpot_ms": [answer.tpot_ms for answer in answers],
        "e2e_ms": [_since_sent(sample) for sample in samples],
        "queue_ms": [sample.queue_ms for sample in samples],
        "prefill_ms": [sample.prefill_ms for sample in samples],
    }
    metrics: Metrics = {}
    for name, values in by_request.items():
        known = [value for value in values if value is not None]
        # What only some requests report would be the mean of a selection.
        partial = name in ("queue_ms", "prefill_ms") and len(known) < len(values)
        metrics |= _statistics(name, np.array([] if partial else known), requests=len(known))
    return metrics | _statistics("itl_ms", _gaps(answers), requests=len(answers))


def from_counters(counters: Counters | None, *, kv_cache_usage: float | None) -> Metrics:
    """Name what the engine counted over the pass."""
    known = counters or Counters()
    return {
        "queue_ms.mean": known.mean_queue_ms,
        "prefill_ms.mean": known.mean_prefill_ms,
        "acceptance_rate": known.acceptance_rate,
        "acceptance_length": known.acceptance_length,
        "prefix_hit_rate": known.prefix_hit_rate,
        "preemptions": known.preemptions,
        "kv_cache_usage_max": kv_cache_usage,
    }


def merged(first: Metrics, second: Metrics) -> Metrics:
    """Complete the first by the second."""
    return second | {name: value for name, value in first.items() if value is not None}


def _gaps(answers: Sequence[Answer]) -> Numbers:
    """Collect all gaps; where chunks are not known by tokens, a gap is nobody's."""
    if any(answer.source == "usage" and np.any(answer.tokens != 1) for answer in answers):
        return np.array([])
    return np.concatenate([answer.itl_ms for answer in answers])


def _statistics(name: str, values: Numbers, *, requests: int) -> Metrics:
    return {
        f"{name}.{statistic}": _statistic(statistic, values)
        if len(values) and requests >= FEWEST_REQUESTS[statistic]
        else None
        for statistic in STATISTICS
    }


def _statistic(statistic: str, values: Numbers) -> float:
    if statistic == "mean":
        return float(values.mean())
    return float(np.percentile(values, float(statistic[1:])))


def _since_sent(sample: RequestSample) -> float | None:
    return None if sample.last_token_s is None else (sample.last_token_s - sample.sent_s) * 1e3


def _inside(times: Numbers, window: Window) -> npt.NDArray[np.bool_]:
    if window.kind == "whole_run":
        return np.ones(len(times), dtype=bool)
    return (times >= window.start) & (times < window.end)


def _rate(amount: float, seconds: float) -> float | None:
    return amount / seconds if seconds > 0 else None
