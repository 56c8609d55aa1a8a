import json

import pytest

from autotune.gates.fixtures import FixturesGate
from tests.fakes.replay_server import Recorded, ReplayServer, Said, chunk, error, events
from tests.gates.asking_gates import check, check_at

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
            "required": ["city"],
        },
    },
}
ASK = [{"role": "user", "content": "What now?"}]
CALLS = {"tools": [WEATHER], "expect": {"tool": "get_weather"}}
JSON = {"expect": {"json_schema": {"type": "object", "required": ["name"]}}}


@pytest.fixture
def write(tmp_path):
    def write_lines(*lines):
        file = tmp_path / "fixtures.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        file.write_text("\n".join(texts), encoding="utf-8")
        return str(file)

    return write_lines


@pytest.fixture
def judge(write):
    """Judge one recorded answer to one question."""

    def judge_one(recorded, **fixture):
        stream = recorded.kind.startswith("text/event-stream")
        line = {"id": "it", "messages": ASK, "stream": stream, **fixture}
        (case,) = check(FixturesGate(file=write(line)), recorded).cases
        return case

    return judge_one


def call(arguments, name="get_weather", **more):
    return Said(calls=[(name, arguments)], finish_reason="tool_calls", **more)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (call('{"city": "Rome"}'), ""),
        (call(""), "arguments_missing"),
        (call("{}"), "arguments_missing"),
        (call('"Rome"'), "arguments_not_object"),
        (call('"{\\"city\\": \\"Rome\\"}"'), "arguments_not_object"),
        (call('city": "Rome"}'), "arguments_not_json"),
        (call('{"city": "Ro'), "arguments_not_json"),
        (call('{"city": "Ro', completion_tokens=256), "truncated"),
        (call('{"city": "Rome",' + "\n " * 40, completion_tokens=256), "runaway_whitespace"),
        (call('{"city": 7}'), "schema_violation"),
        (call('{"city": "Rome", "unit": "K"}'), "schema_violation"),
        (call("{}", name="weather"), "unknown_tool"),
        (call("{}", name=""), "tool_name_missing"),
        (Said(calls=[("get_weather", '{"city": "Rome"}')] * 2), "repeated_call"),
        (
            Said(content="</tool_call>", calls=[("get_weather", '{"city": "Rome"}')]),
            "markup_in_content",
        ),
        (
            Said(content='<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>'),
            "tool_call_in_text",
        ),
        (
            Said(content='{"name": "get_weather", "parameters": {"city": "Rome"}}'),
            "tool_call_in_text",
        ),
        (Said(content='[TOOL_CALLS]get_weather{"city": "Rome"}'), "tool_call_in_text"),
        (Said(content='[get_weather(city="Rome")]'), "tool_call_in_text"),
        (
            Said(content="<|tool_calls_section_begin|><|tool_call_begin|>"),
            "tool_call_in_text",
        ),
        (
            Said(content="", reasoning="Look up.\n<function=get_weather><parameter=city>"),
            "tool_call_in_reasoning",
        ),
        (Said(content="<think>Well, "), "reasoning_in_content"),
        (Said(content="It is sunny."), "no_tool_call"),
        (Said(reasoning="Hm"), "answer_in_reasoning"),
        (Said(completion_tokens=24), "empty_output"),
        (Said(content="!" * 200), "repeated_output"),
        (Said(reasoning="Hm", finish_reason="length"), "truncated"),
    ],
)
def test_an_answer_to_a_question_with_tools_is_named(judge, said, reason, stream):
    case = judge(said.recorded(stream=stream), **CALLS)

    assert (case.verdict, case.reason) == ("fail" if reason else "pass", reason)


def test_a_brace_that_ships_with_the_name_is_not_lost(judge):
    def part(**function):
        return chunk({"tool_calls": [{"index": 0, "function": function}]})

    recorded = events(
        part(name="get_weather", arguments="{"),
        part(arguments='"city": "'),
        part(arguments='Rome"}'),
    )

    assert judge(recorded, **CALLS).verdict == "pass"


def test_a_cut_call_is_truncated_whatever_finish_reason_says(judge):
    said = call('{"city": "Once upon', completion_tokens=64)

    case = judge(said.streamed(), max_tokens=64, **CALLS)

    assert (case.verdict, case.reason) == ("fail", "truncated")


@pytest.mark.parametrize(
    ("content", "verdict", "reason"),
    [
        ('{\n  "name": "A"\n ,\n "x": [\n ""]\n\n}\n', "pass", ""),
        ('{"name": 1,' + "\n \n" * 70, "fail", "runaway_whitespace"),
        (
            '<|channel>thought\nHm.<channel|>```json\n{"name": 1}\n```',
            "fail",
            "reasoning_in_content",
        ),
        ('```\n{"name": 1}\n```', "fail", "code_fence"),
        ('{"nam": 1}', "fail", "schema_violation"),
    ],
)
def test_an_answer_that_must_be_json_is_named(judge, content, verdict, reason):
    case = judge(Said(content=content).whole(), **JSON)

    assert (case.verdict, case.reason) == (verdict, reason)


def test_the_format_that_was_asked_for_is_expected_without_saying_so(judge):
    schema = {"type": "object", "required": ["name"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}

    assert judge(Said(content="{}").whole(), response_format=wanted).reason == "schema_violation"
    loose = {"type": "json_object"}
    assert judge(Said(content="[]").whole(), response_format=loose).reason == "schema_violation"
    assert judge(Said(content="{}").whole(), response_format=loose).verdict == "pass"


@pytest.mark.parametrize(
    ("recorded", "verdict", "reason"),
    [
        (Said(completion_tokens=24).whole(), "fail", "empty_output"),
        (Said(content="2", reasoning="Think").streamed(), "pass", ""),
        (
            events(chunk({"content": "The"}), {"error": {"message": "engine died"}}),
            "request_failed",
            "request_failed",
        ),
        (events(chunk({"content": "Hi"}), done=False), "request_failed", "request_failed"),
        (events(chunk({"content": "Hi"}, finish_reason="stop"), done=False), "pass", ""),
        (error(404, "The model `m` does not exist."), "setup_error", "model_not_found"),
        (error(403, "no"), "setup_error", "unauthorized"),
        (
            error(400, "so you must provide a chat template if"),
            "setup_error",
            "chat_template_missing",
        ),
        (error(500, "oops"), "request_failed", "request_failed"),
    ],
)
def test_an_answer_in_words_is_named(judge, recorded, verdict, reason):
    case = judge(recorded)

    assert (case.verdict, case.reason) == (verdict, reason)


@pytest.mark.parametrize(
    ("expect", "reason"),
    [
        ({}, ""),
        ({"matches": "^Grüße"}, ""),
        ({"matches": "^Hello"}, "no_match"),
        ({"not_matches": "(?i)BERG"}, "forbidden_match"),
        ({"contains": ["Grüße", "Berg"]}, ""),
        ({"contains": "Tal"}, "text_missing"),
        ({"not_contains": ["Tal", "vom"]}, "forbidden_text"),
        ({"min_chars": 14, "max_chars": 14, "max_words": 3, "max_tokens": 9}, ""),
        ({"min_chars": 15}, "too_short"),
        ({"max_chars": 13}, "too_long"),
        ({"max_words": 2}, "too_long"),
        ({"max_tokens": 8}, "too_long"),
        ({"max_latency_s": 1000}, ""),
        ({"max_latency_s": 0.000001}, "too_slow"),
        ({"tool": None}, ""),
    ],
)
def test_an_answer_is_held_to_what_the_line_expects(judge, expect, reason):
    case = judge(Said(content="Grüße vom Berg").whole(), expect=expect)

    assert case.reason == reason


@pytest.mark.parametrize(
    ("expect", "choice", "reason"),
    [
        ({}, "auto", ""),
        ({"tool": None}, "auto", "unexpected_call"),
        ({"tool": "other"}, "auto", "wrong_tool"),
        ({"arguments": {"city": "Rome"}}, "auto", ""),
        ({"tool": "get_weather", "arguments": {"city": "Oslo"}}, "auto", "wrong_arguments"),
        ({"arguments": {"city": "Rome", "unit": "C"}}, "auto", "wrong_arguments"),
        ({}, "required", ""),
        ({}, {"type": "function", "function": {"name": "other"}}, "wrong_tool"),
    ],
)
def test_a_call_is_held_to_what_the_line_expects(judge, expect, choice, reason):
    other = {"type": "function", "function": {"name": "other", "parameters": {}}}

    case = judge(
        call('{"city": "Rome"}').whole(),
        tools=[WEATHER, other],
        tool_choice=choice,
        expect=expect,
    )

    assert case.reason == reason


def test_a_required_call_that_does_not_come_fails_without_saying_so(judge):
    case = judge(Said(content="No.").whole(), tools=[WEATHER], tool_choice="required")

    assert case.reason == "no_tool_call"


def test_a_schema_that_points_elsewhere_is_a_failure_and_no_download(judge):
    parameters = {"properties": {"city": {"$ref": "http://127.0.0.1:9/schema"}}}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": parameters}}

    case = judge(call('{"city": "Rome"}').whole(), tools=[tool])

    assert case.reason == "schema_violation"
    assert "points nowhere" in case.why


def test_arguments_that_are_nested_without_end_are_no_crash(judge):
    assert judge(call("[" * 50_000).whole(), **CALLS).reason == "arguments_not_json"


def test_every_line_is_asked_and_judged(write):
    lines = [{"id": f"line-{number}", "messages": ASK} for number in range(5)]

    gate = FixturesGate(file=write(*lines, "", "  "), concurrency=2, threshold=0.5)
    with ReplayServer(Said(content="Hi").whole()) as replay:
        verdict = check_at(gate, replay)

        assert max(asked.in_flight for asked in replay.asked) <= 2
    assert [case.id for case in verdict.cases] == [line["id"] for line in lines]
    assert verdict.passed


def test_one_line_that_fails_does_not_hide_the_others(write):
    lines = [{"id": name, "messages": [{"role": "user", "content": name}]} for name in "abc"]

    def answer(asked):
        said = asked.body["messages"][0]["content"]
        return error(404, "gone") if said == "a" else Said(content=said).whole()

    verdict = check(FixturesGate(file=write(*lines), concurrency=1), answer)

    assert [case.verdict for case in verdict.cases] == ["setup_error", "pass", "pass"]
    assert not verdict.passed


def test_every_mistake_of_the_file_is_told_with_its_line(write):
    good = {"id": "a", "messages": ASK}
    file = write(
        good,
        "",
        "{no json",
        good,
        {"id": "b"},
        {**good, "id": "c", "expect": {"max_word": 3}},
        {**good, "id": "d", "expect": {"matches": "("}},
        {**good, "id": "e", "expect": {"json_schema": {"type": "text"}}},
        {**good, "id": "f", "tools": [{"function": {"name": "t", "parameters": {"type": 1}}}]},
        {**good, "id": "g", "expect": {"json_schema": {"pattern": r"\p{L}"}}},
        {**good, "id": "h", "response_format": {"type": "json_schema"}},
    )

    with pytest.raises(ValueError, match="Expecting") as caught:
        FixturesGate(file=file)

    told = str(caught.value).splitlines()
    assert [line.split(":")[1] for line in told] == ["3", "4", "5", "6", "7", "8", "9", "10", "11"]
    for line, part in zip(
        told,
        [
            "Expecting",
            "'a' is taken",
            "'messages' is a required property",
            "'max_word'",
            "expect.matches",
            "expect.json_schema",
            "tools: t",
            "is not a 'regex'",
            "'json_schema' is a required property",
        ],
        strict=True,
    ):
        assert part in line


def test_a_file_that_is_missing_or_empty_is_refused(write, tmp_path):
    with pytest.raises(ValueError, match=r"^file: .* cannot be read"):
        FixturesGate(file=str(tmp_path / "none.jsonl"))
    with pytest.raises(ValueError, match=r"^file: .* holds no fixture"):
        FixturesGate(file=write(""))


def test_a_recorded_body_that_is_no_completion_fails_the_request(judge):
    assert judge(Recorded(body=b'{"error": "Unauthorized"}')).verdict == "request_failed"
