"""Writes up one pass: its samples, its metrics, what to be wary of, or why there is no number."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.load import summary
from autotune.load.driver import Drive
from autotune.load.plan import Plan
from autotune.load.prompts import Corpus
from autotune.load.self_check import ClientLimits
from autotune.load.sse import Reply, parse_reply
from autotune.load.steady import steady_window
from autotune.load.streaming import STOPPED, Recording
from autotune.load.summary import Answer, Metrics
from autotune.model.host import RunningServer
from autotune.model.measurement import CLIENT_BOTTLENECK, LevelRun, RequestSample
from autotune.system.metrics import Counters, delta

MOSTLY_QUEUE = 0.5
"""Share of TTFT spent in the queue from which on it says little about the server's speed."""
PROMPT_TOLERANCE = 0.02
PREFIX_HITS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What is known beside the answers: the engine's counters and where the prompts are from."""

    before: Counters | None
    after: Counters | None
    kv_cache_usage: float | None
    corpus: Corpus

    @property
    def counted(self) -> Counters | None:
        if self.before is None or self.after is None:
            return None
        return delta(self.before, self.after)


def level_run(
    result: Drive, plan: Plan, outside: Outside, *, server: RunningServer, limits: ClientLimits
) -> LevelRun:
    """Parse what was recorded and judge it."""
    answers = [
        _answer(recording, plan, result.began, server.time_scale) for recording in result.sent
    ]
    samples = tuple(answer.sample for answer in answers)
    counted = summary.from_counters(outside.counted, kv_cache_usage=outside.kv_cache_usage)
    run = LevelRun(
        workload=plan.key.workload,
        concurrency=plan.key.concurrency,
        repeat=plan.key.repeat,
        requests=samples,
        metrics=summary.unknown() | counted,
        window_s=0.0,
        warnings=_warnings(answers, plan, outside),
        client=result.client,
        problem=_problem(result, samples, plan, server),
    )
    if run.problem is not None:
        return run
    measured = _measured(run, answers, counted)
    return _self_checked(measured, limits, server.time_scale, void=run)


def _measured(run: LevelRun, answers: Sequence[Answer], counted: Metrics) -> LevelRun:
    """Fill in the numbers of a pass in which every request counts."""
    samples = run.requests
    window = steady_window(
        [sample.scheduled_s for sample in samples],
        concurrency=run.concurrency,
        first_tokens=[float(answer.at[0]) for answer in answers],
        sent=min(sample.sent_s for sample in samples),
        end=max(float(answer.at[-1]) for answer in answers),
    )
    measured = summary.throughput(answers, window) | summary.latencies(answers)
    metrics = dict(run.metrics) | summary.merged(measured, counted)
    found = (window.warning, _queue_warning(metrics, run.concurrency))
    return replace(
        run,
        metrics=metrics,
        window_s=window.length,
        warnings=(*run.warnings, *(text for text in found if text is not None)),
    )


def _self_checked(
    run: LevelRun, limits: ClientLimits, time_scale: float, *, void: LevelRun
) -> LevelRun:
    """Withdraw what a client that was too slow cannot know; its limits are in its own time."""

    def in_client_time(metric: str) -> float | None:
        value = run.metrics[metric]
        return None if value is None else value / time_scale

    broken = limits.broken_by(run.client, ttft_ms=in_client_time("ttft_ms.mean"))
    if broken is not None and time_scale == 1.0:
        return replace(void, problem=f"{CLIENT_BOTTLENECK}: {broken}")
    warnings = list(run.warnings)
    metrics = dict(run.metrics)
    if broken is not None:
        warnings.append(
            f"the client lagged behind a server at {time_scale:g} times real time: {broken}"
        )
    blurred = limits.blurred_by(run.client, tpot_ms=in_client_time("tpot_ms.mean"))
    if blurred is not None and time_scale == 1.0:
        metrics |= {name: None for name in metrics if name.startswith("itl_ms.")}
        warnings.append(f"no ITL: {blurred}")
    return replace(run, metrics=metrics, warnings=tuple(warnings))


def _answer(recording: Recording, plan: Plan, began: float, scale: float) -> Answer:
    """Parse one recording; its times become server seconds since the pass began."""
    reply = Reply(error=recording.error)
    if recording.error is None:
        reply = parse_reply(recording.stamps, recording.reads)
    at = (np.array(reply.stamps) - began) * scale
    scheduled = began if recording.scheduled_s is None else recording.scheduled_s
    sent = scheduled if recording.sent_s is None else recording.sent_s
    sample = RequestSample(
        scheduled_s=(scheduled - began) * scale,
        sent_s=(sent - began) * scale,
        first_token_s=float(at[0]) if len(at) else None,
        last_token_s=float(at[-1]) if len(at) else None,
        prompt_tokens=reply.prompt_tokens or plan.input_tokens,
        output_tokens=reply.output_tokens,
        first_chunk_tokens=reply.tokens[0] if reply.tokens else 1,
        chunks=len(at),
        queue_ms=reply.queue_ms,
        prefill_ms=reply.prefill_ms,
        error=reply.error or _too_short(reply, plan),
    )
    return Answer(
        sample=sample, at=at, tokens=np.array(reply.tokens, dtype=float), source=reply.source
    )


def _too_short(reply: Reply, plan: Plan) -> str | None:
    if reply.output_tokens >= plan.output_tokens:
        return None
    return (
        f"the answer has {reply.output_tokens} of {plan.output_tokens} tokens"
        " although the end of text was to be ignored"
    )


def _problem(
    result: Drive, samples: Sequence[RequestSample], plan: Plan, server: RunningServer
) -> str | None:
    """Say why the pass yields no number."""
    exit_code = server.exit_code()
    gone = "" if exit_code is None else f"; the server ended with exit code {exit_code}"
    if result.hung:
        return f"{result.problem}{gone}"
    errors = [sample.error for sample in samples if sample.error is not None]
    failed = [error for error in errors if error != STOPPED]
    if failed:
        stopped = len(errors) - len(failed)
        rest = f"; {stopped} more were stopped" if stopped else ""
        return f"{len(failed)} of {plan.requests} requests failed: {failed[0]}{rest}{gone}"
    return None if result.problem is None else f"{result.problem}{gone}"


def _warnings(answers: Sequence[Answer], plan: Plan, outside: Outside) -> tuple[str, ...]:
    found = (
        _prompt_warning(answers, plan, outside.corpus),
        _source_warning(answers),
        *_counter_warnings(outside.counted, len(answers)),
    )
    return tuple(text for text in found if text is not None)


def _prompt_warning(answers: Sequence[Answer], plan: Plan, corpus: Corpus) -> str | None:
    lengths = [answer.sample.prompt_tokens for answer in answers if answer.source is not None]
    if not lengths:
        return None
    mean = sum(lengths) / len(lengths)
    off = abs(mean / plan.input_tokens - 1) > PROMPT_TOLERANCE
    if corpus.exact and not off:
        return None
    why = "" if corpus.exact else ", since the server has no /tokenize"
    return f"prompts hold {mean:.0f} tokens on average, not {plan.input_tokens} each{why}"


def _source_warning(answers: Sequence[Answer]) -> str | None:
    if not any(answer.source == "usage" for answer in answers):
        return None
    return "tokens are known for whole answers only: each chunk is given an even share"


def _counter_warnings(counted: Counters | None, requests: int) -> Sequence[str]:
    if counted is None:
        return ()
    found = []
    if counted.preemptions:
        found.append(f"{counted.preemptions:.0f} preemptions: the KV cache is too small")
    if (counted.prefix_hit_rate or 0.0) > PREFIX_HITS:
        found.append(
            f"{counted.prefix_hit_rate:.0%} of the prompts came from the prefix cache"
            " although all are fresh"
        )
    strangers = (counted.requests_finished or 0.0) - requests
    if strangers > 0:
        found.append(f"the server answered {strangers:.0f} requests of somebody else meanwhile")
    return found


def _queue_warning(metrics: Metrics, concurrency: int) -> str | None:
    queue, ttft = metrics["queue_ms.mean"], metrics["ttft_ms.mean"]
    if queue is None or not ttft or queue < MOSTLY_QUEUE * ttft:
        return None
    return (
        f"TTFT at concurrency {concurrency} is mostly queue: {queue:.0f} ms of {ttft:.0f} ms on"
        f" average pass before the engine admits a request, {max(0.0, ttft - queue):.0f} ms after"
    )
