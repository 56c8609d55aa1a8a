import pytest

from autotune.model.knob import Condition
from tests.space_file.written import only_problem_of, problems_of, space_of


def with_knobs(*knobs: str, rest: str = "") -> str:
    return "model: m\nknobs:\n" + "".join(f"  {knob}\n" for knob in knobs) + rest


@pytest.mark.parametrize(
    ("written", "values", "kind"),
    [
        ("{choices: [marlin, triton]}", ("marlin", "triton"), "categorical"),
        ("{choices: [~, fp8, 3]}", (None, "fp8", 3), "categorical"),
        ("{choices: [1, 2, 4, 8]}", (1, 2, 4, 8), "log"),
        ("{choices: [1e3, 2e3]}", (1000, 2000), "linear"),
        ('{choices: ["on", "off"]}', ("on", "off"), "categorical"),
        ("{type: flag}", (False, True), "categorical"),
        ("{type: int, low: 0, high: 3}", (0, 1, 2, 3), "linear"),
        ("{type: int, low: 1e3, high: 3e3, step: 1e3}", (1000, 2000, 3000), "linear"),
        ("{type: int, low: 8, high: 64, doubling: true}", (8, 16, 32, 64), "log"),
        ("{type: int, low: 2, high: 8, log: on}", (2, 3, 4, 6, 8), "log"),
        ("{type: float, low: 0.7, high: 0.85, step: 0.05}", (0.7, 0.75, 0.8, 0.85), "linear"),
        ("{type: float, low: 1e-1, high: 0.4, doubling: true}", (0.1, 0.2, 0.4), "log"),
    ],
)
def test_a_knob_becomes_its_grid(tmp_path, written, values, kind):
    (knob,) = space_of(tmp_path, with_knobs(f"x: {written}")).knobs

    assert knob.values == values
    assert [type(value) for value in knob.values] == [type(value) for value in values]
    assert knob.kind == kind


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("[1, 2]", ": must be a mapping such as {choices: [1, 2, 4]}"),
        ("{}", ": needs choices: [...] or type: int, float or flag"),
        ("{choices: 3}", ".choices: must be a list of values, not 3"),
        (
            "{choices: [1]}",
            ".choices: needs at least two values; hold a single one fixed under server.args",
        ),
        (
            "{choices: }",
            ".choices: needs at least two values; hold a single one fixed under server.args",
        ),
        ("{choices: [a, a]}", ".choices[1]: a is listed twice"),
        (
            "{choices: [1, true]}",
            ".choices[1]: true and 1 are one choice to Optuna; keep one of them",
        ),
        (
            "{choices: [a, 1, 1.0]}",
            ".choices[2]: 1.0 and 1 are one choice to Optuna; keep one of them",
        ),
        ("{choices: [a, [b]]}", ".choices[1]: must be a single value, not a list"),
        (
            "{choices: [a, .nan]}",
            '.choices[1]: .nan is not a finite number; write ".nan" in quotes if it is text',
        ),
        (
            '{choices: [a, "true"]}',
            '.choices[1]: "true" in quotes is text, not a switch: write true',
        ),
        ("{choices: [a, b], low: 1}", ".low: does not go with choices"),
        ("{type: flag, step: 1}", ".step: does not go with type: flag"),
        ("{type: bool}", ".type: there is no type bool; write flag"),
        ("{type: itn}", ".type: there is no type itn; did you mean int?"),
        ("{type: int, low: 1}", ": needs high"),
        ("{type: int, low: 512, high: 64}", ": low 512 is not below high 64"),
        ('{type: int, low: "8", high: 9}', '.low: must be a whole number, without quotes, not "8"'),
        ("{type: int, low: 0.5, high: 9}", ".low: must be a whole number, not 0.5"),
        (
            "{type: int, low: 010, high: 90}",
            ".low: 010 with a leading zero is octal to some YAML readers: write 10",
        ),
        (
            "{type: int, low: 0, high: 9, step: 0}",
            ".step: must be from 1 to 9007199254740992, not 0",
        ),
        (
            "{type: int, low: 0, high: 10, step: 4}",
            ": high 10 is not on the grid; the nearest are 8 and 12",
        ),
        (
            "{type: int, low: 0, high: 1e9}",
            ": has 1000000001 values, more than 1000; take a larger step",
        ),
        (
            "{type: int, low: 0, high: 8, log: true}",
            ": log needs low above 0, not 0; list the values as choices instead",
        ),
        (
            "{type: int, low: 8, high: 64, step: 8, log: true}",
            ": takes one of step, log and doubling, not step and log",
        ),
        (
            "{type: float, low: 0.1, high: 0.9}",
            ": a float needs step: NUMBER, log: true or doubling: true",
        ),
        ("{type: float, low: 0.1, high: 0.9, step: -1}", ".step: must be above 0, not -1"),
        ("{choices: [a, b], sweep: 1}", ".sweep: must be true or false, not 1"),
    ],
)
def test_a_wrong_knob_is_told_with_what_to_do(tmp_path, written, problem):
    assert (
        only_problem_of(tmp_path, with_knobs(f"x: {written}")) == f"space.yaml:3: knobs.x{problem}"
    )


def test_both_switches_of_yaml_1_1_are_told(tmp_path):
    first, second = problems_of(tmp_path, with_knobs("x: {choices: [on, off]}"))

    assert first.endswith('write true, or "on" in quotes')
    assert second.endswith('write false, or "off" in quotes')


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("max-num-seqs", "flags are written in snake_case here: max_num_seqs"),
        (
            "port",
            "cannot be set here: the launcher chooses it, so that no other server is measured by mistake",
        ),
        ("env.A-B", "is not the name of an environment variable"),
        ("a..b", "is not a flag and a key of its JSON, such as speculative_config.method"),
        ("no_x", "write x: false instead"),
    ],
)
def test_a_wrong_name_is_told(tmp_path, name, problem):
    text = with_knobs(f"{name}: {{choices: [1, 2]}}", "y: {choices: [1, 2]}")

    assert only_problem_of(tmp_path, text) == f"space.yaml:3: knobs.{name}: {problem}"


def test_a_misspelled_knob_is_not_missed_a_second_time(tmp_path):
    text = with_knobs(
        "max-num-seqs: {choices: [1, 2]}",
        rest="baseline: {max_num_seqs: 2}\nrules: [max_num_seqs <= 2]\n",
    )

    assert len(problems_of(tmp_path, text)) == 1


def test_a_flag_and_a_key_of_its_json_cannot_both_turn(tmp_path):
    text = with_knobs("a: {choices: [x, y]}", "a.b: {choices: [1, 2]}")

    assert (
        only_problem_of(tmp_path, text)
        == "space.yaml:4: knobs.a.b: sets the same flag as the knob a"
    )


@pytest.mark.parametrize(
    ("written", "operator", "operands"),
    [
        ("3", "==", (3,)),
        ("[1, 2]", "==", (1, 2)),
        ('">= 1"', ">=", (1,)),
        ('"!=3"', "!=", (3,)),
        ('"== 2"', "==", (2,)),
    ],
)
def test_a_condition_is_a_value_a_list_or_a_comparison(tmp_path, written, operator, operands):
    text = with_knobs(
        "n: {choices: [0, 1, 2, 3]}", f"x: {{choices: [a, b], when: {{n: {written}}}}}"
    )

    assert space_of(tmp_path, text).knob("x").when == (
        Condition(name="n", operator=operator, operands=operands),
    )


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("{nn: 1}", ".nn: nn is neither a knob nor under server.args; did you mean n?"),
        ("{x: a}", ".x: a knob cannot depend on itself"),
        ("{n: 7}", ".n: n is never 7; the nearest is 3"),
        ("{n: true}", ".n: n is never true; choose from: 0, 1, 3"),
        ('{n: ">= 4"}', ".n: n is never >= 4; its values: 0, 1, 3"),
        ('{n: ">= a"}', ".n: >= compares numbers, not a"),
        ("{n: []}", ".n: is an empty list, which no value meets"),
        ("{held: 5}", ".held: held is fixed at 4, so this knob never has an effect"),
        ("[n]", ": must be a mapping of settings and their values, not a list"),
    ],
)
def test_a_condition_that_can_never_hold_is_told(tmp_path, written, problem):
    text = with_knobs(
        "n: {choices: [0, 1, 3]}",
        f"x: {{choices: [a, b], when: {written}}}",
        rest="server: {args: {held: 4}}\n",
    )

    assert only_problem_of(tmp_path, text) == f"space.yaml:4: knobs.x.when{problem}"


def test_conditions_that_run_in_a_circle_are_told_once(tmp_path):
    text = with_knobs(
        "a: {choices: [1, 2], when: {b: 1}}",
        "b: {choices: [1, 2], when: {c: 1}}",
        "c: {choices: [1, 2], when: {a: 1}}",
    )

    assert only_problem_of(tmp_path, text) == (
        "space.yaml:3: knobs.a.when: the conditions run in a circle: a -> b -> c -> a"
    )


def test_conditions_that_branch_without_bound_are_refused(tmp_path):
    knobs = ["a0: {choices: [1, 2]}", "b0: {choices: [1, 2]}"]
    knobs += [
        f"{name}{level}: {{choices: [1, 2], when: {{a{level - 1}: 1, b{level - 1}: 1}}}}"
        for level in range(1, 60)
        for name in "ab"
    ]

    problems = problems_of(tmp_path, with_knobs(*knobs))

    assert "depends on more than 100 chains of conditions" in problems[0]
