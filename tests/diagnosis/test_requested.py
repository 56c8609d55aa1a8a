import pytest

from autotune.diagnosis import unheeded
from autotune.model.diagnosis import ServerFacts


@pytest.mark.parametrize(
    ("asked", "facts"),
    [
        ({"attention_backend": "flashinfer"}, ServerFacts(attention_backend="FLASHINFER")),
        ({"attention_backend": "auto"}, ServerFacts(attention_backend="FLASHINFER")),
        ({"attention_backend": "FLASHINFER"}, ServerFacts()),
        ({"moe_backend": "cutlass"}, ServerFacts(moe_backend="VLLM_CUTLASS")),
        ({"moe_backend": "deep_gemm"}, ServerFacts(moe_backend="DEEPGEMM")),
        ({"linear_backend": "cutlass"}, ServerFacts(linear_backend="CutlassFP8ScaledMMLinearKernel")),
        ({"kv_cache_dtype": "fp8"}, ServerFacts(kv_cache_dtype="fp8_e4m3")),
        ({"max_num_batched_tokens": 8192}, ServerFacts(max_num_batched_tokens=8192)),
        ({"max_model_len": "32k"}, ServerFacts(max_model_len=32000)),
        ({"max_num_seqs": None}, ServerFacts(max_num_seqs=128)),
        ({"async_scheduling": False}, ServerFacts(ignored_settings=("Async scheduling is disabled",))),
    ],
)  # fmt: skip
def test_a_setting_that_was_heeded_is_not_mentioned(asked, facts):
    assert unheeded(asked, facts) == ()


@pytest.mark.parametrize(
    ("asked", "facts", "sentence"),
    [
        ({"moe_backend": "marlin"}, ServerFacts(moe_backend="FLASHINFER_CUTLASS"), "moe_backend was asked as marlin and became FLASHINFER_CUTLASS."),
        ({"moe_backend": "cutlass"}, ServerFacts(moe_backend="FLASHINFER_CUTLASS"), "moe_backend was asked as cutlass and became FLASHINFER_CUTLASS."),
        ({"linear_backend": "cutlass"}, ServerFacts(linear_backend="FlashInferCutlassNvFp4LinearKernel"), "linear_backend was asked as cutlass and became FlashInferCutlassNvFp4LinearKernel."),
        ({"max_num_batched_tokens": 8192}, ServerFacts(max_num_batched_tokens=2048), "max_num_batched_tokens was asked as 8192 and became 2048."),
        ({"max_num_seqs": 256}, ServerFacts(max_num_seqs=128), "max_num_seqs was asked as 256 and became 128."),
        ({"compilation_config.cudagraph_mode": "FULL"}, ServerFacts(cudagraph_mode="PIECEWISE"), "cudagraph_mode was asked as FULL and became PIECEWISE."),
        ({"VLLM_TYPO": "1"}, ServerFacts(unknown_env=("VLLM_TYPO",)), "VLLM_TYPO is an environment variable that this vLLM does not know; it has no effect."),
        ({"async_scheduling": True}, ServerFacts(ignored_settings=("Async scheduling is disabled.",)), "async_scheduling was asked as True, but: Async scheduling is disabled."),
        ({"max_cudagraph_capture_size": 512}, ServerFacts(caps=("Capping cudagraph capture sizes from max 512 to 352 to fit",)), "max_cudagraph_capture_size was asked as 512 and became 352."),
    ],
)  # fmt: skip
def test_a_setting_that_became_something_else_is_told(asked, facts, sentence):
    assert unheeded(asked, facts) == (sentence,)
