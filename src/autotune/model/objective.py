"""What counts as better, and what must hold: objectives, constraints, rules."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from autotune.model.knob import Operator, Value, compare, is_number

Direction: TypeAlias = Literal["maximize", "minimize"]

LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "queue_ms", "prefill_ms")
STATISTICS = ("mean", "p50", "p95", "p99")
UNITS: Mapping[str, str] = {
    "output_tok_s": "tok/s",
    "output_tok_s_total_run": "tok/s",
    "total_tok_s": "tok/s",
    "requests_s": "1/s",
    "acceptance_rate": "1",
    "acceptance_length": "tokens",
    "prefix_hit_rate": "1",
    "preemptions": "1",
    "kv_cache_usage_max": "1",
    "startup_s": "s",
    **{f"{latency}.{statistic}": "ms" for latency in LATENCIES for statistic in STATISTICS},
}
"""Every metric a level of load yields, with its unit."""

LARGER_IS_BETTER = {
    "output_tok_s",
    "output_tok_s_total_run",
    "total_tok_s",
    "requests_s",
    "acceptance_rate",
    "acceptance_length",
    "prefix_hit_rate",
}
PER_START = {"startup_s"}
"""Metrics of the server's start, not of a level of load."""


def natural_direction(metric: str) -> Direction:
    return "maximize" if metric in LARGER_IS_BETTER else "minimize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A metric of one workload at one level of concurrency.

    >>> Quantity(metric="ttft_ms.p95", workload="agent", concurrency=8).label
    'ttft_ms.p95@agent:8'
    """

    metric: str
    workload: str
    concurrency: int

    @property
    def label(self) -> str:
        if self.metric in PER_START:
            return self.metric
        return f"{self.metric}@{self.workload}:{self.concurrency}"

    @property
    def unit(self) -> str:
        return UNITS[self.metric]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A quantity to push up or down. `name` is the metric alone where that says enough."""

    name: str
    quantity: Quantity
    direction: Direction

    @property
    def unit(self) -> str:
        return self.quantity.unit

    @property
    def sign(self) -> int:
        """+1 where larger is better, else -1."""
        return 1 if self.direction == "maximize" else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A limit (SLO) on a quantity; a trial that misses it is infeasible, its numbers are kept."""

    quantity: Quantity
    operator: Operator
    bound: float

    @property
    def label(self) -> str:
        return f"{self.quantity.label} {self.operator} {self.bound:g}"

    def excess(self, value: float) -> float:
        """By what share of the bound the value misses it; zero or less when it holds."""
        distance = self.bound - value if self.operator in (">=", ">") else value - self.bound
        scaled = distance / (abs(self.bound) or 1.0)
        holds = compare(value, self.operator, self.bound)
        return min(scaled, 0.0) if holds else max(scaled, 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A declared comparison between settings, such as `max_num_batched_tokens >= max_num_seqs`."""

    left: str | float
    operator: Operator
    right: str | float

    @property
    def text(self) -> str:
        return f"{_side(self.left)} {self.operator} {_side(self.right)}"

    def names(self) -> tuple[str, ...]:
        return tuple(side for side in (self.left, self.right) if isinstance(side, str))

    def broken_by(self, settings: Mapping[str, Value]) -> bool:
        """Tell whether settings break the rule; what is absent or has no order breaks nothing."""
        left, right = (_resolve(side, settings) for side in (self.left, self.right))
        if left is None or right is None:
            return False
        ordered = self.operator in (">=", "<=", ">", "<")
        if ordered and not (is_number(left) and is_number(right)):
            return False
        return not compare(left, self.operator, right)


def _side(side: str | float) -> str:
    return side if isinstance(side, str) else f"{side:g}"


def _resolve(side: str | float, settings: Mapping[str, Value]) -> Value:
    return settings.get(side) if isinstance(side, str) else side
