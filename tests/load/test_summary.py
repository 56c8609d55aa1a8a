import numpy as np
import pytest

from autotune.load.steady import Window
from autotune.load.summary import (
    Answer,
    from_counters,
    latencies,
    merged,
    throughput,
    unknown,
)
from autotune.model.measurement import RequestSample
from autotune.model.objective import UNITS
from autotune.system.metrics import Counters


def answer(sent, at, tokens, *, source="token_ids", prompt=10, queue=None):
    sample = RequestSample(
        scheduled_s=sent,
        sent_s=sent,
        first_token_s=at[0],
        last_token_s=at[-1],
        prompt_tokens=prompt,
        output_tokens=sum(tokens),
        first_chunk_tokens=tokens[0],
        chunks=len(at),
        queue_ms=queue,
    )
    return Answer(
        sample=sample, at=np.array(at), tokens=np.array(tokens, dtype=float), source=source
    )


def window(start, end):
    return Window(start=start, end=end, kind="steady")


def test_throughput_counts_tokens_by_the_stamp_of_their_chunk():
    metrics = throughput([answer(0.0, [1.0, 2.0, 3.0], [1, 3, 5])], window(1.5, 3.5))
    assert metrics["output_tok_s"] == 4.0
    assert metrics["output_tok_s_total_run"] == 3.0


def test_prompt_tokens_count_where_the_first_token_came():
    answers = [answer(0.0, [1.0, 2.0], [1, 1]), answer(0.0, [3.0, 9.0], [1, 1], prompt=20)]
    assert throughput(answers, window(2.5, 4.5))["total_tok_s"] == 10.5


def test_requests_count_where_they_ended():
    answers = [answer(0.0, [1.0, 2.0], [1, 1]), answer(0.0, [1.0, 6.0], [1, 1])]
    assert throughput(answers, window(0.0, 4.0))["requests_s"] == 0.25


def test_tokens_of_the_first_chunk_cost_no_time_per_token():
    metrics = latencies([answer(0.0, [1.0, 1.2, 1.4], [3, 2, 2])])
    assert metrics["tpot_ms.mean"] == pytest.approx(100.0)
    assert metrics["ttft_ms.mean"] == pytest.approx(1000.0)
    assert metrics["e2e_ms.mean"] == pytest.approx(1400.0)


def test_tokens_that_came_together_share_their_gap():
    gaps = answer(0.0, [1.0, 1.3, 1.4], [1, 3, 1]).itl_ms
    assert list(gaps) == pytest.approx([100.0, 100.0, 100.0, 100.0])


def test_a_single_token_has_a_first_token_and_no_pace():
    metrics = latencies([answer(0.0, [1.0], [1])])
    assert metrics["ttft_ms.mean"] == 1000.0
    assert metrics["tpot_ms.mean"] is None
    assert metrics["itl_ms.mean"] is None


def test_gaps_are_unknown_where_only_the_total_is_known():
    metrics = latencies([answer(0.0, [1.0, 2.0], [4, 4], source="usage")])
    assert metrics["itl_ms.mean"] is None
    assert metrics["tpot_ms.mean"] == 250.0


@pytest.mark.parametrize(
    ("requests", "known"),
    [
        (2, {"mean"}),
        (3, {"mean", "p50"}),
        (58, {"mean", "p50"}),
        (59, {"mean", "p50", "p95"}),
        (299, {"mean", "p50", "p95", "p99"}),
    ],
)
def test_percentiles_need_enough_requests(requests, known):
    metrics = latencies([answer(0.0, [1.0, 2.0], [1, 9]) for _ in range(requests)])
    for latency in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        names = {name for name in ("mean", "p50", "p95", "p99") if metrics[f"{latency}.{name}"]}
        assert names == known


def test_a_queue_time_that_only_some_requests_report_is_unknown():
    answers = [answer(0.0, [1.0], [1], queue=5.0), answer(0.0, [1.0], [1])]
    assert latencies(answers)["queue_ms.mean"] is None


def test_the_engines_histograms_stand_in_for_requests_that_report_nothing():
    counted = from_counters(Counters(queue_s=2.0, queue_count=4.0), kv_cache_usage=0.5)
    metrics = merged(latencies([answer(0.0, [1.0], [1])]), counted)
    assert metrics["queue_ms.mean"] == 500.0
    assert metrics["kv_cache_usage_max"] == 0.5


def test_what_requests_report_goes_before_the_engines_histograms():
    counted = from_counters(Counters(queue_s=2.0, queue_count=4.0), kv_cache_usage=None)
    metrics = merged(latencies([answer(0.0, [1.0], [1], queue=5.0)]), counted)
    assert metrics["queue_ms.mean"] == 5.0


def test_metrics_have_the_names_of_the_model():
    answers = [answer(0.0, [1.0, 2.0], [1, 1])]
    found = throughput(answers, window(0, 3)) | latencies(answers)
    found |= from_counters(None, kv_cache_usage=None)
    assert set(found) == set(unknown()) == set(UNITS) - {"startup_s"}
