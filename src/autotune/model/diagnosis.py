"""What a server log means: whether the server came up, what it really runs, and why it failed.

Only the nouns. Reading a log is `autotune.diagnosis`; what a study does about a failure is looked up
in `FAMILIES`, so that nobody decides it from words in a message.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

LogOutcome: TypeAlias = Literal["ready", "failed", "incomplete"]
Blame: TypeAlias = Literal["configuration", "host", "chance", "user"]
LimitOperator: TypeAlias = Literal["<=", ">=", "<", "multiple_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A kind of failure, and what a tuner does about it.

    blame: who has to change something for the next start to go better
    retry: whether the same configuration deserves one more start (a clean compile cache, another
    port, memory given back)
    stops_study: whether no other configuration can do better, once a retry did not help
    infeasible: whether the search may conclude something about this configuration
    exit_code: what the program ends with when this is why it stops
    """

    name: str
    meaning: str
    blame: Blame
    retry: bool = False
    stops_study: bool = False
    infeasible: bool = True
    exit_code: int = 1


_FAMILIES = (
    Family(
        name="out_of_memory",
        meaning="device memory ran out while loading, profiling, allocating or serving",
        blame="configuration",
    ),
    Family(
        name="memory_occupied",
        meaning="the device was not free at start: something else holds its memory",
        blame="host",
        retry=True,
        stops_study=True,
        infeasible=False,
        exit_code=3,
    ),
    Family(
        name="kv_cache_too_small",
        meaning="the weights fit, but the KV cache cannot hold one request of full length",
        blame="configuration",
    ),
    Family(
        name="unsupported",
        meaning="this combination of backend, kernel, quantization, model and device does not exist",
        blame="configuration",
    ),
    # Stops a study only where the refused setting is fixed for all trials; the caller knows.
    Family(
        name="invalid_config",
        meaning="the argument parser or a configuration check refused it",
        blame="configuration",
        exit_code=2,
    ),
    Family(
        name="model_files",
        meaning="the weights or the tokenizer are missing, unreadable or of another model",
        blame="user",
        stops_study=True,
        infeasible=False,
        exit_code=3,
    ),
    Family(
        name="host_setup",
        meaning="driver, toolchain, packages, shared memory, NCCL or container runtime are not in order",
        blame="host",
        stops_study=True,
        infeasible=False,
        exit_code=3,
    ),
    Family(
        name="compile_failed",
        meaning="compiling or autotuning a kernel or graph failed",
        blame="configuration",
        retry=True,
    ),
    Family(
        name="port_in_use",
        meaning="a port was taken",
        blame="chance",
        retry=True,
        infeasible=False,
        exit_code=3,
    ),
    Family(
        name="engine_died",
        meaning="an engine or worker process ended, asserted, faulted or stopped answering",
        blame="configuration",
        retry=True,
    ),
    Family(
        name="hang",
        meaning="no progress within the time limit",
        blame="configuration",
        retry=True,
    ),
    Family(
        name="memory_guard",
        meaning="it was ended before the host ran out of memory",
        blame="configuration",
    ),
    # Never tried again unless asked: the next start may take the host down again.
    Family(
        name="host_down",
        meaning="the host went down while it ran",
        blame="configuration",
    ),
    Family(
        name="interrupted",
        meaning="somebody stopped it",
        blame="user",
        infeasible=False,
        exit_code=130,
    ),
    Family(
        name="unknown",
        meaning="it failed, and the log does not say why",
        blame="configuration",
    ),
)

FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in _FAMILIES})
"""Every family of failure by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound that a message states for one setting, e.g. `max_num_seqs <= 614`."""

    knob: str
    op: LimitOperator
    number: float

    def __str__(self) -> str:
        return f"{self.knob} {self.op} {self.number:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server says about itself. `None` and `()` mean that the log does not say.

    kv_cache_tokens, max_concurrency: of one engine, the smallest where several report;
    max_concurrency is for requests of max_concurrency_tokens tokens
    weights_s: reading weights, without download_s; compile_s: all torch.compile passes of a process
    init_engine_s: profiling, KV cache and warm-up
    ignored_settings, caps, deprecations: vLLM's own sentences; unknown_env: names of variables
    """

    vllm_version: str | None = None
    model: str | None = None
    model_runner: str | None = None
    attention_backend: str | None = None
    moe_backend: str | None = None
    linear_backend: str | None = None
    kv_cache_dtype: str | None = None
    cudagraph_mode: str | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    kv_cache_tokens: int | None = None
    max_concurrency: float | None = None
    max_concurrency_tokens: int | None = None
    kv_cache_gib: float | None = None
    model_memory_gib: float | None = None
    graph_memory_gib: float | None = None
    download_s: float | None = None
    weights_s: float | None = None
    compile_s: float | None = None
    compile_cache_hit: bool | None = None
    graph_capture_s: float | None = None
    init_engine_s: float | None = None
    ignored_settings: tuple[str, ...] = ()
    unknown_env: tuple[str, ...] = ()
    deprecations: tuple[str, ...] = ()
    caps: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Name what is known, for JSON; what the log does not say is left out.

        >>> ServerFacts(vllm_version="0.33.0", unknown_env=("VLLM_TYPO",)).as_dict()
        {'vllm_version': '0.33.0', 'unknown_env': ['VLLM_TYPO']}
        """
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value is not None and value != ()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What a log means.

    family: a name in `FAMILIES`, None unless the outcome is `failed`
    line, line_number: the decisive line as it stands in the log and its number from 1: the cause of
    a failure, or the words that say it is ready
    failure_class: the finer cause, e.g. `oom_weights`; limit: a legal bound the message carries
    warnings: what the log complains about although the server goes on, beyond the sentences in facts
    """

    outcome: LogOutcome
    family: str | None = None
    failure_class: str | None = None
    line: str | None = None
    line_number: int | None = None
    remedy: str | None = None
    limit: Limit | None = None
    facts: ServerFacts = field(default_factory=ServerFacts)
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Give the whole diagnosis for JSON: every key is there, null where there is nothing."""
        limit = self.limit
        return {
            "outcome": self.outcome,
            "family": self.family,
            "failure_class": self.failure_class,
            "line": self.line,
            "line_number": self.line_number,
            "remedy": self.remedy,
            "limit": None
            if limit is None
            else {"knob": limit.knob, "op": limit.op, "number": limit.number},
            "facts": self.facts.as_dict(),
            "warnings": list(self.warnings),
        }
