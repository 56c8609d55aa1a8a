import json

import pytest

from autotune.gates.tool_calls import ToolCallsGate
from tests.fakes.replay_server import ReplayServer, Said, error
from tests.gates.asking_gates import check, check_at, reasons
from tests.gates.obedient import answer, but

GATE = ToolCallsGate()


def test_every_way_of_calling_is_asked_whole_and_streamed():
    with ReplayServer(answer) as replay:
        check_at(GATE, replay)
        bodies = [asked.body for asked in replay.asked]

    for stream in (False, True):
        choices = [body["tool_choice"] for body in bodies if body["stream"] is stream]
        assert {str(choice)[:8] for choice in choices} == {"required", "auto", "{'type':"}
    assert max(len(body["tools"]) for body in bodies) > 20
    assert {(body["max_tokens"], body["temperature"]) for body in bodies} == {(256, 0.0)}


def test_all_questions_are_in_flight_at_once():
    with ReplayServer(answer) as replay:
        verdict = check_at(GATE, replay)

        assert max(asked.in_flight for asked in replay.asked) > len(verdict.cases) / 2


def test_rounds_differ_in_their_words():
    with ReplayServer(answer) as replay:
        check_at(ToolCallsGate(calls=2), replay)
        asked = [json.dumps(asked.body["messages"]) for asked in replay.asked]

    first, second = set(asked[: len(asked) // 2]), set(asked[len(asked) // 2 :])
    assert len(first & second) == 1  # what time it is has no other words


def test_calls_that_break_only_streamed_are_found():
    def broken(asked, said):
        if not asked.body["stream"] or not said.calls:
            return said
        return Said(calls=[(name, text[1:]) for name, text in said.calls])

    verdict = check(GATE, but(broken))

    assert reasons(verdict) == {"arguments_not_json"}
    assert {case.id.split("/")[1] for case in verdict.cases if case.verdict == "fail"} == {"stream"}
    assert not verdict.passed


def test_calls_that_break_only_under_concurrency_are_found():
    def broken(asked, said):
        if asked.in_flight < 4 or not said.calls:
            return said
        return Said(calls=[(name, "") for name, _ in said.calls])

    verdict = check(GATE, but(broken))

    assert not verdict.passed
    assert "arguments_missing" in reasons(verdict)


def test_a_string_where_an_object_is_due_is_rejected():
    def broken(asked, said):
        if asked.body["tool_choice"] != "required":
            return said
        return Said(calls=[("get_weather", '"Paris"')])

    verdict = check(GATE, but(broken))

    assert not verdict.passed
    assert reasons(verdict) == {"arguments_not_object"}
    assert "required/whole/1" in verdict.reason
    assert "a string" in verdict.reason


def test_a_lost_argument_is_named():
    def broken(_asked, said):
        calls = [(name, text.replace('"shipping": "express", ', "")) for name, text in said.calls]
        return Said(content=said.content, calls=calls)

    verdict = check(GATE, but(broken))

    failed = [case for case in verdict.cases if case.verdict == "fail"]
    assert {case.id.split("/")[0] for case in failed} == {"nested"}
    assert all("'shipping' is a required property" in case.why for case in failed)


def test_mangled_characters_are_found():
    def broken(_asked, said):
        calls = [(name, text.replace("\\u6771", "\\ufffd")) for name, text in said.calls]
        return Said(content=said.content, calls=calls)

    verdict = check(GATE, but(broken))

    assert {case.id.split("/")[0] for case in verdict.cases if case.verdict == "fail"} == {
        "unicode"
    }


def test_a_server_without_a_tool_parser_gets_its_remedy():
    message = (
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    )

    def refuses(asked, said):
        return error(400, message) if asked.body["tool_choice"] == "auto" else said

    verdict = check(GATE, but(refuses))

    assert not verdict.passed
    assert reasons(verdict) == {"tool_parser_missing"}
    assert verdict.remedy is not None
    assert "enable_auto_tool_choice: true" in verdict.remedy
    assert "server.args" in verdict.remedy


def test_a_misconfigured_server_does_not_pass_by_its_other_answers():
    def refuses(asked, said):
        return error(404, "no such model") if asked.in_flight == 1 else said

    verdict = check(ToolCallsGate(threshold=0.1), but(refuses))

    assert not verdict.passed


def test_calls_as_text_hint_at_the_parser():
    def broken(_asked, said):
        if not said.calls:
            return said
        name, text = said.calls[0]
        return Said(content=f'<tool_call>\n{{"name": "{name}", "arguments": {text}}}\n</tool_call>')

    verdict = check(GATE, but(broken))

    assert reasons(verdict) == {"tool_call_in_text"}
    assert verdict.remedy is not None
    assert "tool_call_parser" in verdict.remedy


def test_a_model_that_calls_one_at_a_time_is_not_judged_for_it():
    def single(_asked, said):
        return Said(content=said.content, calls=said.calls[:1])

    verdict = check(GATE, but(single))

    assert [case.reason for case in verdict.cases if case.verdict == "inconclusive"] == [
        "one_call_at_a_time"
    ]
    assert (verdict.passed, verdict.score) == (True, 1.0)


def test_a_model_that_called_in_parallel_once_is_held_to_it():
    seen = []

    def forgets(_asked, said):
        if len(said.calls) < 2:
            return said
        seen.append(said)
        return Said(calls=said.calls[: 2 if len(seen) == 1 else 1])

    verdict = check(ToolCallsGate(calls=2), but(forgets))

    assert not verdict.passed
    assert reasons(verdict) == {"calls_missing"}


def test_parallel_calls_that_are_broken_are_no_excuse():
    def broken(_asked, said):
        if len(said.calls) < 2:
            return said
        return Said(calls=[said.calls[0], ("get_weather", '{"city": "Os')])

    verdict = check(GATE, but(broken))

    assert not verdict.passed
    assert reasons(verdict) == {"arguments_not_json"}


@pytest.mark.parametrize(
    ("kind", "said", "reason"),
    [
        ("no_tool_needed", Said(calls=[("save_note", '{"text": "Hi"}')]), "unexpected_call"),
        ("tool_result", Said(content="It is warm."), "wrong_answer"),
        ("no_arguments", Said(calls=[("get_weather", '{"city": "Paris"}')]), "wrong_tool"),
        ("many_tools", Said(calls=[("get_wether", "{}")]), "unknown_tool"),
    ],
)
def test_a_wrong_choice_is_named(kind, said, reason):
    right = {
        "no_tool_needed": "Do not use any tool",
        "tool_result": "What is the temperature",
        "no_arguments": "what time it is",
        "many_tools": "Use the right tool",
    }[kind]

    def wrong(asked, good):
        return said if right in asked.body["messages"][0]["content"] else good

    verdict = check(GATE, but(wrong))

    failed = [case for case in verdict.cases if case.verdict == "fail"]
    assert {(case.id.split("/")[0], case.reason) for case in failed} == {(kind, reason)}


def test_a_tool_without_arguments_may_be_called_with_nothing():
    def bare(_asked, said):
        return Said(
            content=said.content,
            calls=[(name, "" if text == "{}" else text) for name, text in said.calls],
        )

    assert check(GATE, but(bare)).passed


def test_a_cut_answer_is_asked_for_once_more_with_more_tokens():
    def cut(asked, said):
        if asked.body["max_tokens"] > 256 or not said.calls:
            return said
        return Said(
            calls=[(name, text[:-2]) for name, text in said.calls],
            completion_tokens=256,
            finish_reason="tool_calls",
        )

    with ReplayServer(but(cut)) as replay:
        verdict = check_at(GATE, replay)

        budgets = {asked.body["max_tokens"] for asked in replay.asked}
    assert budgets == {256, 1024}
    assert verdict.passed


def test_an_answer_that_is_cut_twice_is_truncated():
    def cut(_asked, said):
        calls = [(name, text[: len(text) // 2] or "{") for name, text in said.calls]
        return Said(content=said.content, calls=calls, completion_tokens=256)

    verdict = check(GATE, but(cut))

    assert reasons(verdict) == {"truncated"}
    assert all("with 1024 tokens" in case.why for case in verdict.cases if case.verdict == "fail")


def test_a_lower_threshold_lets_some_fail():
    def one_wrong(asked, said):
        return Said(content="no") if asked.body.get("tool_choice") == "required" else said

    assert not check(GATE, but(one_wrong)).passed
    assert check(ToolCallsGate(threshold=0.85), but(one_wrong)).passed
