"""What every gate of the table promises."""

import asyncio
import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from autotune import gates
from autotune.gates.text_answers import judge_json, judge_text
from autotune.gates.tool_answers import ExpectedCalls, judge_calls
from autotune.gates.tool_cases import questions
from autotune.model.chat import ChatRequest
from autotune.model.outcome import Reference
from autotune.system.openai_client import connect
from tests.fakes.replay_server import Recorded, ReplayServer, Said, error
from tests.gates.asking_gates import check, check_at
from tests.gates.obedient import answer, but

# Their constructors differ, so that only tests that know the options can call them.
# The one that runs another program and the one that compares answers have files of their own.
GATES: dict[str, Any] = {
    name: kind for name, kind in gates.GATES.items() if name not in ("tool_eval", "equivalence")
}
FIXTURE = {"id": "hello", "messages": [{"role": "user", "content": "Say hello."}]}


@pytest.fixture(params=sorted(GATES))
def kind(request):
    return request.param


@pytest.fixture
def needed(kind, tmp_path):
    """Options that a gate cannot do without."""
    if kind != "fixtures":
        return {}
    file = tmp_path / "fixtures.jsonl"
    file.write_text(json.dumps(FIXTURE))
    return {"file": str(file)}


@pytest.fixture
def gate(kind, needed):
    return GATES[kind](**needed)


def test_a_gate_is_called_as_the_file_calls_it(kind, gate):
    assert gate.name == kind


@pytest.mark.parametrize("kind", sorted(gates.GATES))
def test_a_gate_is_documented_with_every_option(kind):
    gate: Any = gates.GATES[kind]

    text = gate.__doc__ or ""

    for option in dataclasses.fields(gate):
        if option.init:
            assert f"{option.name}: " in text


def test_an_obedient_model_passes_at_any_moment(gate):
    for moment in ("cold", "after"):
        verdict = check(gate, answer, moment=moment)

        assert [case for case in verdict.cases if case.verdict != "pass"] == []
        assert (verdict.gate, verdict.moment) == (gate.name, moment)
        assert (verdict.passed, verdict.score, verdict.remedy) == (True, 1.0, None)


def test_the_cases_of_a_verdict_have_names_of_their_own(gate):
    ids = [case.id for case in check(gate, answer).cases]

    assert all(ids)
    assert len(set(ids)) == len(ids)


def test_a_gate_asked_twice_asks_the_same(gate):
    with ReplayServer(answer) as replay:
        check_at(gate, replay)
        first = sorted(json.dumps(asked.body) for asked in replay.asked)
        replay.asked.clear()
        check_at(gate, replay)

        assert sorted(json.dumps(asked.body) for asked in replay.asked) == first


def test_more_calls_ask_more(kind, needed):
    once = check(GATES[kind](**needed), answer)
    thrice = check(GATES[kind](calls=3, **needed), answer)

    assert thrice.passed
    assert len(thrice.cases) == 3 * len(once.cases)


def test_a_clear_verdict_ends_the_asking(kind, needed):
    verdict = check(GATES[kind](calls=3, **needed), Recorded(status=503))

    assert not verdict.passed
    assert len(verdict.cases) == len(check(GATES[kind](**needed), answer).cases)


@pytest.mark.parametrize(
    ("recorded", "verdict", "reason"),
    [
        (Recorded(status=503), "request_failed", "request_failed"),
        (Recorded(body=b"<html>"), "request_failed", "request_failed"),
        (Recorded(raw=b"\r\n\r\n"), "request_failed", "request_failed"),
        (error(404, "The model `m` does not exist."), "setup_error", "model_not_found"),
        (Recorded(status=401, body=b'{"error": "Unauthorized"}'), "setup_error", "unauthorized"),
        (Said().whole(), "fail", "empty_output"),
    ],
    ids=["503", "html", "no http", "404", "401", "empty"],
)
def test_a_broken_server_is_told_from_wrong_answers(gate, recorded, verdict, reason):
    found = check(gate, recorded)

    assert not found.passed
    assert found.score == 0
    assert {(case.verdict, case.reason) for case in found.cases} == {(verdict, reason)}
    assert all(case.why for case in found.cases)
    assert (found.remedy is not None) == (verdict == "setup_error")


def test_a_server_that_hangs_fails_its_gate(gate):
    verdict = check(gate, Recorded(hang=True), timeout_s=0.2)

    assert not verdict.passed
    assert {case.verdict for case in verdict.cases} == {"request_failed"}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("calls", 0),
        ("calls", True),
        ("threshold", 0),
        ("threshold", 1.5),
        ("threshold", "all"),
        ("thinking", "false"),
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("finalist_calls", -1),
        ("not_worse_than_baseline", 1.5),
        ("strict_cold", "no"),
    ],
)
def test_an_illegal_option_is_refused_by_name(kind, needed, option, value):
    with pytest.raises(ValueError, match=f"^{option} is .* must be"):
        GATES[kind](**needed, **{option: value})


def test_the_options_can_be_read_strictly_from_a_file(kind, needed):
    options = TypeAdapter(GATES[kind])
    text = json.dumps({**needed, "calls": 2, "threshold": 0.9, "thinking": False})

    gate = options.validate_json(text, strict=True, extra="forbid")

    assert gate == GATES[kind](**needed, calls=2, threshold=0.9, thinking=False)
    with pytest.raises(ValidationError):
        options.validate_json(json.dumps({**needed, "cals": 2}), strict=True, extra="forbid")


@pytest.mark.parametrize("thinking", [True, False])
def test_thinking_is_switched_by_a_boolean(kind, needed, thinking):
    with ReplayServer(answer) as replay:
        check_at(GATES[kind](**needed, thinking=thinking), replay)

        bodies = [asked.body for asked in replay.asked]
    assert all(body["chat_template_kwargs"] == {"enable_thinking": thinking} for body in bodies)


def test_both_ways_of_thinking_are_cases_of_their_own(kind, needed):
    verdict = check(GATES[kind](**needed, thinking="both"), answer)

    ways = [case.id.split("/")[0] for case in verdict.cases]
    assert ways.count("plain") == ways.count("thinking") == len(ways) / 2
    assert verdict.passed


def test_thoughts_that_were_switched_off_fail(kind, needed):
    thinks = but(lambda asked, said: replace(said, reasoning="Let me see."))

    verdict = check(GATES[kind](**needed, thinking=False), thinks)

    assert not verdict.passed
    assert {case.reason for case in verdict.cases} == {"thinking_not_off"}


def test_cold_the_very_first_request_is_asked_alone(gate):
    with ReplayServer(answer) as replay:
        verdict = check_at(gate, replay, moment="cold")

        assert len(replay.asked) == len(verdict.cases) == 1


def test_what_enters_the_front_is_asked_as_long_as_the_option_says(kind, needed):
    gate = GATES[kind](**needed, finalist_calls=2)

    assert "final" in gate.moments
    assert "final" not in GATES[kind](**needed).moments
    assert len(check(gate, answer, moment="final").cases) == 2 * len(check(gate, answer).cases)


def test_relative_to_a_baseline_that_is_as_bad_a_gate_passes_and_says_so(kind, needed):
    gate = GATES[kind](**needed, not_worse_than_baseline=0.1)
    empty = Said().whole()

    baseline = check(gate, empty)
    own = check(gate, empty, reference=Reference(verdicts=(baseline,)))

    assert baseline.passed
    assert baseline.score == 0
    assert "nothing" in baseline.note or "neither" in baseline.note
    assert own.passed
    assert "against the baseline's 0%" in own.note


def test_relative_to_a_good_baseline_a_broken_server_is_rejected(kind, needed):
    gate = GATES[kind](**needed, not_worse_than_baseline=0.1, calls=4)

    baseline = check(gate, answer)
    own = check(gate, Said().whole(), reference=Reference(verdicts=(baseline,)))

    assert not own.passed
    assert "against the baseline's 100%, margin 10%" in own.reason
    assert "(warm): " in own.reason


def test_a_server_that_answers_nothing_is_no_baseline(kind, needed):
    gate = GATES[kind](**needed, not_worse_than_baseline=0.1)

    assert not check(gate, Recorded(status=503)).passed


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "message",
                    "delta",
                    "content",
                    "tool_calls",
                    "function",
                    "index",
                    "arguments",
                    "name",
                    "usage",
                    "error",
                    "finish_reason",
                    "output",
                    "type",
                    "id",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
_bodies = (
    st.binary(max_size=60)
    | _json.map(lambda value: json.dumps(value).encode())
    | st.lists(_json, max_size=3).map(
        lambda values: b"".join(b"data: %s\n\n" % json.dumps(value).encode() for value in values)
    )
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    body=_bodies,
    kind=st.sampled_from(["application/json", "text/event-stream", ""]),
    status=st.sampled_from([200, 200, 200, 400, 404, 500]),
    stream=st.booleans(),
    endpoint=st.sampled_from(["chat", "responses", "messages"]),
)
def test_no_bytes_make_a_client_or_a_judge_raise(body, kind, status, stream, endpoint):
    recorded = Recorded(body=body, kind=kind, status=status)
    question = questions(0)[0]
    request = ChatRequest(
        messages=question.messages, tools=question.tools, stream=stream, endpoint=endpoint
    )

    with ReplayServer(recorded) as replay:
        reply = asyncio.run(ask_once(replay, request))

    for judged in (
        judge_calls(reply, request, ExpectedCalls(tool="get_weather")),
        judge_json(reply, request, schema={"type": "object"}),
        judge_text(reply, request),
    ):
        assert judged.verdict in ("pass", "fail", "request_failed", "setup_error")


async def ask_once(replay, request):
    async with connect(replay.running(), timeout_s=20) as client:
        return await client.chat(request)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    content=st.none() | st.text(max_size=20),
    name=st.text(max_size=5) | st.sampled_from(["get_weather", "create_order"]),
    arguments=st.text(max_size=20) | st.sampled_from(["{}", "[[", '"{}"', '{"city": 1}', "NaN"]),
    calls=st.integers(min_value=0, max_value=2),
)
def test_no_answer_makes_a_gate_raise(gate, content, name, arguments, calls):
    said = Said(content=content, calls=[(name, arguments)] * calls)

    verdict = check(gate, lambda asked: said.recorded(stream=asked.body["stream"]))

    assert 0 <= verdict.score <= 1
    assert verdict.cases
