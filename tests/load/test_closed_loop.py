import asyncio
import json
import urllib.request
from dataclasses import replace

import pytest

from autotune.errors import MeasurementError
from autotune.load import WORKLOADS, ClientLimits, closed_loop
from autotune.load.self_check import NO_LIMITS
from autotune.model.host import RunningServer
from autotune.model.search_space import WorkloadSpec
from tests.fakes.timed_server import timed_server

OUTPUT = 12


@pytest.fixture(scope="module")
def base_url():
    with timed_server() as url:
        yield url


@pytest.fixture
def ask(base_url):
    """Run one pass on a server that behaves as asked; the model's name keeps passes apart."""
    numbers = iter(range(1000))

    def run(behavior="", *, concurrency=2, requests=8, time_scale=1.0, limits=NO_LIMITS, **fields):
        server = running(base_url, f"{behavior},after=0" if "after" not in behavior else behavior)
        server = replace(server, time_scale=time_scale)
        spec = WorkloadSpec(
            name="test",
            input_tokens=40,
            output_tokens=OUTPUT,
            concurrency=(concurrency,),
            requests=(requests,),
        )
        workload = replace(closed_loop(spec, limits=limits), **fields)
        repeat = next(numbers)
        return asyncio.run(workload.run(server, concurrency=concurrency, repeat=repeat))

    return run


def running(base_url, behavior):
    model = f"timed,{behavior.strip(',')}".strip(",")
    return RunningServer(base_url=base_url, served_model=model, log="server.log", startup_s=1.0)


def truth(base_url):
    with urllib.request.urlopen(base_url + "/truth") as answer:
        return json.loads(answer.read())


def test_every_token_of_every_request_is_counted(ask):
    run = ask("per_chunk=5,ttft_ms=10,cadence_ms=4")
    assert run.problem is None
    assert [sample.output_tokens for sample in run.requests] == [OUTPUT] * 8
    assert {sample.chunks for sample in run.requests} == {3}
    assert {sample.first_chunk_tokens for sample in run.requests} == {5}
    assert {sample.prompt_tokens for sample in run.requests} == {40}
    assert run.failed == 0
    assert run.warnings == ()


def test_timing_is_about_what_the_server_does(ask):
    run = ask("ttft_ms=60,cadence_ms=10", concurrency=3, requests=9)
    assert 55 < run.metrics["ttft_ms.p50"] < 200
    assert 8 < run.metrics["tpot_ms.p50"] < 40
    assert 8 < run.metrics["itl_ms.mean"] < 40
    assert 165 < run.metrics["e2e_ms.mean"] < 800
    assert run.metrics["ttft_ms.p95"] is None
    assert 0 < run.metrics["output_tok_s"] < 3 * OUTPUT / 0.165
    assert run.window_s > 0.1


def test_a_server_faster_than_the_clock_is_told_in_its_own_time(ask):
    run = ask("ttft_ms=20,cadence_ms=2", time_scale=100.0)
    assert run.metrics["ttft_ms.p50"] > 1900
    assert run.metrics["output_tok_s"] < 2 * OUTPUT / 4.2


def test_a_queue_is_told_apart_from_the_rest_of_ttft(ask):
    run = ask("ttft_ms=10,cadence_ms=3,slots=1", concurrency=6, requests=18)
    assert run.metrics["queue_ms.mean"] > 0.5 * run.metrics["ttft_ms.mean"]
    assert any("mostly queue" in text for text in run.warnings)


def test_the_engines_own_timing_goes_before_its_histograms(ask):
    run = ask("timing=1,slots=1")
    assert all(sample.queue_ms is not None for sample in run.requests)
    assert run.metrics["queue_ms.p50"] is not None


def test_acceptance_preemptions_and_kv_usage_come_from_the_counters(ask):
    run = ask("draft_tokens=4,accepted=3,preempt=1,kv_usage=0.75")
    assert run.metrics["acceptance_rate"] == 0.75
    assert run.metrics["acceptance_length"] == 4.0
    assert run.metrics["preemptions"] == 8
    assert run.metrics["kv_cache_usage_max"] == 0.75
    assert any("preemptions" in text for text in run.warnings)


def test_what_a_server_does_not_count_is_unknown(ask):
    metrics = ask("draft_tokens=0").metrics
    assert metrics["prefix_hit_rate"] is None


def test_usage_alone_is_enough_for_throughput(ask):
    run = ask("ids=0,per_chunk=3")
    assert run.problem is None
    assert run.metrics["output_tok_s"] is not None
    assert run.metrics["itl_ms.mean"] is None
    assert any("even share" in text for text in run.warnings)


def test_a_server_that_does_not_tokenize_gets_text_and_a_warning(ask):
    run = ask("tokenize=0")
    assert run.problem is None
    assert any("no /tokenize" in text for text in run.warnings)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("error_event", "error event: the engine died"),
        ("no_usage,ids=0", "cannot be counted"),
        ("truncate", "ended in the middle"),
        ("short", f"{OUTPUT - 1} of {OUTPUT} tokens"),
        ("http_500", "HTTP 500: this request was refused"),
        ("http_400", "HTTP 400: this request was refused"),
        ("reset", "ServerDisconnectedError"),
    ],
)
def test_a_pass_with_a_broken_request_yields_no_number(ask, fault, reason):
    run = ask(f"fault={fault},after=3")
    assert run.problem is not None
    assert reason in run.problem
    assert run.failed >= 1
    assert all(
        run.metrics[name] is None
        for name in ("output_tok_s", "output_tok_s_total_run", "ttft_ms.mean", "tpot_ms.p50")
    )


def test_a_server_that_breaks_ends_the_pass_at_once(ask):
    run = ask("fault=http_500,after=4,ttft_ms=1", requests=40)
    assert len(run.requests) < 10


def test_a_server_that_falls_silent_is_given_up(ask):
    run = ask("fault=hang,after=2", stall_s=0.3)
    assert run.problem is not None
    assert run.problem.startswith("hang: no tokens for")


def test_a_pass_that_takes_for_ever_is_given_up(ask):
    run = ask("cadence_ms=100", deadline_s=0.4)
    assert run.problem is not None
    assert "not done after" in run.problem


def test_nobody_at_the_address_is_a_problem_with_a_name():
    spec = WorkloadSpec(
        name="test", input_tokens=8, output_tokens=4, concurrency=(1,), requests=(2,)
    )
    # Nothing listens on the discard port.
    server = replace(running("http://127.0.0.1:9", ""), exit_code=lambda: -9)
    run = asyncio.run(closed_loop(spec).run(server, concurrency=1, repeat=0))
    assert run.problem is not None
    assert "ClientConnectorError" in run.problem
    assert "exit code -9" in run.problem
    assert run.requests == ()


def test_a_client_that_was_the_bottleneck_yields_no_number(ask):
    run = ask("per_chunk=2", limits=ClientLimits(cpu=0.0))
    assert run.problem is not None
    assert "the client was the bottleneck" in run.problem
    assert run.metrics["output_tok_s"] is None


def test_behind_an_accelerated_server_a_lagging_client_is_only_warned_about(ask):
    run = ask("per_chunk=2", limits=ClientLimits(cpu=0.0), time_scale=50.0)
    assert run.problem is None
    assert any("lagged behind" in text for text in run.warnings)


def test_prompts_are_equal_for_every_server_and_fresh_for_every_repeat(base_url):
    spec = WorkloadSpec(
        name="test", input_tokens=40, output_tokens=4, concurrency=(2,), requests=(4,)
    )
    seen = []
    for model, repeat in (("per_chunk=1", 0), ("per_chunk=2", 0), ("per_chunk=2", 1)):
        truth(base_url)
        workload = closed_loop(spec, limits=NO_LIMITS)
        asyncio.run(workload.run(running(base_url, model), concurrency=2, repeat=repeat))
        seen.append({str(one["prompt"]): one["cache_salt"] for one in truth(base_url)["prompts"]})
    assert seen[0] == seen[1]
    assert len(seen[0]) == 4
    assert not set(seen[1]) & set(seen[2])


def test_a_start_of_token_stands_before_every_prompt(base_url):
    spec = WorkloadSpec(
        name="test", input_tokens=20, output_tokens=4, concurrency=(1,), requests=(2,)
    )
    truth(base_url)
    run = closed_loop(spec, limits=NO_LIMITS).run(
        running(base_url, "bos=1"), concurrency=1, repeat=0
    )
    assert asyncio.run(run).problem is None
    prompts = [one["prompt"] for one in truth(base_url)["prompts"]]
    assert [(prompt[0], len(prompt)) for prompt in prompts] == [(1, 20), (1, 20)]


def test_a_server_tokenizes_once_for_all_levels(base_url):
    spec = WorkloadSpec(
        name="test", input_tokens=8, output_tokens=4, concurrency=(1, 2), requests=(2, 4)
    )
    workload = closed_loop(spec, limits=NO_LIMITS)
    server = running(base_url, "")

    async def study():
        warm = await workload.warm_up(server)
        return [*warm, *[await workload.run(server, concurrency=c, repeat=0) for c in (1, 2)]]

    truth(base_url)
    runs = asyncio.run(study())
    assert truth(base_url)["tokenized"] == 3
    assert [len(run.requests) for run in runs] == [2, 2, 4]


def test_warming_up_fills_every_slot_with_a_short_answer(base_url):
    spec = WorkloadSpec(
        name="test", input_tokens=8, output_tokens=500, concurrency=(1, 5), requests=(8, 40)
    )
    (run,) = asyncio.run(closed_loop(spec).warm_up(running(base_url, "cadence_ms=0")))
    assert [sample.output_tokens for sample in run.requests] == [64] * 5


def test_warming_up_a_broken_server_raises(base_url):
    spec = WorkloadSpec(
        name="test", input_tokens=8, output_tokens=4, concurrency=(1,), requests=(8,)
    )
    with pytest.raises(MeasurementError, match=r"warm-up of test at concurrency 1: .*HTTP 500"):
        asyncio.run(closed_loop(spec).warm_up(running(base_url, "fault=http_500")))


def test_every_workload_names_its_levels():
    spec = WorkloadSpec(
        name="any", input_tokens=8, output_tokens=4, concurrency=(1, 4), requests=(8, 32)
    )
    for build in WORKLOADS.values():
        workload = build(spec)
        assert (workload.name, workload.levels) == ("any", (1, 4))
