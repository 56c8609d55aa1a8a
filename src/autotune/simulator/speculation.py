"""Reads --speculative-config and its shortcuts: how drafts are made, or why they cannot be."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.simulator.model_profiles import SPECULATION
from autotune.simulator.profiles import ModelProfile
from autotune.simulator.refusals import Refusal, RefusedError, validation_error


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How drafts are made.

    by_batch: (first, last, draft tokens) for numbers of running sequences; empty when it is constant
    """

    method: str
    draft_tokens: int
    acceptance: tuple[float, ...]
    draft_read_gb: float
    kv_share: float
    by_batch: tuple[tuple[int, int, int], ...] = ()

    def tokens_for(self, running: int) -> int:
        for first, last, tokens in self.by_batch:
            if first <= running <= last:
                return tokens
        return self.draft_tokens


_SPECULATION_KEYS = {
    "num_speculative_tokens",
    "model",
    "method",
    "draft_tensor_parallel_size",
    "quantization",
    "moe_backend",
    "attention_backend",
    "kv_cache_dtype",
    "max_model_len",
    "revision",
    "enforce_eager",
    "disable_padded_drafter_batch",
    "draft_lm_head_quantization",
    "use_local_argmax_reduction",
    "prompt_lookup_min",
    "prompt_lookup_max",
    "parallel_drafting",
    "num_speculative_tokens_per_batch_size",
    "rejection_sample_method",
    "draft_sample_method",
    "enable_adaptive_verification",
}


def read_speculation(given: Mapping[str, Any], model: ModelProfile) -> Speculation | None:
    written = dict(given.get("speculative_config") or {})
    for key, flag in (
        ("method", "spec_method"),
        ("model", "spec_model"),
        ("num_speculative_tokens", "spec_tokens"),
    ):
        if flag in given:
            written[key] = given[flag]
    if not written:
        return None
    for key, value in written.items():
        if key not in _SPECULATION_KEYS:
            raise validation_error(
                "SpeculativeConfig",
                f"Unexpected keyword argument [type=unexpected_keyword_argument, "
                f"input_value={value!r}, input_type={type(value).__name__}]",
                field=key,
            )
    method = str(written.get("method") or ("draft_model" if written.get("model") else "mtp"))
    tokens = int(written.get("num_speculative_tokens") or max(1, model.predict_layers))
    plan = _draft_plan(method, tokens, model, has_model=bool(written.get("model")))
    return Speculation(
        by_batch=tuple(
            (int(first), int(last), int(count))
            for first, last, count in written.get("num_speculative_tokens_per_batch_size") or ()
        ),
        **plan,
    )


def _draft_plan(
    method: str, tokens: int, model: ModelProfile, *, has_model: bool
) -> dict[str, Any]:
    if method == "mtp" or method.endswith("_mtp"):
        if not model.predict_layers:
            raise _spec_refusal(
                "NotImplementedError", f"Unsupported speculative method: '{method}'"
            )
        if tokens > model.predict_layers and tokens % model.predict_layers:
            raise validation_error(
                "SpeculativeConfig",
                f"num_speculative_tokens:{tokens} must be divisible by "
                f"n_predict={model.predict_layers}",
            )
        return {
            "method": "mtp",
            "draft_tokens": tokens,
            "acceptance": model.acceptance,
            "draft_read_gb": model.draft_read_gb,
            "kv_share": model.draft_kv_share,
        }
    if method == "suffix":
        raise _spec_refusal(
            "ImportError",
            "Arctic Inference is required for suffix decoding. Install via "
            "`pip install arctic-inference==0.1.1`.",
        )
    profile = SPECULATION.get(method)
    if profile is None:
        names = "', '".join([*SPECULATION, "mtp", "suffix"])
        raise validation_error(
            "SpeculativeConfig",
            f"Input should be '{names}' [type=literal_error, input_value='{method}', input_type=str]",
            field="method",
        )
    if profile.needs_model and not has_model:
        raise validation_error("SpeculativeConfig", f"model must be given with method '{method}'.")
    return {
        "method": method,
        "draft_tokens": tokens,
        "acceptance": profile.acceptance,
        "draft_read_gb": profile.draft_read_gb,
        "kv_share": profile.kv_share,
    }


def _spec_refusal(exception: str, message: str) -> RefusedError:
    return RefusedError(Refusal(process="api", exception=exception, message=message))
