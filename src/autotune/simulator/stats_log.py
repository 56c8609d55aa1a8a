"""The line with throughput and queue that vLLM logs every ten seconds while it is busy."""

from autotune.simulator.scheduler import Counts, Scheduler
from autotune.simulator.vllm_log import log


class StatsLog:
    """Logs the change since the last line."""

    def __init__(self, scheduler: Scheduler, *, interval_s: float, began_s: float) -> None:
        self._scheduler = scheduler
        self._interval_s = interval_s
        self._last_s = began_s
        self._prompt = 0
        self._generated = 0
        self._drafts = (0, 0, 0)
        self._positions: list[int] = []

    def tick(self, clock_s: float) -> None:
        """Log if it is time."""
        elapsed = clock_s - self._last_s
        if elapsed < self._interval_s:
            return
        self._last_s = clock_s
        scheduler = self._scheduler
        counts = scheduler.counts
        prompt, generated = (
            counts.prompt_tokens - self._prompt,
            counts.generation_tokens - self._generated,
        )
        self._prompt, self._generated = counts.prompt_tokens, counts.generation_tokens
        hits = 100 * counts.cached_tokens / counts.prefix_queries if counts.prefix_queries else 0.0
        log(
            "APIServer",
            "loggers.py:311",
            f"Engine 000: Avg prompt throughput: {prompt / elapsed:.1f} tokens/s, "
            f"Avg generation throughput: {generated / elapsed:.1f} tokens/s, "
            f"Running: {len(scheduler.running)} reqs, Waiting: {len(scheduler.waiting)} reqs, "
            f"GPU KV cache usage: {100 * scheduler.kv_usage:.1f}%, Prefix cache hit rate: {hits:.1f}%",
        )
        if counts.drafts > self._drafts[0]:
            self._log_drafts(counts, elapsed)

    def _log_drafts(self, counts: Counts, elapsed: float) -> None:
        before = self._drafts
        self._drafts = (counts.drafts, counts.draft_tokens, counts.accepted_tokens)
        drafts, drafted, accepted = (
            now - earlier for now, earlier in zip(self._drafts, before, strict=True)
        )
        earlier_positions = [*self._positions, *[0] * len(counts.accepted_by_position)]
        rates = [
            (now - earlier) / drafts
            for now, earlier in zip(counts.accepted_by_position, earlier_positions, strict=False)
        ]
        self._positions = list(counts.accepted_by_position)
        log(
            "APIServer",
            "metrics.py:121",
            f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, "
            f"Accepted throughput: {accepted / elapsed:.2f} tokens/s, "
            f"Drafted throughput: {drafted / elapsed:.2f} tokens/s, Accepted: {accepted} tokens, "
            f"Drafted: {drafted} tokens, Per-position acceptance rate: "
            f"{', '.join(f'{rate:.3f}' for rate in rates)}, "
            f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%",
        )
