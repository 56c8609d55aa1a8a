"""`autotune gate` against recorded answers, and on the simulated server."""

import json

import pytest

from autotune.cli import run
from tests.fakes.replay_server import Recorded, ReplayServer, Said, chunk, error, events
from tests.gates.obedient import answer, but

ASK = [{"role": "user", "content": "Do it."}]
PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


def tool(name, *required):
    properties = {key: {"type": "string"} for key in required}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def calls(name, *required, **more):
    return {"tools": [tool(name, *required)], "expect": {"tool": name}, **more}


def usage(tokens):
    return {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": tokens}}


def fragment(**function):
    return chunk({"tool_calls": [{"index": 0, "function": function}]})


PADDED = '{\n   "age":\n\n   30\n   ,\n\n   "name": [\n\n   "Bo"\n\n]\n\n}\n\n'
CASES = {
    "a call": (Said(calls=[("ring", '{"who": "Bo"}')]).whole(), calls("ring", "who"), "pass", ""),
    "a brace with the name": (
        events(
            fragment(name="ring", arguments="{"),
            fragment(arguments='"who":"'),
            fragment(arguments='Bo"}'),
            chunk({}, finish_reason="tool_calls"),
        ),
        calls("ring", "who"),
        "pass",
        "",
    ),
    "cut, whatever finish_reason says": (
        events(
            fragment(name="save", arguments='{"text": "Long a'),
            chunk({}, finish_reason="tool_calls"),
            usage(48),
        ),
        calls("save", "text", max_tokens=48),
        "fail",
        "truncated",
    ),
    "a call as text": (
        Said(content='<tool_call>\n{"name": "ring", "arguments": {}}\n</tool_call>').whole(),
        calls("ring", "who"),
        "fail",
        "tool_call_in_text",
    ),
    "a call in thoughts": (
        Said(
            content="",
            more={"reasoning_content": 'Hm.\n<tool_call>{"name": "ring"}</tool_call>'},
        ).whole(),
        calls("ring", "who"),
        "fail",
        "tool_call_in_reasoning",
    ),
    "no arguments": (
        Said(calls=[("ring", "")]).whole(),
        calls("ring", "who"),
        "fail",
        "arguments_missing",
    ),
    "padded": (
        Said(content=PADDED).whole(),
        {"expect": {"json_schema": PERSON}},
        "pass",
        "padded",
    ),
    "whitespace without end": (
        Said(content='{"age": 3,' + " \n" * 60, finish_reason="length").whole(),
        {"expect": {"json_schema": PERSON}},
        "fail",
        "runaway_whitespace",
    ),
    "thoughts before JSON": (
        Said(content='<|channel>thought\nJSON it is.<channel|>{"age": 3}').whole(),
        {"expect": {"json_schema": PERSON}},
        "fail",
        "reasoning_in_content",
    ),
    "nothing": (Said(completion_tokens=30).whole(), {}, "fail", "empty_output"),
    "an error in the stream": (
        events(chunk({"content": "On"}), {"error": {"message": "The engine died", "code": 500}}),
        {},
        "request_failed",
        "request_failed",
    ),
    "a chunk with nothing but usage": (
        events(chunk({"content": "Hi"}), chunk({}, finish_reason="stop"), usage(1)),
        {"expect": {"max_tokens": 1}},
        "pass",
        "",
    ),
    "thoughts under their old name": (
        events(
            chunk({"role": "assistant", "reasoning_content": "So"}),
            chunk({"content": "7"}),
            chunk({}, finish_reason="stop"),
        ),
        {"expect": {"matches": "^7$"}},
        "pass",
        "",
    ),
    "an unknown model": (
        error(404, "The model `it` does not exist."),
        {},
        "setup_error",
        "model_not_found",
    ),
    "a key is wanted": (
        Recorded(status=401, body=b'{"error": "Unauthorized"}'),
        {},
        "setup_error",
        "unauthorized",
    ),
}
EXIT_CODES = {"pass": 0, "fail": 1, "request_failed": 1, "setup_error": 3}


@pytest.mark.parametrize("name", CASES)
def test_a_recorded_answer_gets_its_verdict_and_exit_code(name, tmp_path, capsys):
    recorded, fixture, verdict, reason = CASES[name]
    file = tmp_path / "fixtures.jsonl"
    stream = recorded.kind.startswith("text/event-stream")
    line = {"id": "it", "messages": ASK, "stream": stream, **fixture}
    file.write_text(json.dumps(line))

    with ReplayServer(recorded) as replay:
        code = run(["gate", "--url", replay.base_url, "--fixtures", str(file), "--json"])

    found = json.loads(capsys.readouterr().out)
    (gate,) = found["gates"]
    (case,) = gate["cases"]
    assert (case["verdict"], case["reason"]) == (verdict, reason)
    assert bool(case["why"]) is bool(reason)
    assert code == EXIT_CODES[verdict]
    assert found["passed"] is (code == 0)
    assert set(gate) == {"name", "passed", "score", "threshold", "cases"}


def test_a_good_server_passes_the_usual_gates(capsys):
    with ReplayServer(answer) as replay:
        code = run(["gate", "--url", f"{replay.base_url}/v1", "--model", "m"])

    assert code == 0
    assert "json_schema: passed, 100%" in capsys.readouterr().out


def test_the_gates_can_be_chosen_and_failures_are_explained(capsys):
    broken = but(lambda asked, said: Said(content="no") if said.calls else said)
    with ReplayServer(broken) as replay:
        code = run(["gate", "--url", replay.base_url, "--model", "m", "--gates", "tool_calls"])

    printed = capsys.readouterr().out
    assert code == 1
    assert "tool_calls: failed" in printed
    assert "required/whole/1: fail: no_tool_call: the answer is text: 'no'" in printed
    assert "json_schema" not in printed


def test_the_first_model_of_the_server_is_asked(tmp_path):
    def listed(asked):
        if asked.path == "/v1/models":
            return Recorded(body=b'{"data": [{"id": "served", "max_model_len": 4096}]}')
        return Said(content="Hello.").whole()

    file = tmp_path / "fixtures.jsonl"
    file.write_text(json.dumps({"id": "it", "messages": ASK}))
    with ReplayServer(listed) as replay:
        code = run(["gate", "--url", replay.base_url, "--fixtures", str(file)])
        asked = [asked.body["model"] for asked in replay.asked if asked.method == "POST"]

    assert code == 0
    assert asked == ["served"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--url", "http://127.0.0.1:9"], 3, "nobody answers there"),
        (["--url", "ftp://here"], 2, "is no address"),
        (["--url", "http://127.0.0.1:9", "--gates", "jason"], 2, "there is no such gate"),
        (["--url", "http://127.0.0.1:9", "--gates", "fixtures"], 2, "Add --fixtures FILE"),
        (["--url", "http://127.0.0.1:9", "--fixtures", "gone.jsonl"], 2, "cannot be read"),
    ],
)
def test_what_cannot_be_asked_is_an_error_with_a_hint(arguments, code, message, capsys):
    assert run(["gate", *arguments]) == code
    assert message in capsys.readouterr().err
