import pytest

from autotune.model.presets import PRESETS, default_requests
from autotune.model.search_space import WorkloadSpec
from tests.space_file.written import SMALLEST, only_problem_of, problems_of, space_of


def with_workloads(*workloads: str) -> str:
    return SMALLEST + "workloads:\n" + "".join(f"  {workload}\n" for workload in workloads)


def test_a_preset_gives_lengths_and_levels(tmp_path):
    (load,) = space_of(tmp_path, with_workloads("a: {preset: agent}")).workloads

    preset = PRESETS["agent"]
    assert load == WorkloadSpec(
        name="a",
        input_tokens=preset.input_tokens,
        output_tokens=preset.output_tokens,
        concurrency=preset.concurrency,
        requests=tuple(default_requests(level) for level in preset.concurrency),
        preset="agent",
    )


def test_keys_beside_a_preset_override_it(tmp_path):
    text = with_workloads(
        "a: {preset: agent, output_tokens: 7, concurrency: 3, requests: 12, seed: 5}"
    )

    (load,) = space_of(tmp_path, text).workloads

    assert load.input_tokens == PRESETS["agent"].input_tokens
    assert (load.output_tokens, load.concurrency, load.requests, load.seed) == (7, (3,), (12,), 5)


def test_one_count_of_requests_holds_for_every_level(tmp_path):
    text = with_workloads(
        "a: {input_tokens: 5, output_tokens: 5, concurrency: [1, 4], requests: 20}"
    )

    assert space_of(tmp_path, text).workloads[0].requests == (20, 20)


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("agent", ": must be a mapping such as {preset: agent}"),
        ("{preset: agnet}", ".preset: there is no preset called 'agnet'; did you mean agent?"),
        (
            "{input_tokens: 5}",
            ": needs output_tokens, concurrency, or a preset such as preset: agent",
        ),
        ("{preset: agent, input_tokens: 0}", ".input_tokens: must be from 1 to 10000000, not 0"),
        ("{preset: agent, concurrency: []}", ".concurrency: needs at least one level"),
        ("{preset: agent, concurrency: [1, 1]}", ".concurrency: a level is listed twice"),
        ("{preset: agent, concurrency: [1, x]}", ".concurrency[1]: must be a whole number, not x"),
        (
            "{preset: agent, requests: 4}",
            ".requests: 4 requests never reach concurrency 8; send at least 8",
        ),
        ("{preset: agent, requests: [8]}", ".requests: has 1 counts for 2 levels of concurrency"),
        ("{preset: agent, seed: -1}", ".seed: must be from 0 to 4294967295, not -1"),
        (
            "{preset: agent, rate: 3}",
            ".rate: there is no such key; choose from: preset, input_tokens, output_tokens, concurrency, requests, seed",
        ),
    ],
)
def test_a_wrong_workload_is_told(tmp_path, written, problem):
    assert (
        only_problem_of(tmp_path, with_workloads(f"a: {written}"))
        == f"space.yaml:5: workloads.a{problem}"
    )


def test_a_name_that_would_confuse_a_metric_is_refused(tmp_path):
    problem = only_problem_of(tmp_path, with_workloads('"a:8": {preset: agent}'))

    assert (
        problem
        == "space.yaml:5: workloads.a:8: a workload's name is made of letters, digits, - _ and ."
    )


def test_no_workload_at_all_is_refused(tmp_path):
    problem = only_problem_of(tmp_path, SMALLEST + "workloads: {}\n")

    assert "needs at least one workload" in problem


def test_a_load_that_the_context_length_cannot_hold_is_told(tmp_path):
    text = with_workloads("a: {input_tokens: 900, output_tokens: 200, concurrency: 1}")
    text += "server:\n  args: {max_model_len: 1024}\n"

    assert only_problem_of(tmp_path, text) == (
        "space.yaml:5: workloads.a: 900 + 200 tokens = 1100 do not fit max_model_len 1024 "
        f"({tmp_path}/space.yaml:7)".replace(f"{tmp_path}/", "")
    )


def test_a_context_length_too_short_for_the_default_load_is_told_where_it_is_set(tmp_path):
    text = SMALLEST + "  max_model_len: {choices: [512, 4096]}\n"

    (problem,) = problems_of(tmp_path, text)

    assert problem.startswith(
        "space.yaml:4: knobs.max_model_len: 512 is too short for the default workload"
    )
