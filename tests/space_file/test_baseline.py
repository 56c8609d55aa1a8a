import pytest

from autotune.model.objective import Rule
from tests.space_file.written import only_problem_of, problems_of, space_of

KNOBS = """\
model: m
server: {args: {max_model_len: 4096, dtype: auto, json_config: {size: 16, mode: a}}}
knobs:
  max_num_seqs: {choices: [4, 8, 16]}
  max_num_batched_tokens: {choices: [2048, 8192]}
  backend: {choices: [marlin, triton]}
"""


def test_a_knob_that_the_baseline_leaves_out_starts_at_its_first_value(tmp_path):
    space = space_of(tmp_path, KNOBS + "baseline: {max_num_seqs: 8}\n")

    assert space.baseline == {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 2048,
        "backend": "marlin",
    }


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("max_num_seqs: 5", "max_num_seqs: 5 is not on the knob's grid; the nearest are 4 and 8"),
        ("max_num_seqs: 99", "max_num_seqs: 99 is not on the knob's grid; the nearest is 16"),
        ("backend: marln", "backend: marln is not on the knob's grid; did you mean marlin?"),
        ("backend: true", "backend: true is not on the knob's grid; choose from: marlin, triton"),
        ("max_num_seq: 4", "max_num_seq: is not a knob; did you mean max_num_seqs?"),
        ("dtype: auto", "dtype: is held fixed under server.args; only knobs start somewhere"),
        ("max_num_seqs: [4]", "max_num_seqs: must be a single value, not a list"),
    ],
)
def test_a_baseline_off_the_grid_is_told_with_what_is_near(tmp_path, entry, problem):
    text = KNOBS + f"baseline: {{{entry}}}\n"

    assert only_problem_of(tmp_path, text) == f"space.yaml:7: baseline.{problem}"


def test_a_baseline_value_has_the_type_of_the_grid(tmp_path):
    space = space_of(tmp_path, KNOBS + "baseline: {max_num_seqs: 8.0}\n")

    assert type(space.baseline["max_num_seqs"]) is int


def test_rules_compare_knobs_fixed_settings_and_numbers(tmp_path):
    text = (
        KNOBS
        + "rules: [max_num_batched_tokens >= max_num_seqs, max_num_seqs<=max_model_len, backend != other, max_num_seqs > 1e0]\n"
    )
    text = text.replace("backend != other", "backend != dtype")

    assert space_of(tmp_path, text).rules == (
        Rule(left="max_num_batched_tokens", operator=">=", right="max_num_seqs"),
        Rule(left="max_num_seqs", operator="<=", right="max_model_len"),
        Rule(left="backend", operator="!=", right="dtype"),
        Rule(left="max_num_seqs", operator=">", right=1.0),
    )


def test_a_key_inside_a_fixed_json_flag_counts_in_a_rule(tmp_path):
    space = space_of(tmp_path, KNOBS + "rules: [max_num_seqs < json_config.size]\n")

    assert space.broken_rules({**space.baseline, "max_num_seqs": 16}) == ("max_num_seqs < 16",)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (
            "max_num_seq >= 1",
            "max_num_seq is neither a knob nor under server.args; did you mean max_num_seqs?",
        ),
        (
            "max_num_seqs => 1",
            '"max_num_seqs => 1" is not a comparison: NAME OPERATOR NAME-or-number, with == != >= <= > <',
        ),
        (
            "__import__('os')",
            "\"__import__('os')\" is not a comparison: NAME OPERATOR NAME-or-number, with == != >= <= > <",
        ),
        ("1 < 2", "names no knob, so it holds always or never"),
        ("backend >= 3", "backend holds no numbers (marlin), so >= means nothing"),
        ("max_num_seqs <= dtype", "dtype holds no numbers (auto), so <= means nothing"),
        ("[a]", "must be a comparison, not a list"),
    ],
)
def test_a_wrong_rule_is_told(tmp_path, rule, problem):
    text = KNOBS + f"rules:\n  - {rule}\n"

    assert only_problem_of(tmp_path, text) == f"space.yaml:8: rules[0]: {problem}"


def test_a_baseline_that_breaks_a_rule_is_told_at_the_rule(tmp_path):
    text = KNOBS + "baseline: {max_num_seqs: 8}\nrules: [max_num_seqs <= 4]\n"

    assert only_problem_of(tmp_path, text) == (
        "space.yaml:8: rules[0]: the baseline breaks max_num_seqs <= 4: max_num_seqs is 8"
    )


def test_a_wrong_baseline_is_not_blamed_for_a_rule_as_well(tmp_path):
    text = (
        KNOBS
        + "baseline: {max_num_seqs: 5, max_num_batched_token: 8192}\nrules: [max_num_seqs > 4, max_num_batched_tokens > 2048]\n"
    )

    assert len(problems_of(tmp_path, text)) == 2


def test_a_fixed_setting_that_is_wrong_is_not_missed_a_second_time(tmp_path):
    text = (
        KNOBS.replace("max_model_len: 4096", "max_model_len: 010")
        + "rules: [max_num_seqs <= max_model_len]\n"
    )

    assert len(problems_of(tmp_path, text)) == 1
