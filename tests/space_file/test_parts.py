import pytest

from tests.space_file.written import KNOWN, SMALLEST, only_problem_of, problems_of, space_of


def gates_of(tmp_path, written):
    space = space_of(tmp_path, SMALLEST + f"gates: {written}\n", KNOWN)
    return [(gate.kind, gate.options) for gate in space.gates]


@pytest.mark.parametrize("written", ["{}", "none"])
def test_no_gates_has_to_be_said(tmp_path, written):
    assert gates_of(tmp_path, written) == []


def test_an_empty_gates_key_is_told_as_it_could_mean_both(tmp_path):
    assert only_problem_of(tmp_path, SMALLEST + "gates:\n") == (
        "space.yaml:4: gates: is empty; write none for no gates, or drop the key for the default: "
        "json_schema, tool_calls"
    )


def test_the_mapping_lists_all_gates_and_false_drops_one(tmp_path):
    written = "{json_schema: {cases: 3}, tool_calls: false, fixtures: }"

    assert gates_of(tmp_path, written) == [("json_schema", {"cases": 3}), ("fixtures", {})]


def test_a_file_of_a_gate_is_relative_to_the_search_space(tmp_path):
    (tmp_path / "cases.json").write_text("{}")

    assert gates_of(tmp_path, "{fixtures: {file: cases.json}}") == [
        ("fixtures", {"file": f"{tmp_path}/cases.json"})
    ]


def test_a_file_that_is_not_there_is_told(tmp_path):
    problem = only_problem_of(tmp_path, SMALLEST + "gates: {fixtures: {file: none.json}}\n", KNOWN)

    assert problem == "space.yaml:4: gates.fixtures.file: there is no file none.json"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "gates: {tool_call: {}}",
            "gates.tool_call: there is no gate called 'tool_call'; did you mean tool_calls?",
        ),
        ("gates: {tool_calls: 3}", "gates.tool_calls: must be true or false, not 3"),
        (
            "gates: {json_schema: {case: 3}}",
            "gates.json_schema.case: the gate json_schema has no such option; did you mean cases?",
        ),
        ("gates: [tool_calls]", "gates: must be a mapping of gates and their options, not a list"),
        (
            "search: {sampler: tpee}",
            "search.sampler: there is no sampler called 'tpee'; did you mean tpe?",
        ),
        (
            "search: {sampler: random, startup: 3}",
            "search.startup: the sampler random has no such option; choose from: sampler",
        ),
        ("search: tpe", "search: must be a mapping of the sampler and its options, not tpe"),
    ],
)
def test_a_wrong_plug_in_is_told(tmp_path, line, problem):
    assert only_problem_of(tmp_path, SMALLEST + line + "\n", KNOWN) == f"space.yaml:4: {problem}"


def test_every_wrong_option_is_told(tmp_path):
    text = SMALLEST + "gates:\n  json_schema:\n    a: 1\n    cases: .nan\n"

    assert [problem.split(": ")[1] for problem in problems_of(tmp_path, text, KNOWN)] == [
        "gates.json_schema.a",
        "gates.json_schema.cases",
    ]
