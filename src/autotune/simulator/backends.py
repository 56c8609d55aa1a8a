"""Which kernels the engine really uses, and what it refuses. Messages are vLLM 0.33's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.simulator.profiles import (
    KV_CACHE_FACTORS,
    MOE_BACKENDS,
    HardwareProfile,
    ModelProfile,
)
from autotune.simulator.refusals import engine_value_error

_MOE_NAMES = {"cutlass": "VLLM_CUTLASS"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """The chosen kernels; `potential_*` are the candidates that vLLM lists beside them."""

    attention: str
    attention_was_asked: bool
    potential_attention: tuple[str, ...]
    moe: str | None
    potential_moe: tuple[str, ...]
    speed: float

    @property
    def moe_log_name(self) -> str:
        return _MOE_NAMES.get(self.moe or "", (self.moe or "").upper())


def choose(
    given: Mapping[str, Any], hardware: HardwareProfile, model: ModelProfile, kv_cache_dtype: str
) -> Backends:
    """Select as vLLM does.

    Raises:
        RefusedError: A backend that was asked for cannot serve this model on this GPU.
    """
    if kv_cache_dtype not in KV_CACHE_FACTORS:
        raise engine_value_error(f"Unknown kv_cache_dtype: {kv_cache_dtype}")
    attention, candidates = _attention(given, hardware, kv_cache_dtype)
    moe = _moe(given, hardware, model) if model.moe_label else None
    speed = hardware.attention_speed[attention]
    potential: tuple[str, ...] = ()
    if moe is not None:
        table = hardware.moe_speed[model.quantization or "bf16"]
        speed *= table[moe]
        potential = tuple(_MOE_NAMES.get(name, name.upper()) for name in table)
    return Backends(
        attention=attention,
        attention_was_asked=_asked_attention(given) is not None,
        potential_attention=candidates,
        moe=moe,
        potential_moe=potential,
        speed=speed,
    )


def _asked_attention(given: Mapping[str, Any]) -> str | None:
    asked = given.get("attention_backend") or (given.get("attention_config") or {}).get("backend")
    return None if asked is None or asked.upper() == "AUTO" else str(asked).upper()


def _attention(
    given: Mapping[str, Any], hardware: HardwareProfile, kv_cache_dtype: str
) -> tuple[str, tuple[str, ...]]:
    quantized = KV_CACHE_FACTORS[kv_cache_dtype] < 1
    candidates = tuple(
        name
        for name in hardware.attention_auto
        if not quantized or name in hardware.fp8_kv_attention
    )
    asked = _asked_attention(given)
    if asked is None:
        return candidates[0], candidates
    reasons = []
    if asked not in hardware.attention_speed:
        reasons.append("compute capability not supported")
    elif asked not in candidates:
        reasons.append("kv_cache_dtype not supported")
    if reasons:
        raise engine_value_error(
            f"Selected backend AttentionBackendEnum.{asked} is not valid for this configuration. "
            f"Reason: {reasons}"
        )
    return asked, candidates


# vLLM spells NVFP4 in two ways: so in refusals, "NvFp4" in its log.
_REFUSED_AS = {"NvFp4": "NvFP4"}


def _moe(given: Mapping[str, Any], hardware: HardwareProfile, model: ModelProfile) -> str:
    quantization = model.quantization or "bf16"
    asked = given.get("moe_backend", "auto")
    if asked == "auto":
        return hardware.moe_auto[quantization]
    legal = MOE_BACKENDS[quantization]
    if asked not in legal:
        label = model.moe_label or ""
        raise engine_value_error(
            f"moe_backend='{asked}' is not supported for {_REFUSED_AS.get(label, label)} MoE. "
            f"Expected one of {list(legal)}."
        )
    if asked not in hardware.moe_speed[quantization]:
        name = _MOE_NAMES.get(asked, asked.upper())
        raise engine_value_error(
            f"{model.moe_label} MoE backend '{name}' does not support the deployment configuration "
            "since kernel does not support current device."
        )
    return str(asked)
