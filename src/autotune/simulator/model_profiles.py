"""Checkpoints and ways to draft. Only the NVFP4 model is fitted."""

from collections.abc import Mapping
from types import MappingProxyType

from autotune.simulator.profiles import ModelProfile, SpeculationProfile

# 30 gated-DeltaNet layers of 32 heads x 128 x 128 float32.
_QWEN_STATE_GB = 30 * 32 * 128 * 128 * 4 / 1e9
# 10 attention layers x 2 (K and V) x 2 heads x 256 x 2 bytes.
_QWEN_KV_BYTES = 10 * 2 * 2 * 256 * 2

QWEN_NVFP4 = ModelProfile(
    name="qwen3.6-35b-a3b-nvfp4",
    checkpoints=("qwen3.6-35b-a3b-nvfp4",),
    architecture="Qwen3_5MoeForConditionalGeneration",
    quantization="nvfp4",
    quantization_flags=("modelopt", "modelopt_fp4", "modelopt_mixed"),
    moe_label="NvFp4",
    max_model_len=262_144,
    weights_gib=21.0,
    checkpoint_gib=21.75,
    # 40 layers x 256 experts x 3 x 2048 x 512 parameters at 4.5 bits.
    routed_expert_gb=18.1,
    experts=256,
    experts_per_token=8,
    routing_correlation=0.65,
    fixed_read_gb=2.4,
    state_gb=_QWEN_STATE_GB,
    kv_bytes_per_token=_QWEN_KV_BYTES,
    compute_factor=1.0,
    # With weights and activations this gives the 7,121,578 KV tokens reported at utilization 0.8.
    runtime_gib=4.828,
    activation_mib_per_token=0.40,
    # 12.14 ms for three draft tokens: the BF16 lm_head, read once for each.
    draft_read_gb=0.9914,
    # 7,121,578 -> 5,660,790 KV tokens with the draft.
    draft_kv_share=0.20512,
    predict_layers=1,
    # Sums to 3 x 0.71; the decay after position 2 is assumed (one MTP layer used again and again).
    acceptance=(0.845, 0.717, 0.568, 0.432, 0.315, 0.224, 0.155, 0.105),
)

QWEN_FP8 = ModelProfile(
    name="qwen3.6-35b-a3b-fp8",
    checkpoints=("qwen3.6-35b-a3b-fp8", "qwen3.6-35b-a3b_fp8"),
    architecture="Qwen3_5MoeForConditionalGeneration",
    quantization="fp8",
    quantization_flags=("fp8", "compressed-tensors", "modelopt"),
    moe_label="Fp8",
    max_model_len=262_144,
    weights_gib=34.6,
    checkpoint_gib=35.3,
    routed_expert_gb=32.2,
    experts=256,
    experts_per_token=8,
    routing_correlation=0.65,
    # 53.8 tok/s for one stream without drafts, 63.1 and 60.1 with one and two draft tokens
    # (practitioner): the draft path of this stack costs more and its second token is rarely right.
    fixed_read_gb=3.0,
    state_gb=_QWEN_STATE_GB,
    kv_bytes_per_token=_QWEN_KV_BYTES,
    compute_factor=1.0,
    runtime_gib=4.828,
    activation_mib_per_token=0.40,
    draft_read_gb=1.74,
    draft_kv_share=0.20512,
    predict_layers=1,
    acceptance=(0.80, 0.48, 0.27, 0.15, 0.08),
)

QWEN_BF16 = ModelProfile(
    name="qwen3.6-35b-a3b",
    checkpoints=("qwen3.6-35b-a3b",),
    architecture="Qwen3_5MoeForConditionalGeneration",
    quantization=None,
    quantization_flags=(),
    moe_label="Unquantized",
    max_model_len=262_144,
    weights_gib=66.0,
    checkpoint_gib=67.0,
    routed_expert_gb=64.4,
    experts=256,
    experts_per_token=8,
    routing_correlation=0.65,
    fixed_read_gb=4.3,
    state_gb=_QWEN_STATE_GB,
    kv_bytes_per_token=_QWEN_KV_BYTES,
    compute_factor=1.1,
    runtime_gib=4.828,
    activation_mib_per_token=0.40,
    draft_read_gb=1.05,
    draft_kv_share=0.20512,
    predict_layers=1,
    acceptance=(0.845, 0.717, 0.568, 0.432, 0.315),
)

DENSE_8B = ModelProfile(
    name="dense-8b",
    checkpoints=("qwen3-8b", "llama-3.1-8b", "llama-3-8b", "dense-8b"),
    architecture="Qwen3ForCausalLM",
    quantization=None,
    quantization_flags=(),
    moe_label=None,
    max_model_len=40_960,
    weights_gib=15.3,
    checkpoint_gib=15.3,
    routed_expert_gb=0.0,
    experts=1,
    experts_per_token=1,
    routing_correlation=1.0,
    fixed_read_gb=15.2,
    state_gb=0.0,
    # 36 layers x 2 x 8 heads x 128 x 2 bytes.
    kv_bytes_per_token=36 * 2 * 8 * 128 * 2,
    compute_factor=2.7,
    runtime_gib=2.5,
    activation_mib_per_token=0.25,
    attention_heads=32,
)

MODELS: tuple[ModelProfile, ...] = (QWEN_NVFP4, QWEN_FP8, QWEN_BF16, DENSE_8B)


def model_profile(checkpoint: str) -> ModelProfile:
    """Find the profile of a checkpoint by its name; one that nobody knows behaves like the NVFP4 model."""
    wanted = checkpoint.lower()
    for profile in MODELS:
        if any(name in wanted for name in profile.checkpoints):
            return profile
    return QWEN_NVFP4


# Assumed, not fitted: n-gram drafts cost nothing and are right when the text repeats itself.
SPECULATION: Mapping[str, SpeculationProfile] = MappingProxyType(
    {
        "ngram": SpeculationProfile(acceptance=(0.32, 0.22, 0.16, 0.12, 0.09), draft_read_gb=0.02),
        "ngram_gpu": SpeculationProfile(
            acceptance=(0.32, 0.22, 0.16, 0.12, 0.09), draft_read_gb=0.01
        ),
        "eagle": SpeculationProfile(
            acceptance=(0.68, 0.46, 0.31, 0.20), draft_read_gb=0.9, kv_share=0.1, needs_model=True
        ),
        "eagle3": SpeculationProfile(
            acceptance=(0.74, 0.53, 0.38, 0.27), draft_read_gb=0.9, kv_share=0.1, needs_model=True
        ),
        "draft_model": SpeculationProfile(
            acceptance=(0.70, 0.50, 0.36, 0.26), draft_read_gb=1.3, kv_share=0.15, needs_model=True
        ),
        # One parallel pass drafts all positions (published acceptance of a 15-token run).
        "dflash": SpeculationProfile(
            acceptance=(0.938, 0.750, 0.531, 0.344, 0.188, 0.125, 0.125, 0.062),
            draft_read_gb=0.25,
            kv_share=0.1,
            needs_model=True,
        ),
    }
)
