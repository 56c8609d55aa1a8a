"""From written arguments to what the engine will do: defaults filled in, illegal values refused.

Only the checks that vLLM makes before it starts an engine are here; the rest is in `backends` and
`memory`. Messages are vLLM 0.33's.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.simulator.arguments import ServeArguments
from autotune.simulator.profiles import ATTENTION_BACKENDS, HardwareProfile, ModelProfile
from autotune.simulator.refusals import Refusal, RefusedError, api_value_error, validation_error
from autotune.simulator.speculation import Speculation, read_speculation


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """What one step and one server may hold."""

    max_num_seqs: int
    max_running: int
    max_num_batched_tokens: int
    chunked_prefill: bool
    long_prefill_threshold: int
    prefill_interval: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """The server's configuration as vLLM would resolve it, before any backend is chosen."""

    model: str
    served_names: tuple[str, ...]
    host: str
    port: int
    api_keys: tuple[str, ...]
    limits: SchedulerLimits
    speculation: Speculation | None
    max_model_len: int
    fit_model_len: bool
    enforce_eager: bool
    capture_sizes: tuple[int, ...]
    async_scheduling: bool
    prefix_caching: bool
    stream_interval: int
    gpu_memory_utilization: float
    kv_cache_dtype: str
    load_format: str
    compile_hash: str
    given: Mapping[str, Any]

    def flag(self, name: str) -> bool:
        return bool(self.given.get(name, False))


def resolve(
    arguments: ServeArguments, hardware: HardwareProfile, model: ModelProfile
) -> ServeSettings:
    """Fill in vLLM's defaults.

    Raises:
        RefusedError: vLLM's configuration check would refuse these arguments.
    """
    given = arguments.given
    _check_values(given, model)
    limits = _limits(given, hardware, model)
    speculation = read_speculation(given, model)
    eager = bool(given.get("enforce_eager", False)) or given.get("optimization_level") == "0"
    names = given.get("served_model_name") or [arguments.model]
    max_model_len = given.get("max_model_len")
    return ServeSettings(
        model=arguments.model,
        served_names=tuple(names),
        host=given.get("host") or "127.0.0.1",
        port=given.get("port", 8000),
        api_keys=_api_keys(given),
        limits=limits,
        speculation=speculation,
        max_model_len=model.max_model_len if max_model_len in {None, -1} else int(max_model_len),
        fit_model_len=max_model_len == -1,
        enforce_eager=eager,
        capture_sizes=() if eager else _capture_sizes(given, limits, speculation),
        async_scheduling=given.get("async_scheduling", True),
        prefix_caching=given.get("enable_prefix_caching", True),
        stream_interval=given.get("stream_interval", 1),
        gpu_memory_utilization=given.get("gpu_memory_utilization", 0.92),
        kv_cache_dtype=given.get("kv_cache_dtype", "auto"),
        load_format=given.get("load_format", "auto"),
        compile_hash=_compile_hash(arguments),
        given=given,
    )


def _api_keys(given: Mapping[str, Any]) -> tuple[str, ...]:
    written = given.get("api_key") or [os.environ.get("VLLM_API_KEY", "")]
    return tuple(key for key in written if key)


def _check_values(given: Mapping[str, Any], model: ModelProfile) -> None:
    attention = given.get("attention_backend")
    if attention and attention.upper() not in {*ATTENTION_BACKENDS, "AUTO"}:
        raise api_value_error(
            f"Unknown attention backend: '{attention.upper()}'. "
            f"Valid options are: {', '.join(ATTENTION_BACKENDS)}"
        )
    utilization = given.get("gpu_memory_utilization", 0.92)
    if utilization > 1:
        raise validation_error(
            "CacheConfig",
            "Input should be less than or equal to 1 [type=less_than_equal, "
            f"input_value={utilization}, input_type=float]",
            field="gpu_memory_utilization",
        )
    if utilization <= 0:
        raise validation_error(
            "CacheConfig",
            f"Input should be greater than 0 [type=greater_than, input_value={utilization}, "
            "input_type=float]",
            field="gpu_memory_utilization",
        )
    wanted = given.get("max_model_len")
    if wanted is not None and wanted > model.max_model_len:
        raise validation_error(
            "ModelConfig",
            f"User-specified max_model_len ({wanted}) is greater than the derived max_model_len "
            f"(max_position_embeddings={model.max_model_len} or model_max_length=None in model's "
            "config.json). To allow overriding this maximum, set the env var "
            "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
        )
    _check_quantization(given.get("quantization"), model)
    _check_parallel(given, model)
    if given.get("enable_auto_tool_choice") and not given.get("tool_call_parser"):
        raise RefusedError(
            Refusal(
                process="api",
                exception="TypeError",
                message="Error: --enable-auto-tool-choice requires --tool-call-parser",
            )
        )


def _check_quantization(asked: str | None, model: ModelProfile) -> None:
    if asked is None or asked in model.quantization_flags:
        return
    if model.quantization is None:
        return  # quantized while it loads; the simulator keeps the checkpoint's speed
    raise validation_error(
        "ModelConfig",
        f"Quantization method specified in the model config ({model.quantization_flags[0]}) does not "
        f"match the quantization method specified in the `quantization` argument ({asked}).",
    )


def _check_parallel(given: Mapping[str, Any], model: ModelProfile) -> None:
    tensor = given.get("tensor_parallel_size", 1)
    if model.attention_heads % tensor:
        raise validation_error(
            "VllmConfig",
            f"Total number of attention heads ({model.attention_heads}) must be divisible by tensor "
            f"parallel size ({tensor}).",
        )
    world = tensor * given.get("pipeline_parallel_size", 1)
    if world > 1:
        raise validation_error(
            "ParallelConfig",
            f"World size ({world}) is larger than the number of available GPUs (1) in this node. If "
            "this is intentional and you are using: - ray, set '--distributed-executor-backend ray'. "
            "- multiprocessing, set '--nnodes' appropriately.",
        )


def _limits(
    given: Mapping[str, Any], hardware: HardwareProfile, model: ModelProfile
) -> SchedulerLimits:
    doubled = 2 if given.get("performance_mode") == "throughput" else 1
    sequences = given.get("max_num_seqs") or hardware.default_max_num_seqs * doubled
    chunked = given.get("enable_chunked_prefill", True)
    written = given.get("max_model_len")
    length = model.max_model_len if written in {None, -1} else int(written)
    batched = given.get("max_num_batched_tokens")
    if batched is None:
        batched = hardware.default_max_num_batched_tokens * doubled
        batched = max(batched, sequences) if chunked else max(batched, length)
    if batched < sequences:
        raise validation_error(
            "SchedulerConfig",
            f"max_num_batched_tokens ({batched}) must be greater than or equal to max_num_seqs "
            f"({sequences}).",
        )
    if not chunked and batched < length:
        raise validation_error(
            "SchedulerConfig",
            f"max_num_batched_tokens ({batched}) is smaller than max_model_len ({length}). This "
            "effectively limits the maximum sequence length to max_num_batched_tokens and makes vLLM "
            "reject longer sequences. Please increase max_num_batched_tokens or decrease max_model_len.",
        )
    active = given.get("max_num_active_seqs") or sequences
    if active > sequences:
        raise validation_error(
            "SchedulerConfig",
            f"max_num_active_seqs ({active}) cannot be greater than max_num_seqs ({sequences}).",
        )
    return SchedulerLimits(
        max_num_seqs=sequences,
        max_running=active,
        max_num_batched_tokens=batched,
        chunked_prefill=chunked,
        long_prefill_threshold=given.get("long_prefill_token_threshold", 0),
        prefill_interval=max(1, given.get("prefill_schedule_interval", 1)),
    )


# vLLM never captures more than this by default.
_LARGEST_GRAPH = 512


def _capture_sizes(
    given: Mapping[str, Any], limits: SchedulerLimits, speculation: Speculation | None
) -> tuple[int, ...]:
    """List the token counts that get a CUDA graph."""
    compilation = given.get("compilation_config") or {}
    explicit = given.get("cudagraph_capture_sizes") or compilation.get("cudagraph_capture_sizes")
    if str(compilation.get("cudagraph_mode", "")).upper() == "NONE":
        return ()
    per_sequence = 1 + (speculation.draft_tokens if speculation else 0)
    if explicit:
        return tuple(sorted(int(size) for size in explicit))
    largest = given.get("max_cudagraph_capture_size") or min(
        limits.max_num_seqs * per_sequence * 2, _LARGEST_GRAPH
    )
    largest = min(largest, limits.max_num_batched_tokens)
    sizes = {1, 2, 4, *range(8, 257, 8), *range(272, largest + 1, 16)}
    # 0.33 adds the sizes of whole speculative batches.
    sizes |= {per_sequence * count for count in range(1, limits.max_num_seqs + 1)}
    return tuple(sorted(size for size in sizes if size <= largest))


# What changes vLLM's VllmConfig.compute_hash; the number of draft tokens does not.
_HASHED = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "block_size",
    "attention_backend",
    "moe_backend",
    "linear_backend",
    "enforce_eager",
    "optimization_level",
    "compilation_config",
    "cudagraph_capture_sizes",
    "max_cudagraph_capture_size",
    "max_logprobs",
    "generation_config",
    "mamba_backend",
    "async_scheduling",
)


def _compile_hash(arguments: ServeArguments) -> str:
    speculation = arguments.given.get("speculative_config") or {}
    key = {name: arguments.given.get(name) for name in _HASHED}
    key["model"] = arguments.model
    key["speculation"] = [speculation.get("method"), speculation.get("model")]
    text = json.dumps(key, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]
