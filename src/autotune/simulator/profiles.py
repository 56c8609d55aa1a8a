"""The shape of what the simulator knows about machines and models, and vLLM's lists of backends.

The values are in `hardware_profiles` and `model_profiles`, the formulas in `performance`.

Only the DGX Spark with the NVFP4 model is fitted, to a practitioner's MTP on/off table (GB10,
max-num-seqs 32, utilization 0.8; rms 1.2 %). Every other pair is scaled from it by bandwidth and
compute and carries `fitted=False`. GB is 1e9 bytes, GiB 2**30.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareProfile:
    """One host with its GPU.

    bandwidth_gb_s: what kernels reach, not the data sheet's figure
    free_at_start_gib: what is left of `memory_gib` for vLLM before it starts
    step_overhead_ms: host work of a step that nothing hides; batch_overhead_ms is added from two sequences on
    decode_token_ms, prefill_token_ms, prefill_attention_ms: compute for a model of 3 B active parameters;
        the last for one token and one token of context before it
    load_gb_s: checkpoint bytes per second by load format
    moe_speed, attention_speed: speed of a backend relative to the fitted one; a backend that is
        absent has no kernel for this GPU
    """

    name: str
    device: str
    fitted: bool
    memory_gib: float
    free_at_start_gib: float
    bandwidth_gb_s: float
    step_overhead_ms: float
    batch_overhead_ms: float
    decode_token_ms: float
    prefill_token_ms: float
    prefill_attention_ms: float
    eager_overhead_ms: float
    blocking_schedule_ms: float
    default_max_num_seqs: int
    default_max_num_batched_tokens: int
    startup_factor: float
    load_gb_s: Mapping[str, float]
    moe_speed: Mapping[str, Mapping[str, float]]
    moe_auto: Mapping[str, str]
    attention_speed: Mapping[str, float]
    attention_auto: tuple[str, ...]
    fp8_kv_attention: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """One checkpoint.

    routed_expert_gb: all experts together; the share that a step reads is the model's job
    fixed_read_gb: read by every step whatever the batch (attention, shared expert, lm_head)
    state_gb: recurrent state of one sequence
    routing_correlation: exponent of the token count in the expert coverage; 1 is independent routing
    acceptance: chance that the draft token at a position and all before it are accepted
    draft_kv_share: share of the KV pool that a draft model takes
    """

    name: str
    checkpoints: tuple[str, ...]
    architecture: str
    quantization: str | None
    quantization_flags: tuple[str, ...]
    moe_label: str | None
    max_model_len: int
    weights_gib: float
    checkpoint_gib: float
    routed_expert_gb: float
    experts: int
    experts_per_token: int
    routing_correlation: float
    fixed_read_gb: float
    state_gb: float
    kv_bytes_per_token: int
    compute_factor: float
    runtime_gib: float
    activation_mib_per_token: float
    attention_heads: int = 16
    draft_read_gb: float = 0.0
    draft_kv_share: float = 0.0
    predict_layers: int = 0
    acceptance: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationProfile:
    """A way to draft that needs no layers of the model's own."""

    acceptance: tuple[float, ...]
    draft_read_gb: float
    kv_share: float = 0.0
    needs_model: bool = False
    needs: str | None = field(default=None)


# The order of the lists is the order in which vLLM prints them.
MOE_BACKENDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        # `emulation` is left out: a practitioner's build refuses it for W4A16 as it does `triton`.
        "nvfp4": (
            "b12x",
            "cutlass",
            "flashinfer_trtllm",
            "flashinfer_cutlass",
            "flashinfer_cutedsl",
            "flashinfer_moe_ep_cutedsl",
            "flashinfer_b12x",
            "marlin",
            "humming",
        ),
        "fp8": (
            "triton",
            "deep_gemm",
            "cutlass",
            "flashinfer_trtllm",
            "flashinfer_cutlass",
            "marlin",
            "humming",
            "aiter",
            "hpc",
        ),
        "bf16": ("triton", "batched_triton", "flashinfer_trtllm", "flashinfer_cutlass", "aiter"),
    }
)

ATTENTION_BACKENDS: tuple[str, ...] = (
    "FLASH_ATTN",
    "FLASH_ATTN_DIFFKV",
    "TRITON_ATTN",
    "TRITON_ATTN_DIFFKV",
    "TRITON_FLASH_ATTN",
    "FLASHINFER",
    "TRITON_FLASHINFER",
    "FLEX_ATTENTION",
    "TURBOQUANT",
    "ULTRAQUANT",
    "HPC_ATTN",
    "B12X",
    "TORCH_SDPA",
    "NO_ATTENTION",
    "FLASHINFER_MLA",
    "TRITON_MLA",
    "CUTLASS_MLA",
    "FLASHMLA",
    "FLASH_ATTN_MLA",
    "CPU_ATTN",
    "ROCM_ATTN",
    "CUSTOM",
)

# Bytes of a cache element relative to bfloat16.
KV_CACHE_FACTORS: Mapping[str, float] = MappingProxyType(
    {
        "auto": 1.0,
        "float16": 1.0,
        "bfloat16": 1.0,
        "fp8": 0.5,
        "fp8_e4m3": 0.5,
        "fp8_e5m2": 0.5,
        "fp8_inc": 0.5,
        "fp8_per_token_head": 0.51,
        "int8_per_token_head": 0.51,
        "int4_per_token_head": 0.26,
        "nvfp4": 0.28,
        "nvfp4_4over6": 0.28,
        "turboquant_k8v4": 0.38,
        "turboquant_4bit_nc": 0.27,
    }
)
