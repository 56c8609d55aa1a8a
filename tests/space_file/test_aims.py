import pytest

from tests.space_file.written import SMALLEST, only_problem_of, problems_of, space_of

LOADS = SMALLEST + (
    "workloads:\n"
    "  chat: {input_tokens: 100, output_tokens: 50, concurrency: [1, 4], requests: [8, 64]}\n"
    "  long: {input_tokens: 900, output_tokens: 90, concurrency: [2], requests: [8]}\n"
)


def labels(space):
    return [(o.name, o.quantity.label, o.direction) for o in space.objectives]


def test_the_default_objectives_are_of_the_first_workload_at_its_highest_level(tmp_path):
    assert labels(space_of(tmp_path, LOADS)) == [
        ("output_tok_s", "output_tok_s@chat:4", "maximize"),
        ("ttft_ms.p50", "ttft_ms.p50@chat:4", "minimize"),
    ]


def test_a_metric_named_twice_is_told_apart_by_its_label(tmp_path):
    text = (
        LOADS
        + "objectives: [tpot_ms.p50, {metric: tpot_ms.p50, workload: long}, output_tok_s@chat:1]\n"
    )

    assert labels(space_of(tmp_path, text)) == [
        ("tpot_ms.p50@chat:4", "tpot_ms.p50@chat:4", "minimize"),
        ("tpot_ms.p50@long:2", "tpot_ms.p50@long:2", "minimize"),
        ("output_tok_s", "output_tok_s@chat:1", "maximize"),
    ]


def test_a_direction_may_be_turned_around(tmp_path):
    text = LOADS + "objectives: [{metric: kv_cache_usage_max, direction: maximize}]\n"

    assert labels(space_of(tmp_path, text))[0][2] == "maximize"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (
            "ttft_ms",
            ": there is no metric called 'ttft_ms'; choose from: ttft_ms.mean, ttft_ms.p50, ttft_ms.p95, ttft_ms.p99",
        ),
        ("ouput_tok_s", ": there is no metric called 'ouput_tok_s'; did you mean output_tok_s?"),
        ("output_tok_s@cat", ": there is no workload called 'cat'; did you mean chat?"),
        ("output_tok_s@chat:3", ": chat has no level 3; choose from: 1, 4"),
        (
            "output_tok_s@chat:x",
            ': "output_tok_s@chat:x" is not a metric: METRIC[@WORKLOAD[:CONCURRENCY]]',
        ),
        ("{workload: chat}", ": needs metric"),
        (
            "{metric: output_tok_s, direction: maximise}",
            ".direction: there is no direction 'maximise'; did you mean maximize?",
        ),
        ("3", ': must be text, not 3; write "3" in quotes if that is meant'),
        (
            "ttft_ms.p99@chat:4",
            (
                ": p99 needs at least 299 requests at that level, but 64 requests x 3 repeats = 192; "
                "set requests of workload chat to 100 or more at concurrency 4"
            ),
        ),
        (
            "ttft_ms.p95@long",
            (
                ": p95 needs at least 59 requests at that level, but 8 requests x 3 repeats = 24; "
                "set requests of workload long to 20 or more at concurrency 2"
            ),
        ),
    ],
)
def test_a_wrong_objective_is_told(tmp_path, written, problem):
    text = LOADS + f"objectives:\n  - {written}\n"

    assert only_problem_of(tmp_path, text) == f"space.yaml:8: objectives[0]{problem}"


def test_an_objective_that_is_listed_twice_is_told(tmp_path):
    text = LOADS + "objectives: [output_tok_s, output_tok_s@chat:4]\n"

    assert (
        only_problem_of(tmp_path, text)
        == "space.yaml:7: objectives[1]: output_tok_s@chat:4 is listed twice"
    )


def test_a_workload_that_is_wrong_is_not_missed_a_second_time(tmp_path):
    text = (
        LOADS.replace("input_tokens: 100", "input_tokens: x")
        + "objectives: [output_tok_s@chat, tpot_ms.p50]\n"
    )

    assert len(problems_of(tmp_path, text)) == 1


@pytest.mark.parametrize(
    ("written", "label"),
    [
        ("ttft_ms.p95@chat:4 <= 500", "ttft_ms.p95@chat:4 <= 500"),
        ("ttft_ms.p95@chat<=1.5e2", "ttft_ms.p95@chat:4 <= 150"),
        ("output_tok_s > 20", "output_tok_s@chat:4 > 20"),
        ("startup_s < 600", "startup_s < 600"),
        ("acceptance_rate@long >= 0.5", "acceptance_rate@long:2 >= 0.5"),
    ],
)
def test_a_constraint_is_a_metric_and_a_bound(tmp_path, written, label):
    space = space_of(tmp_path, LOADS + f"constraints:\n  - {written}\n")

    assert [constraint.label for constraint in space.constraints] == [label]


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (
            "ttft_ms.p95@chat:4",
            '"ttft_ms.p95@chat:4" is not a limit: METRIC[@WORKLOAD[:CONCURRENCY]] <= NUMBER',
        ),
        ("ttft_ms.p50 = 500", "= is no limit on a measured quantity; use <= or >="),
        ("ttft_ms.p50 <= 500ms", "the bound must be a plain number, not 500ms"),
        ("ttft_ms.p50 <= 1e999", "1e999 is beyond every setting"),
        ("ttft.p50 <= 5", "there is no metric called 'ttft.p50'; did you mean ttft_ms.p50?"),
        ("ttft_ms.p50@chat:2 <= 5", "chat has no level 2; choose from: 1, 4"),
    ],
)
def test_a_wrong_constraint_is_told(tmp_path, written, problem):
    text = LOADS + f"constraints:\n  - {written}\n"

    assert only_problem_of(tmp_path, text) == f"space.yaml:8: constraints[0]: {problem}"
