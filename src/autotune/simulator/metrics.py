"""The engine's Prometheus metrics under vLLM's names. Times are virtual seconds."""

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from autotune.simulator.scheduler import Scheduler, Work

# Bucket bounds of vLLM 0.33, v1/metrics/buckets.py.
_LATENCY = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_INTER_TOKEN = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
_ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
_FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")


class Histogram:
    """Counts by upper bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.count = 0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value
        self.count += 1

    def lines(self, name: str, labels: str) -> list[str]:
        running = 0
        lines = []
        for bound, count in zip(self._bounds, self._counts, strict=False):
            running += count
            lines.append(f'{name}_bucket{{{labels},le="{float(bound)}"}} {float(running)}')
        lines.append(f'{name}_bucket{{{labels},le="+Inf"}} {float(self.count)}')
        lines.append(f"{name}_count{{{labels}}} {float(self.count)}")
        lines.append(f"{name}_sum{{{labels}}} {self.total!r}")
        return lines


class Metrics:
    """Everything that /metrics tells."""

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        model_name: str,
        cache_labels: Mapping[str, str],
        draft_tokens: int,
        max_model_len: int,
    ) -> None:
        self._scheduler = scheduler
        self._labels = f'engine="0",model_name="{model_name}"'
        self._cache_labels = cache_labels
        self._draft_tokens = draft_tokens
        self._created = time.time()
        self._finished = dict.fromkeys(_FINISH_REASONS, 0)
        self.tool_calls: dict[tuple[str, str], int] = {}
        lengths = _one_two_five(max_model_len)
        self.time_to_first_token = Histogram(_FIRST_TOKEN)
        self.inter_token = Histogram(_INTER_TOKEN)
        self.iteration = Histogram(_ITERATION)
        self._e2e = Histogram(_LATENCY)
        self._queue = Histogram(_LATENCY)
        self._inference = Histogram(_LATENCY)
        self._prefill = Histogram(_LATENCY)
        self._decode = Histogram(_LATENCY)
        self._per_token = Histogram(_INTER_TOKEN)
        self._prompt = Histogram(lengths)
        self._generation = Histogram(lengths)
        self._preemptions = Histogram(_PREEMPTIONS)

    def first_token(self, work: Work) -> None:
        self.time_to_first_token.observe(work.first_token_s - work.arrived_s)

    def finished(self, work: Work, reason: str, clock_s: float) -> None:
        self._finished[reason] += 1
        decode_s = clock_s - work.first_token_s
        self._e2e.observe(clock_s - work.arrived_s)
        self._queue.observe(work.scheduled_s - work.arrived_s)
        self._inference.observe(clock_s - work.scheduled_s)
        self._prefill.observe(work.first_token_s - work.scheduled_s)
        self._decode.observe(decode_s)
        if work.produced > 1:
            self._per_token.observe(decode_s / (work.produced - 1))
        self._prompt.observe(work.prompt_tokens)
        self._generation.observe(work.produced)
        self._preemptions.observe(work.preemptions)

    def aborted(self) -> None:
        self._finished["abort"] += 1

    def tool_call(self, mode: str, outcome: str) -> None:
        key = (mode, outcome)
        self.tool_calls[key] = self.tool_calls.get(key, 0) + 1

    def render(self) -> str:
        lines = [*self._gauges(), *self._counters()]
        for name, text, histogram in self._histograms():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
            lines += histogram.lines(name, self._labels)
            lines.append(f"{name}_created{{{self._labels}}} {self._created!r}")
        return "\n".join(lines) + "\n"

    def _gauges(self) -> list[str]:
        scheduler = self._scheduler
        gauges = (
            ("num_requests_running", "Number of requests in model execution batches.", len(scheduler.running)),
            ("num_requests_waiting", "Number of requests waiting to be processed.", len(scheduler.waiting)),
            ("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", scheduler.kv_usage),
        )  # fmt: skip
        lines = []
        for name, text, value in gauges:
            lines += [
                f"# HELP vllm:{name} {text}",
                f"# TYPE vllm:{name} gauge",
                f"vllm:{name}{{{self._labels}}} {float(value)!r}",
            ]
        info = ",".join(f'{key}="{value}"' for key, value in sorted(self._cache_labels.items()))
        lines += [
            "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig",
            "# TYPE vllm:cache_config_info gauge",
            f'vllm:cache_config_info{{{info},engine="0"}} 1.0',
        ]
        return lines

    def _counters(self) -> list[str]:
        counts = self._scheduler.counts
        computed = counts.prompt_tokens - counts.cached_tokens
        plain: list[tuple[str, str, float]] = [
            ("prefix_cache_queries", "", counts.prefix_queries),
            ("prefix_cache_hits", "", counts.cached_tokens),
            ("num_preemptions", "", counts.preemptions),
            ("prompt_tokens", "", counts.prompt_tokens),
            ("prompt_tokens_by_source", 'source="local_compute"', max(0, computed)),
            ("prompt_tokens_by_source", 'source="local_cache_hit"', counts.cached_tokens),
            ("prompt_tokens_cached", "", counts.cached_tokens),
            ("generation_tokens", "", counts.generation_tokens),
        ]
        plain += [
            ("request_success", f'finished_reason="{reason}"', count)
            for reason, count in self._finished.items()
        ]
        plain += [
            ("tool_call_parser_invocations", f'mode="{mode}",outcome="{outcome}",request_type="chat"', count)
            for (mode, outcome), count in self.tool_calls.items()
        ]  # fmt: skip
        if self._draft_tokens:
            plain += self._spec_decode()
        return self._counter_lines(plain)

    def _spec_decode(self) -> list[tuple[str, str, float]]:
        counts = self._scheduler.counts
        by_position = counts.accepted_by_position
        rows: list[tuple[str, str, float]] = [
            ("spec_decode_num_drafts", "", counts.drafts),
            ("spec_decode_num_draft_tokens", "", counts.draft_tokens),
            ("spec_decode_num_accepted_tokens", "", counts.accepted_tokens),
        ]
        for position in range(self._draft_tokens):
            accepted = by_position[position] if position < len(by_position) else 0
            rows.append(
                ("spec_decode_num_accepted_tokens_per_pos", f'position="{position}"', accepted)
            )
        return rows

    def _counter_lines(self, rows: Sequence[tuple[str, str, float]]) -> list[str]:
        lines: list[str] = []
        seen: set[str] = set()
        for name, extra, value in rows:
            labels = f"{self._labels},{extra}" if extra else self._labels
            if name not in seen:
                seen.add(name)
                words = name.replace("_", " ")
                lines += [
                    f"# HELP vllm:{name}_total Count of {words}.",
                    f"# TYPE vllm:{name}_total counter",
                ]
            lines.append(f"vllm:{name}_total{{{labels}}} {float(value)!r}")
            lines.append(f"vllm:{name}_created{{{labels}}} {self._created!r}")
        return lines

    def _histograms(self) -> list[tuple[str, str, Histogram]]:
        return [
            ("vllm:time_to_first_token_seconds", "Time to first token in seconds.", self.time_to_first_token),
            ("vllm:inter_token_latency_seconds", "Inter-token latency in seconds.", self.inter_token),
            ("vllm:request_time_per_output_token_seconds", "Time per output token.", self._per_token),
            ("vllm:e2e_request_latency_seconds", "E2E request latency in seconds.", self._e2e),
            ("vllm:request_queue_time_seconds", "Time in WAITING phase.", self._queue),
            ("vllm:request_inference_time_seconds", "Time in RUNNING phase.", self._inference),
            ("vllm:request_prefill_time_seconds", "Time in PREFILL phase.", self._prefill),
            ("vllm:request_decode_time_seconds", "Time in DECODE phase.", self._decode),
            ("vllm:request_prompt_tokens", "Number of prefill tokens processed.", self._prompt),
            ("vllm:request_generation_tokens", "Number of generation tokens.", self._generation),
            ("vllm:request_num_preemptions", "Preemptions per request.", self._preemptions),
            ("vllm:iteration_tokens_total", "Tokens per engine step.", self.iteration),
        ]  # fmt: skip


def _one_two_five(most: int) -> list[float]:
    """Bounds 1, 2, 5, 10, ... up to a limit, as vLLM builds them."""
    bounds: list[float] = []
    scale = 1
    while True:
        for factor in (1, 2, 5):
            if factor * scale > most:
                return bounds
            bounds.append(factor * scale)
        scale *= 10
