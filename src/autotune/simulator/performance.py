"""How long a step of the engine takes, and how many draft tokens it accepts.

    coverage(T) = 1 - (1 - k/E)^(T^rho)                  share of routed experts that T tokens touch
    step        = overheads + (fixed + experts x coverage + state + KV) / bandwidth
                  + compute per token + draft passes

Milliseconds, GB and GB/s. Times leave out noise, queueing and the network. Speculative steps verify
1 + k tokens a sequence; a prefill chunk shares its step with the decodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.simulator.profiles import HardwareProfile, ModelProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillChunk:
    """`tokens` prompt tokens that come after `position` computed ones."""

    tokens: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLoad:
    """What one step has to do; `context_tokens` is summed over the decoding sequences."""

    decodes: int
    draft_tokens: int
    context_tokens: int
    prefills: Sequence[PrefillChunk] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSettings:
    """What a configuration changes about a step.

    kv_factor: bytes of a cache element relative to bfloat16
    speed: product of the backends' relative speeds
    capture_sizes: token counts with a CUDA graph, ascending; empty when there are none
    """

    draft_read_gb: float = 0.0
    kv_factor: float = 1.0
    speed: float = 1.0
    capture_sizes: tuple[int, ...] = ()
    eager: bool = False
    blocking_schedule: bool = False


# The draft adds its own batch overhead, half as much again as the target's (fitted).
_DRAFT_BATCH_OVERHEAD = 1.5
# A decode without a full graph still runs piecewise graphs: a quarter of the launch cost (assumed).
_NO_GRAPH_SHARE = 0.25


class StepModel:
    """The duration of a step on one machine with one model and one configuration."""

    def __init__(
        self, hardware: HardwareProfile, model: ModelProfile, settings: StepSettings
    ) -> None:
        self._hardware = hardware
        self._model = model
        self._settings = settings
        self._coverages: dict[int, float] = {}
        self._padded: dict[int, int | None] = {}
        self._ms_per_gb = 1000.0 / hardware.bandwidth_gb_s
        self._kv_ms_per_token = (
            model.kv_bytes_per_token * settings.kv_factor / 1e9 * self._ms_per_gb
        )
        overhead = hardware.step_overhead_ms + model.fixed_read_gb * self._ms_per_gb
        if settings.eager:
            overhead += hardware.eager_overhead_ms
        if settings.blocking_schedule:
            overhead += hardware.blocking_schedule_ms
        self._overhead_ms = overhead
        self._draft_ms = settings.draft_read_gb * self._ms_per_gb
        self._experts_ms = model.routed_expert_gb * self._ms_per_gb
        self._state_ms = model.state_gb * self._ms_per_gb
        self._decode_token_ms = hardware.decode_token_ms * model.compute_factor
        self._prefill_token_ms = hardware.prefill_token_ms * model.compute_factor
        self._prefill_attention_ms = hardware.prefill_attention_ms * model.compute_factor

    def coverage(self, tokens: int) -> float:
        """Share of the routed experts that a step of so many tokens reads."""
        known = self._coverages.get(tokens)
        if known is None:
            model = self._model
            untouched = 1.0 - model.experts_per_token / model.experts
            known = 1.0 - untouched ** (tokens**model.routing_correlation) if tokens else 0.0
            self._coverages[tokens] = known
        return known

    def step_ms(self, load: StepLoad) -> float:
        verified = load.decodes * (1 + load.draft_tokens)
        prefilled = sum(chunk.tokens for chunk in load.prefills)
        sequences = load.decodes + len(load.prefills)
        milliseconds = (
            self._overhead_ms
            + self._experts_ms * self.coverage(verified + prefilled)
            + self._decode_ms(load, verified)
            + sum(self._prefill_ms(chunk) for chunk in load.prefills)
            + self._draft_ms * load.draft_tokens
        )
        if sequences > 1:
            batch_ms = self._hardware.batch_overhead_ms
            milliseconds += batch_ms + (
                _DRAFT_BATCH_OVERHEAD * batch_ms if load.draft_tokens else 0
            )
        if not prefilled and not self._settings.eager:
            milliseconds += self._graph_ms(verified)
        return milliseconds / self._settings.speed

    def _decode_ms(self, load: StepLoad, verified: int) -> float:
        # The state is read once and written after each verified token.
        state_passes = load.decodes * (2 + load.draft_tokens)
        return (
            self._state_ms * state_passes
            + self._kv_ms_per_token * load.context_tokens
            + self._decode_token_ms * verified
        )

    def _prefill_ms(self, chunk: PrefillChunk) -> float:
        middle = chunk.position + chunk.tokens / 2
        return (
            chunk.tokens * (self._prefill_token_ms + self._prefill_attention_ms * middle)
            + self._state_ms * 2
        )

    def _graph_ms(self, tokens: int) -> float:
        """Cost of a batch that its CUDA graphs do not fit: padding, or no graph at all."""
        sizes = self._settings.capture_sizes
        if tokens not in self._padded:
            self._padded[tokens] = next((size for size in sizes if size >= tokens), None)
        padded = self._padded[tokens]
        if padded is None:
            return self._hardware.eager_overhead_ms * _NO_GRAPH_SHARE
        return (padded - tokens) * self._decode_token_ms


def tokens_per_step(acceptance: Sequence[float], draft_tokens: int) -> float:
    """Give the expected output tokens of one sequence in one step: the verified one and the accepted drafts."""
    return 1.0 + sum(extended_acceptance(acceptance, draft_tokens))


def extended_acceptance(acceptance: Sequence[float], draft_tokens: int) -> tuple[float, ...]:
    """Cut or extend the table; positions beyond it lose a third each."""
    known = list(acceptance[:draft_tokens])
    while len(known) < draft_tokens:
        known.append((known[-1] if known else 0.0) * 0.67)
    return tuple(known)


def conditional_acceptance(survival: Sequence[float]) -> tuple[float, ...]:
    """Chance that a draft token is accepted when the one before it was."""
    chances = []
    before = 1.0
    for value in survival:
        chances.append(value / before if before > 0 else 0.0)
        before = value
    return tuple(chances)
