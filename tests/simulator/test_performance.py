"""The performance model against what a practitioner measured on a DGX Spark."""

import math

import pytest

from autotune.simulator.hardware_profiles import HARDWARE
from autotune.simulator.model_profiles import model_profile
from autotune.simulator.performance import (
    PrefillChunk,
    StepLoad,
    StepModel,
    StepSettings,
    extended_acceptance,
    tokens_per_step,
)

SPARK = HARDWARE["dgx-spark"]
NVFP4 = model_profile("nvidia/Qwen3.6-35B-A3B-NVFP4")
PUBLISHED = {
    # streams: tok/s without drafts, tok/s with three
    1: (69.3, 100.8),
    2: (109.2, 146.4),
    4: (179.0, 252.2),
    8: (280.1, 381.1),
    16: (408.8, 547.1),
    32: (569.0, 732.5),
}
ACCEPTED = 0.71
"""Share of drafts that was accepted in that table."""


CONTEXT = 1100
"""Tokens before the average step; the table does not tell, this makes its last row come out."""


def throughput(streams, drafts):
    settings = StepSettings(
        draft_read_gb=NVFP4.draft_read_gb,
        kv_factor=0.5,
        capture_sizes=tuple(range(1, 257)),
    )
    model = StepModel(SPARK, NVFP4, settings)
    load = StepLoad(decodes=streams, draft_tokens=drafts, context_tokens=streams * CONTEXT)
    tokens = 1 + drafts * ACCEPTED
    return 1000 * streams * tokens / model.step_ms(load)


@pytest.mark.parametrize("drafts", [0, 3])
def test_the_published_table_comes_out_within_three_percent(drafts):
    errors = [
        throughput(streams, drafts) / row[bool(drafts)] - 1 for streams, row in PUBLISHED.items()
    ]

    assert max(map(abs, errors)) < 0.03
    assert math.sqrt(sum(error**2 for error in errors) / len(errors)) < 0.02


def test_speculation_pays_less_the_fuller_the_batch():
    gains = [throughput(streams, 3) / throughput(streams, 0) for streams in (1, 8, 32)]

    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 1.2


def test_a_step_touches_more_experts_the_more_tokens_it_has_and_never_more_than_all():
    model = StepModel(SPARK, NVFP4, StepSettings())
    shares = [model.coverage(tokens) for tokens in (0, 1, 8, 64, 4096)]

    assert shares[0] == 0
    assert shares == sorted(shares)
    assert shares[-1] <= 1


def test_a_long_prompt_costs_more_for_each_of_its_tokens_than_a_short_one():
    model = StepModel(SPARK, NVFP4, StepSettings())

    def chunk(position):
        chunks = (PrefillChunk(tokens=1000, position=position),)
        return model.step_ms(StepLoad(decodes=0, draft_tokens=0, context_tokens=0, prefills=chunks))

    assert chunk(20_000) > chunk(0)


def test_acceptance_falls_with_the_position_and_is_extended_beyond_what_is_known():
    assert extended_acceptance((0.8, 0.6), 1) == (0.8,)
    longer = extended_acceptance((0.8, 0.6), 4)
    assert list(longer) == sorted(longer, reverse=True)
    assert tokens_per_step((0.8, 0.6), 2) == pytest.approx(2.4)


def test_the_fp8_model_is_fastest_with_one_draft_token_as_published():
    fp8 = model_profile("Qwen/Qwen3.6-35B-A3B-FP8")
    settings = StepSettings(
        draft_read_gb=fp8.draft_read_gb, kv_factor=0.5, capture_sizes=(1, 2, 3, 4)
    )
    model = StepModel(SPARK, fp8, settings)

    def rate(drafts):
        load = StepLoad(decodes=1, draft_tokens=drafts, context_tokens=500)
        return 1000 * tokens_per_step(fp8.acceptance, drafts) / model.step_ms(load)

    assert [rate(0), rate(1), rate(2)] == pytest.approx([53.8, 63.1, 60.1], rel=0.03)
    assert max(range(5), key=rate) == 1


@pytest.mark.parametrize(
    ("hardware", "step_ms"), [("dgx-spark", 47.1), ("jetson-thor", 56.9), ("rtx-pro-6000", 12.8)]
)
def test_the_step_of_four_streams_is_near_the_published_itl_of_each_machine(hardware, step_ms):
    settings = StepSettings(
        draft_read_gb=NVFP4.draft_read_gb, kv_factor=0.5, capture_sizes=tuple(range(1, 65))
    )
    model = StepModel(HARDWARE[hardware], NVFP4, settings)
    load = StepLoad(decodes=4, draft_tokens=3, context_tokens=4 * 1500)

    assert model.step_ms(load) == pytest.approx(step_ms, rel=0.1)
