"""Which MoE backends an engine takes for which quantization of the experts.

The parser takes them all; each quantization has a table of its own in vLLM 0.33
(`model_executor/layers/fused_moe/oracle`). Which of the legal ones has a kernel for the GPU at hand
is left to the start of the server.
"""

import re
from collections.abc import Mapping

from autotune.model.serving_config import Setting

LEGAL: Mapping[str, frozenset[str]] = {
    "NVFP4": frozenset(
        [
            "b12x",
            "cutlass",
            "flashinfer_trtllm",
            "flashinfer_cutlass",
            "flashinfer_cutedsl",
            "flashinfer_moe_ep_cutedsl",
            "flashinfer_b12x",
            "marlin",
            "humming",
            "emulation",
        ]
    ),
    "FP8": frozenset(
        [
            "triton",
            "deep_gemm",
            "cutlass",
            "flashinfer_trtllm",
            "flashinfer_cutlass",
            "marlin",
            "humming",
            "aiter",
            "hpc",
        ]
    ),
    "MXFP4": frozenset(
        [
            "b12x",
            "deep_gemm",
            "flashinfer_trtllm",
            "flashinfer_cutlass",
            "flashinfer_moe_ep_cutedsl",
            "flashinfer_moe_ep_mega_deep_gemm",
            "triton",
            "triton_unfused",
            "humming",
            "marlin",
            "aiter",
            "aiter_triton_mxfp4_bf16",
            "aiter_triton_mxfp4_mxfp4",
            "emulation",
        ]
    ),
    "MXFP8": frozenset(
        ["flashinfer_trtllm", "deep_gemm", "marlin", "xpu", "aiter", "triton", "humming"]
    ),
    "WNA16": frozenset(["triton", "marlin", "humming", "flashinfer_trtllm", "emulation", "rdna3"]),
}
"""Beside `auto`, which all take."""

_BY_FLAG: Mapping[str, str] = {
    "modelopt_fp4": "NVFP4",
    "fp8": "FP8",
    "fbgemm_fp8": "FP8",
    "modelopt_mxfp8": "MXFP8",
    "mxfp8": "MXFP8",
    "mxfp4": "MXFP4",
    "gpt_oss_mxfp4": "MXFP4",
    **dict.fromkeys(
        ("awq", "auto_awq", "awq_marlin", "gptq", "auto_gptq", "gptq_marlin", "moe_wna16"), "WNA16"
    ),
}
# In the order in which they are looked for: "mxfp8" also holds "fp8".
_BY_NAME = (
    ("nvfp4", "NVFP4"),
    ("mxfp4", "MXFP4"),
    ("mxfp8", "MXFP8"),
    ("fp8", "FP8"),
    ("awq", "WNA16"),
    ("gptq", "WNA16"),
    ("w4a16", "WNA16"),
)


def quantization_of(model: str, flag: Setting) -> str | None:
    """Tell the quantization of the experts by the flag, else by the name; None where neither says.

    >>> quantization_of("nvidia/Qwen3.6-35B-A3B-NVFP4", "modelopt")
    'NVFP4'
    """
    if isinstance(flag, str) and flag in _BY_FLAG:
        return _BY_FLAG[flag]
    words = re.split(r"[^a-z0-9]+", model.lower())
    return next((meaning for word, meaning in _BY_NAME if word in words), None)


def refusal(quantization: str, backend: Setting) -> str | None:
    """Say what vLLM will say at the start; None where it takes the backend."""
    legal = LEGAL[quantization]
    word = str(backend).lower().replace("-", "_")
    if backend is None or word in {"auto", *legal}:
        return None
    return (
        f"vLLM refuses {word} for {quantization} experts when it starts; "
        f"it takes: {', '.join(sorted(legal))}"
    )
