"""Machines. Only the DGX Spark is fitted; the others are scaled from it by bandwidth and compute."""

from collections.abc import Mapping
from types import MappingProxyType

from autotune.simulator.profiles import HardwareProfile


def _frozen(**table: float) -> Mapping[str, float]:
    return MappingProxyType(table)


# b12x is 4 % slower than Marlin on sm_121 and Humming equals it within noise (practitioner, five
# repeats); the CUTLASS paths fall between. The TensorRT-LLM and CuTe kernels have no sm_121 build.
_SPARK_MOE: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "nvfp4": _frozen(
            marlin=1.0,
            humming=1.0,
            b12x=0.96,
            flashinfer_b12x=0.96,
            flashinfer_cutlass=0.97,
            cutlass=0.95,
        ),
        "fp8": _frozen(
            triton=1.0, cutlass=0.98, flashinfer_cutlass=0.97, marlin=0.93, humming=0.94
        ),
        "bf16": _frozen(triton=1.0, flashinfer_cutlass=0.97, batched_triton=0.82),
    }
)
_SPARK_ATTENTION = _frozen(FLASH_ATTN=1.0, FLASHINFER=1.0, TRITON_ATTN=0.96, FLEX_ATTENTION=0.80)
_SPARK_MOE_AUTO: Mapping[str, str] = MappingProxyType(
    {"nvfp4": "marlin", "fp8": "triton", "bf16": "triton"}
)
_ATTENTION_ORDER = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION")
# The FlashAttention that runs outside Hopper (FA2) cannot read an fp8 cache.
_FP8_KV = frozenset({"FLASHINFER", "TRITON_ATTN"})
# GB10: mmap loading reads about 0.25 GB/s (22 GB in 90 s and more), the direct loaders ten times that.
_SPARK_LOAD = _frozen(
    auto=0.25,
    safetensors=0.25,
    fastsafetensors=1.0,
    instanttensor=2.0,
    runai_streamer=0.6,
    dummy=50.0,
)

DGX_SPARK = HardwareProfile(
    name="dgx-spark",
    device="NVIDIA GB10",
    fitted=True,
    memory_gib=121.69,
    free_at_start_gib=117.2,
    bandwidth_gb_s=245.0,
    # t0 = 11.31 ms was fitted as a whole; 9.80 ms of it is fixed_read_gb of the NVFP4 model.
    step_overhead_ms=1.514,
    batch_overhead_ms=2.27,
    decode_token_ms=0.201,
    prefill_token_ms=0.13,
    prefill_attention_ms=4.5e-6,
    # 59 -> 26 tok/s for one stream with --enforce-eager (reported).
    eager_overhead_ms=21.0,
    # 136 -> 140.7 tok/s at four streams with --async-scheduling (reported).
    blocking_schedule_ms=1.4,
    # vLLM's own defaults for GB10, engine/arg_utils.py of 0.33.
    default_max_num_seqs=256,
    default_max_num_batched_tokens=2048,
    startup_factor=1.0,
    load_gb_s=_SPARK_LOAD,
    moe_speed=_SPARK_MOE,
    moe_auto=_SPARK_MOE_AUTO,
    attention_speed=_SPARK_ATTENTION,
    attention_auto=_ATTENTION_ORDER,
    fp8_kv_attention=_FP8_KV,
)

JETSON_THOR = HardwareProfile(
    name="jetson-thor",
    device="NVIDIA Thor",
    fitted=False,
    memory_gib=122.8,
    free_at_start_gib=116.0,
    bandwidth_gb_s=245.0,
    step_overhead_ms=3.0,
    batch_overhead_ms=2.8,
    # A prefill chunk takes 1.9 times as long as on the Spark (p99 ITL of the published runs).
    decode_token_ms=0.38,
    prefill_token_ms=0.247,
    prefill_attention_ms=8.5e-6,
    eager_overhead_ms=26.0,
    blocking_schedule_ms=1.8,
    default_max_num_seqs=256,
    default_max_num_batched_tokens=2048,
    startup_factor=1.25,
    load_gb_s=_SPARK_LOAD,
    moe_speed=_SPARK_MOE,
    moe_auto=_SPARK_MOE_AUTO,
    attention_speed=_SPARK_ATTENTION,
    attention_auto=_ATTENTION_ORDER,
    fp8_kv_attention=_FP8_KV,
)

_SERVER_LOAD = _frozen(
    auto=1.5,
    safetensors=1.5,
    fastsafetensors=3.0,
    instanttensor=5.0,
    runai_streamer=3.0,
    dummy=50.0,
)

RTX_PRO_6000 = HardwareProfile(
    name="rtx-pro-6000",
    device="NVIDIA RTX PRO 6000 Blackwell",
    fitted=False,
    memory_gib=94.97,
    free_at_start_gib=94.2,
    bandwidth_gb_s=1613.0,
    step_overhead_ms=1.2,
    batch_overhead_ms=1.7,
    # A prefill chunk takes 1/4.4 of the Spark's time (p99 ITL of the published runs).
    decode_token_ms=0.046,
    prefill_token_ms=0.0295,
    prefill_attention_ms=1.0e-6,
    eager_overhead_ms=9.0,
    blocking_schedule_ms=0.7,
    default_max_num_seqs=1024,
    default_max_num_batched_tokens=8192,
    startup_factor=0.5,
    load_gb_s=_SERVER_LOAD,
    moe_speed=MappingProxyType(
        {
            # b12x: 1755 -> 1974 tok/s on four RTX 5090 (reported).
            "nvfp4": _frozen(
                marlin=1.0,
                humming=1.0,
                flashinfer_cutlass=1.02,
                cutlass=1.0,
                b12x=1.12,
                flashinfer_b12x=1.12,
            ),
            "fp8": _frozen(
                triton=1.0, cutlass=1.02, flashinfer_cutlass=1.02, marlin=0.92, humming=0.94
            ),
            "bf16": _frozen(triton=1.0, flashinfer_cutlass=1.0, batched_triton=0.85),
        }
    ),
    moe_auto=MappingProxyType({"nvfp4": "flashinfer_cutlass", "fp8": "triton", "bf16": "triton"}),
    attention_speed=_SPARK_ATTENTION,
    attention_auto=_ATTENTION_ORDER,
    fp8_kv_attention=_FP8_KV,
)

H200 = HardwareProfile(
    name="h200",
    device="NVIDIA H200",
    fitted=False,
    memory_gib=139.8,
    free_at_start_gib=139.0,
    bandwidth_gb_s=4300.0,
    step_overhead_ms=1.3,
    batch_overhead_ms=1.2,
    decode_token_ms=0.026,
    prefill_token_ms=0.0165,
    prefill_attention_ms=5.5e-7,
    eager_overhead_ms=9.0,
    blocking_schedule_ms=0.7,
    default_max_num_seqs=1024,
    default_max_num_batched_tokens=8192,
    startup_factor=0.5,
    load_gb_s=_SERVER_LOAD,
    moe_speed=MappingProxyType(
        {
            # Hopper has no FP4 tensor cores: the weight-only kernels are all there is.
            "nvfp4": _frozen(marlin=1.0, humming=1.02),
            "fp8": _frozen(
                triton=1.0,
                cutlass=1.03,
                deep_gemm=1.04,
                flashinfer_cutlass=1.03,
                marlin=0.9,
                humming=0.95,
            ),
            "bf16": _frozen(triton=1.0, flashinfer_cutlass=1.03, batched_triton=0.85),
        }
    ),
    moe_auto=MappingProxyType({"nvfp4": "marlin", "fp8": "deep_gemm", "bf16": "triton"}),
    attention_speed=_frozen(FLASH_ATTN=1.0, FLASHINFER=0.99, TRITON_ATTN=0.93, FLEX_ATTENTION=0.75),
    attention_auto=_ATTENTION_ORDER,
    fp8_kv_attention=frozenset({"FLASH_ATTN", "FLASHINFER", "TRITON_ATTN"}),
)

HARDWARE: Mapping[str, HardwareProfile] = MappingProxyType(
    {profile.name: profile for profile in (DGX_SPARK, JETSON_THOR, RTX_PRO_6000, H200)}
)
