"""Continuous batching in virtual time."""

import pytest

from autotune.simulator.scheduler import Work
from autotune.simulator.switches import JitSpike, Switches
from tests.simulator.virtual import MTP, Load, scheduler_of

FP8 = ("--kv-cache-dtype", "fp8", "--gpu-memory-utilization", "0.8")


def load(*flags, streams, requests, prompt=1000, output=200, switches=None):
    return Load(
        scheduler=scheduler_of(*FP8, *flags, switches=switches),
        streams=streams,
        requests=requests,
        prompt_tokens=prompt,
        output_tokens=output,
    ).run()


def test_every_request_gets_exactly_its_tokens_and_all_blocks_come_back():
    run = load(*MTP, "--max-num-seqs", "4", streams=8, requests=20, output=37)

    assert [work.produced for work in run.done] == [37] * 20
    assert run.scheduler.kv_usage == 0
    assert run.scheduler.counts.generation_tokens == 20 * 37
    assert run.scheduler.counts.prompt_tokens == 20 * 1000


def test_no_more_run_than_max_num_seqs_and_the_rest_waits_for_nearly_all_of_its_ttft():
    run = load(*MTP, "--max-num-seqs", "4", streams=16, requests=64, output=1000)

    waited = sum(work.scheduled_s - work.arrived_s for work in run.done)
    first = sum(work.first_token_s - work.arrived_s for work in run.done)
    assert run.most_running == 4
    assert waited >= 0.9 * first


def test_max_num_active_seqs_stands_in_for_a_smaller_max_num_seqs():
    run = load("--max-num-seqs", "16", "--max-num-active-seqs", "2", streams=4, requests=8)

    assert run.most_running == 2


def test_acceptance_by_position_is_that_of_the_model():
    run = load(*MTP, streams=8, requests=40, output=400)

    counts = run.scheduler.counts
    assert counts.draft_tokens == 3 * counts.drafts
    assert counts.accepted_tokens / counts.draft_tokens == pytest.approx(0.71, abs=0.015)
    by_position = [accepted / counts.drafts for accepted in counts.accepted_by_position]
    assert by_position == pytest.approx([0.845, 0.717, 0.568], abs=0.03)


@pytest.mark.parametrize("streams", [1, 8, 32])
def test_three_draft_tokens_are_best_or_tie_with_four_whatever_the_load(streams):
    rates = {}
    for tokens in range(1, 7):
        drafts = f'{{"method":"mtp","num_speculative_tokens":{tokens}}}'
        run = load(
            *("--speculative-config", drafts, "--max-num-seqs", "32"),
            *("--max-num-batched-tokens", "8192"),
            streams=streams,
            requests=2 * streams,
            prompt=100,
            output=400,
        )
        rates[tokens] = run.throughput

    assert max(rates, key=lambda tokens: rates[tokens]) in {3, 4}
    assert rates[3] > 1.02 * rates[1]
    assert rates[3] > 1.02 * rates[6]


def test_dynamic_draft_lengths_follow_the_number_of_running_sequences():
    drafts = (
        '{"method":"mtp","num_speculative_tokens":3,'
        '"num_speculative_tokens_per_batch_size":[[1,2,3],[3,64,0]]}'
    )
    flags = ("--speculative-config", drafts)

    alone = load(*flags, streams=1, requests=1)
    crowd = load(*flags, streams=8, requests=8, output=5)

    assert alone.scheduler.counts.drafts > 0
    assert crowd.scheduler.counts.drafts < alone.scheduler.counts.drafts / 10


def test_a_prompt_beyond_the_budget_is_prefilled_in_chunks_beside_the_decodes():
    scheduler = scheduler_of(*FP8, "--max-num-batched-tokens", "512")
    run = Load(scheduler, streams=1, requests=1, prompt_tokens=1300, output_tokens=2).run()

    # 512 + 512 + 276 prompt tokens, the last chunk yields the first token, one decode the second.
    assert run.scheduler.counts.steps == 4


def test_a_small_budget_costs_time_to_first_token():
    small = load("--max-num-batched-tokens", "512", streams=1, requests=1, prompt=8000, output=2)
    large = load("--max-num-batched-tokens", "8192", streams=1, requests=1, prompt=8000, output=2)

    assert small.done[0].first_token_s > 1.5 * large.done[0].first_token_s


def test_the_youngest_is_preempted_and_recomputed_when_blocks_run_out():
    flags = ("--max-model-len", "2000", "--num-gpu-blocks-override", "130")
    run = load(*flags, streams=4, requests=4, prompt=400, output=400)

    assert run.scheduler.counts.preemptions > 0
    assert [work.produced for work in run.done] == [400] * 4
    assert run.scheduler.counts.prompt_tokens == 1600
    assert run.scheduler.kv_usage == 0


class Silent:
    def tokens(self, work, clock_s):
        pass

    def finished(self, work, clock_s):
        pass


def ask(scheduler, keys):
    work = Work(
        prompt_tokens=100,
        output_tokens=1,
        content=3,
        block_keys=keys,
        sink=Silent(),
        arrived_s=0.0,
    )
    scheduler.add(work)
    step = scheduler.begin(0.0)
    assert step is not None
    scheduler.finish(step, step.seconds)
    return work


def test_a_repeated_prompt_hits_the_prefix_cache_and_another_does_not():
    scheduler = scheduler_of(*FP8)
    first = ask(scheduler, ["a", "b", "c"])
    again = ask(scheduler, ["a", "b", "c"])
    other = ask(scheduler, ["x", "b", "c"])

    assert [work.cached_tokens for work in (first, again, other)] == [0, 48, 0]
    assert scheduler.counts.cached_tokens == 48
    assert scheduler.counts.prefix_queries == 300


def test_without_prefix_caching_nothing_is_remembered():
    scheduler = scheduler_of(*FP8, "--no-enable-prefix-caching")
    ask(scheduler, ["a"])

    assert ask(scheduler, ["a"]).cached_tokens == 0


def test_an_aborted_sequence_gives_its_blocks_back():
    scheduler = scheduler_of(*FP8)
    work = Work(
        prompt_tokens=100, output_tokens=50, content=3, block_keys=(), sink=Silent(), arrived_s=0.0
    )
    scheduler.add(work)
    step = scheduler.begin(0.0)
    assert step is not None

    scheduler.abort(work)
    scheduler.finish(step, 1.0)

    assert not scheduler.busy
    assert scheduler.kv_usage == 0
    assert work.produced == 0


def test_the_jit_spike_hits_the_first_requests_only():
    switches = Switches(noise=0, jit_spike=JitSpike(seconds=4.0, requests=2))
    run = load(streams=1, requests=4, switches=switches)

    slow = [work.first_token_s - work.arrived_s > 4 for work in run.done]
    assert slow == [True, True, False, False]


def test_equal_seeds_give_equal_runs():
    def once():
        return load(*MTP, streams=4, requests=12, switches=Switches()).clock_s

    assert once() == once()
