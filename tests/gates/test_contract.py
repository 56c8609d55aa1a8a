"""What every gate of the table promises."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from autotune import gates
from tests.fakes.replay_server import Recorded, ReplayServer, Said, error
from tests.gates.asking_gates import check, check_at
from tests.gates.obedient import answer

# Their constructors differ, so that only tests that know the options can call them.
GATES: dict[str, Any] = dict(gates.GATES)
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


def test_a_gate_is_documented_with_every_option(kind):
    text = GATES[kind].__doc__ or ""

    for option in dataclasses.fields(GATES[kind]):
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
