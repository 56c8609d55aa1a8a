"""What fits, against the published figures of a DGX Spark."""

import re

import pytest

from autotune.simulator.memory import check_free
from autotune.simulator.refusals import RefusedError
from tests.simulator.virtual import MTP, SPARK, memory_of, settings_of

PRODUCTION = (
    *("--gpu-memory-utilization", "0.8", "--kv-cache-dtype", "fp8"),
    *("--max-num-seqs", "32", "--max-num-batched-tokens", "8192"),
)


@pytest.mark.parametrize(("flags", "published"), [((), 7_121_578), (MTP, 5_660_790)])
def test_kv_tokens_are_those_that_were_published(flags, published):
    assert memory_of(*PRODUCTION, *flags).kv_tokens == pytest.approx(published, rel=0.005)


def test_larger_batches_and_a_wider_cache_leave_less_for_the_cache():
    plain = memory_of(*PRODUCTION).kv_tokens

    assert memory_of(*PRODUCTION, "--max-num-batched-tokens", "32K").kv_tokens < 0.9 * plain
    assert memory_of(*PRODUCTION, "--kv-cache-dtype", "auto").kv_tokens < 0.51 * plain


def refusal(*flags, model="nvidia/Qwen3.6-35B-A3B-NVFP4"):
    with pytest.raises(RefusedError) as refused:
        memory_of(*flags, model=model)
    return str(refused.value)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            ("--gpu-memory-utilization", "0.95", "--max-num-batched-tokens", "16384"),
            r"torch\.OutOfMemoryError: CUDA out of memory\. Tried to allocate [\d.]+ GiB\. GPU 0",
        ),
        (
            ("--max-num-batched-tokens", "256K"),
            r"torch\.OutOfMemoryError: CUDA out of memory\.",
        ),
        (("--gpu-memory-utilization", "0.2"), r"ValueError: No available memory for the cache"),
        (
            ("--gpu-memory-utilization", "0.24", "--max-num-batched-tokens", "2048"),
            r"the model's max seq len \(262144\).*estimated maximum model length is \d+",
        ),
        (
            (
                *("--gpu-memory-utilization", "0.3", "--max-num-seqs", "1024"),
                *("--max-model-len", "8192"),
            ),
            r"max_num_seqs \(1024\) exceeds available Mamba cache blocks \(\d+\).*to at most \d+",
        ),
    ],
)
def test_what_does_not_fit_ends_with_vllms_words(flags, line):
    assert re.search(line, refusal(*flags))


def test_the_bf16_model_needs_more_than_half_of_the_memory():
    assert "No available memory" in refusal(
        "--gpu-memory-utilization", "0.5", model="Qwen/Qwen3.6-35B-A3B"
    )


def test_more_memory_than_is_free_is_refused_before_anything_is_loaded():
    with pytest.raises(RefusedError, match=r"Free memory on device cuda:0 \([\d.]+/121\.69 GiB\)"):
        check_free(settings_of("--gpu-memory-utilization", "0.98"), SPARK)


def test_an_automatic_model_length_is_what_fits():
    flags = ("--gpu-memory-utilization", "0.25", "--max-num-seqs", "8")

    assert 1000 < memory_of(*flags, "--max-model-len", "auto").max_model_len < 262_144
