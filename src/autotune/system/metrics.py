"""Reads the engine's counters from `/metrics`.

Only the lines that we use are parsed: a vLLM page has over a thousand, and a scrape while a load
runs may not cost the client its stamps. Left out: histogram buckets and everything about HTTP.
"""

import math
import ssl
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

# Loopback is plain HTTP; loading the certificates that a default context trusts costs 30 ms.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

_SUMMED = {
    "requests_running": "vllm:num_requests_running",
    "requests_waiting": "vllm:num_requests_waiting",
    "preemptions": "vllm:num_preemptions_total",
    "prefix_queries": "vllm:prefix_cache_queries_total",
    "prefix_hits": "vllm:prefix_cache_hits_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "requests_finished": "vllm:request_success_total",
    "drafts": "vllm:spec_decode_num_drafts_total",
    "draft_tokens": "vllm:spec_decode_num_draft_tokens_total",
    "accepted_tokens": "vllm:spec_decode_num_accepted_tokens_total",
    "queue_s": "vllm:request_queue_time_seconds_sum",
    "queue_count": "vllm:request_queue_time_seconds_count",
    "prefill_s": "vllm:request_prefill_time_seconds_sum",
    "prefill_count": "vllm:request_prefill_time_seconds_count",
}
"""Fields that add up over engines and labels, by the exact name of their samples."""

_KV_USAGE = "vllm:kv_cache_usage_perc"
_ACCEPTED_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_WANTED = frozenset((*_SUMMED.values(), _KV_USAGE, _ACCEPTED_PER_POSITION))
_GAUGES = frozenset(("requests_running", "requests_waiting", "kv_cache_usage"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What the engine counted since it started; None where it does not count.

    requests_running, requests_waiting: now; kv_cache_usage: now, the fullest engine, 0..1
    prefix_queries, prefix_hits: tokens
    queue_s, prefill_s: seconds summed over the requests counted beside them
    accepted_per_position: accepted draft tokens by their place in the draft
    """

    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_usage: float | None = None
    preemptions: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    requests_finished: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: tuple[float, ...] | None = None
    queue_s: float | None = None
    queue_count: float | None = None
    prefill_s: float | None = None
    prefill_count: float | None = None

    @property
    def acceptance_rate(self) -> float | None:
        return _ratio(self.accepted_tokens, self.draft_tokens)

    @property
    def acceptance_length(self) -> float | None:
        """Tokens a step: the accepted drafts and the one that the model adds itself."""
        accepted = _ratio(self.accepted_tokens, self.drafts)
        return None if accepted is None else 1.0 + accepted

    @property
    def acceptance_per_position(self) -> tuple[float, ...] | None:
        """Tell which share of the drafts was accepted up to each position."""
        if self.accepted_per_position is None or not self.drafts:
            return None
        return tuple(accepted / self.drafts for accepted in self.accepted_per_position)

    @property
    def prefix_hit_rate(self) -> float | None:
        return _ratio(self.prefix_hits, self.prefix_queries)

    @property
    def mean_queue_ms(self) -> float | None:
        return _milliseconds(self.queue_s, self.queue_count)

    @property
    def mean_prefill_ms(self) -> float | None:
        return _milliseconds(self.prefill_s, self.prefill_count)


def parse_counters(page: str) -> Counters:
    """Read a page; samples of several engines are summed, `_created` samples are no counters."""
    sums: dict[str, float] = defaultdict(float)
    usage: list[float] = []
    accepted: dict[int, float] = defaultdict(float)
    for sample in _samples(page):
        if math.isnan(sample.value):
            continue
        if sample.name == _KV_USAGE:
            usage.append(sample.value)
        elif sample.name == _ACCEPTED_PER_POSITION:
            accepted[int(sample.labels.get("position", 0))] += sample.value
        else:
            sums[sample.name] += sample.value
    summed: dict[str, float | None] = {field: sums.get(name) for field, name in _SUMMED.items()}
    return replace(
        Counters(),
        **summed,
        kv_cache_usage=max(usage, default=None),
        accepted_per_position=_in_order(accepted),
    )


def delta(before: Counters, after: Counters) -> Counters:
    """Tell what happened between two scrapes; gauges are the later ones.

    A counter that went backwards belongs to another server: it is unknown, not negative.
    """
    changes: dict[str, float | None] = {
        field.name: _difference(getattr(before, field.name), getattr(after, field.name))
        for field in fields(Counters)
        if field.name not in _GAUGES and field.name != "accepted_per_position"
    }
    return replace(
        after,
        **changes,
        accepted_per_position=_by_position(
            before.accepted_per_position, after.accepted_per_position
        ),
    )


async def scrape(
    base_url: str, *, api_key: str | None = None, timeout_s: float = 5.0
) -> Counters | None:
    """Fetch and read the counters; None where the server has none or does not answer."""
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        async with httpx.AsyncClient(
            verify=_NO_TLS, trust_env=False, timeout=timeout_s, headers=headers
        ) as client:
            response = await client.get(base_url.rstrip("/") + "/metrics")
    except httpx.HTTPError:
        return None
    return read_page(response.status_code, response.text)


def read_page(status: int, page: str) -> Counters | None:
    """Read an answer of `/metrics`; None where it is no page of counters."""
    if status != httpx.codes.OK:
        return None
    try:
        return parse_counters(page)
    except ValueError:
        # The parser's word for text that is not in the exposition format.
        return None


def _samples(page: str) -> list[Sample]:
    """Parse the lines that hold a wanted sample, and only those."""
    lines = [line for line in page.splitlines() if _name(line) in _WANTED]
    families = text_string_to_metric_families("\n".join(lines) + "\n")
    return [sample for family in families for sample in family.samples]


def _name(line: str) -> str:
    return line.partition("{")[0].partition(" ")[0]


def _in_order(accepted: Mapping[int, float]) -> tuple[float, ...] | None:
    return tuple(accepted[position] for position in sorted(accepted)) or None


def _by_position(
    before: tuple[float, ...] | None, after: tuple[float, ...] | None
) -> tuple[float, ...] | None:
    if after is None:
        return None
    earlier = before or (0.0,) * len(after)
    if len(earlier) != len(after):
        return None
    changes = tuple(new - old for old, new in zip(earlier, after, strict=True))
    return None if min(changes) < 0 else changes


def _difference(before: float | None, after: float | None) -> float | None:
    if after is None:
        return None
    # A labeled counter has no sample before its first event.
    change = after - (before or 0.0)
    return None if change < 0 else change


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _milliseconds(seconds: float | None, count: float | None) -> float | None:
    mean = _ratio(seconds, count)
    return None if mean is None else mean * 1e3
