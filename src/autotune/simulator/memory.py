"""What fits: weights, activations, CUDA graphs and the KV cache, or the error that vLLM ends with.

One GPU; unified and discrete memory are treated alike. GiB is 2**30 bytes.
"""

from dataclasses import dataclass

from autotune.simulator.profiles import GIB, KV_CACHE_FACTORS, HardwareProfile, ModelProfile
from autotune.simulator.refusals import engine_value_error, out_of_memory
from autotune.simulator.settings import ServeSettings

_GRAPH_GIB_PER_SIZE = 0.008
_GRAPH_BASE_GIB = 0.12
# What profiling does not see: fragmentation that grows with the batch, and the graph capture itself.
_UNSEEN_MIB_PER_TOKEN = 0.05
_UNSEEN_GIB = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Where the memory goes."""

    weights_gib: float
    activation_gib: float
    graphs_gib: float
    kv_gib: float
    kv_tokens: int
    block_size: int
    max_model_len: int

    @property
    def blocks(self) -> int:
        return self.kv_tokens // self.block_size


def check_free(settings: ServeSettings, hardware: HardwareProfile) -> None:
    """Refuse a utilization that the free memory cannot meet.

    Raises:
        RefusedError: There is less free memory than was asked for.
    """
    if "kv_cache_memory_bytes" in settings.given:
        return
    wanted = settings.gpu_memory_utilization * hardware.memory_gib
    if wanted > hardware.free_at_start_gib:
        raise engine_value_error(
            f"Free memory on device cuda:0 ({hardware.free_at_start_gib:.2f}/"
            f"{hardware.memory_gib:.2f} GiB) on startup is less than desired GPU memory utilization "
            f"({settings.gpu_memory_utilization}, {wanted:.2f} GiB). Decrease GPU memory utilization "
            "or reduce GPU memory used by other processes."
        )


def check_weights(hardware: HardwareProfile, model: ModelProfile) -> None:
    """Refuse weights that are larger than the memory.

    Raises:
        RefusedError: CUDA would run out of memory while the weights are created.
    """
    if model.weights_gib > hardware.free_at_start_gib - 1.0:
        raise out_of_memory(wanted_gib=1.0, total_gib=hardware.memory_gib, free_gib=0.4)


def plan(settings: ServeSettings, hardware: HardwareProfile, model: ModelProfile) -> MemoryPlan:
    """Divide the memory as vLLM's profile run does.

    Raises:
        RefusedError: Out of memory, or no room for a useful KV cache.
    """
    activation = (
        model.runtime_gib
        + model.activation_mib_per_token * settings.limits.max_num_batched_tokens / 1024
    )
    free = hardware.free_at_start_gib - model.weights_gib
    if activation > free:
        raise out_of_memory(
            wanted_gib=activation - model.runtime_gib,
            total_gib=hardware.memory_gib,
            free_gib=free - model.runtime_gib,
        )
    graphs = _graphs_gib(settings)
    kv_gib = _kv_gib(settings, hardware, model.weights_gib + activation + graphs)
    speculation = settings.speculation
    share = 1.0 - (speculation.kv_share if speculation else 0.0)
    bytes_per_token = model.kv_bytes_per_token * KV_CACHE_FACTORS[settings.kv_cache_dtype]
    block_size = settings.given.get("block_size") or 16
    tokens = int(kv_gib * GIB * share / bytes_per_token) // block_size * block_size
    if "num_gpu_blocks_override" in settings.given:
        tokens = settings.given["num_gpu_blocks_override"] * block_size
    length = _checked_length(settings, kv_gib, tokens, bytes_per_token / share)
    _check_state_blocks(settings, model, kv_gib * share)
    _check_capture(settings, hardware, model.weights_gib + activation + graphs + kv_gib)
    return MemoryPlan(
        weights_gib=model.weights_gib,
        activation_gib=activation,
        graphs_gib=graphs,
        kv_gib=kv_gib,
        kv_tokens=tokens,
        block_size=block_size,
        max_model_len=length,
    )


def _graphs_gib(settings: ServeSettings) -> float:
    sizes = len(settings.capture_sizes)
    return _GRAPH_BASE_GIB + _GRAPH_GIB_PER_SIZE * sizes if sizes else 0.0


def _kv_gib(settings: ServeSettings, hardware: HardwareProfile, used_gib: float) -> float:
    if "kv_cache_memory_bytes" in settings.given:
        return float(settings.given["kv_cache_memory_bytes"]) / GIB
    available = settings.gpu_memory_utilization * hardware.memory_gib - used_gib
    if available <= 0:
        raise engine_value_error(
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
            "initializing the engine (this flag also controls CPU memory reservation on the CPU "
            "backend, despite its name). See "
            "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
        )
    return available


def _checked_length(
    settings: ServeSettings, kv_gib: float, tokens: int, bytes_per_token: float
) -> int:
    length = settings.max_model_len
    if length <= tokens:
        return length
    if settings.fit_model_len:
        return tokens
    needed = length * bytes_per_token / GIB
    raise engine_value_error(
        f"To serve at least one request with the model's max seq len ({length}), ({needed:.2f} GiB "
        f"KV cache is needed, which is larger than the available KV cache memory ({kv_gib:.2f} GiB). "
        f"Based on the available memory, the estimated maximum model length is {tokens}. Try "
        "increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or "
        "decreasing `max_model_len` when initializing the engine. See "
        "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
    )


def _check_state_blocks(settings: ServeSettings, model: ModelProfile, kv_gib: float) -> None:
    if not model.state_gb or not settings.capture_sizes:
        return
    blocks = int(kv_gib * GIB / (model.state_gb * 1e9))
    sequences = settings.limits.max_num_seqs
    if sequences > blocks:
        raise engine_value_error(
            f"max_num_seqs ({sequences}) exceeds available Mamba cache blocks ({blocks}). Each decode "
            "sequence requires one Mamba cache block, so CUDA graph capture cannot proceed. Please "
            f"lower max_num_seqs to at most {blocks} or increase gpu_memory_utilization."
        )


def _check_capture(settings: ServeSettings, hardware: HardwareProfile, used_gib: float) -> None:
    """High utilization boots until the capture or a large batch takes what profiling did not see."""
    unseen = _UNSEEN_GIB + _UNSEEN_MIB_PER_TOKEN * settings.limits.max_num_batched_tokens / 1024
    free = hardware.free_at_start_gib - used_gib
    if unseen > free:
        raise out_of_memory(wanted_gib=unseen, total_gib=hardware.memory_gib, free_gib=free)
