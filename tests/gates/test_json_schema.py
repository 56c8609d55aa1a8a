import json

import pytest

from autotune.gates.json_schema import JsonSchemaGate
from tests.fakes.replay_server import ReplayServer, Said
from tests.gates.asking_gates import check, check_at, reasons
from tests.gates.obedient import answer, but

GATE = JsonSchemaGate()


def test_the_format_is_asked_for_strictly_whole_and_streamed():
    with ReplayServer(answer) as replay:
        check_at(GATE, replay)
        bodies = [asked.body for asked in replay.asked]

    assert len(bodies) == 8
    assert {body["stream"] for body in bodies} == {False, True}
    assert all(body["response_format"]["json_schema"]["strict"] is True for body in bodies)
    assert not any("guided_json" in body for body in bodies)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("```json\nWHOLE\n```", "code_fence"),
        ("Here it is: WHOLE", "text_around_json"),
        ("WHOLE That is all.", "text_around_json"),
        ("<think>easy</think>WHOLE", "reasoning_in_content"),
        ("No.", "not_json"),
        ("{'name': 'Ada'}", "not_json"),
        ("[]", "schema_violation"),
        ("OPEN" + "\n \n" * 30, "runaway_whitespace"),
        ('{"name": "' + "\\n" * 50, "runaway_whitespace"),
        (" " * 300, "runaway_whitespace"),
        ('{"name": "' + "ab" * 100, "repeated_output"),
    ],
)
def test_what_spoils_the_json_is_named(template, reason):
    def spoiled(_asked, said):
        text = template.replace("WHOLE", said.content).replace("OPEN", said.content[:-1])
        return Said(content=text)

    verdict = check(GATE, but(spoiled))

    assert not verdict.passed
    assert reasons(verdict) == {reason}


def test_json_in_the_channel_of_reasoning_is_found_where_it_happens():
    def misplaced(asked, said):
        return Said(reasoning=said.content) if asked.body["stream"] else said

    verdict = check(GATE, but(misplaced))

    assert reasons(verdict) == {"json_in_reasoning_channel"}
    assert verdict.score == 0.5


def test_a_cut_answer_is_asked_for_once_more_with_more_tokens():
    def cut(asked, said):
        enough = asked.body["max_tokens"] > 256
        return said if enough else Said(content=said.content[:-3], finish_reason="length")

    assert check(GATE, but(cut)).passed


def test_whitespace_without_end_is_not_asked_for_again():
    def blank(_asked, said):
        return Said(content=said.content[:-1] + "\n" * 200, finish_reason="length")

    with ReplayServer(but(blank)) as replay:
        verdict = check_at(GATE, replay)

        assert len(replay.asked) == 8
    assert reasons(verdict) == {"runaway_whitespace"}


def test_an_answer_that_is_cut_twice_is_truncated():
    def cut(_asked, said):
        return Said(content=said.content[:-3], finish_reason="length")

    assert reasons(check(GATE, but(cut))) == {"truncated"}


def test_valid_json_that_is_mostly_blank_passes_with_a_remark():
    def padded(_asked, said):
        return Said(content=json.dumps(json.loads(said.content), indent=60))

    verdict = check(GATE, but(padded))

    assert verdict.passed
    assert {case.reason for case in verdict.cases} == {"padded"}


@pytest.mark.parametrize("number", ["131", "-1", '"34"', "NaN"])
def test_a_number_out_of_bounds_fails(number):
    def wrong(asked, said):
        if asked.body["response_format"]["json_schema"]["name"] != "bounds":
            return said
        return Said(content=f'{{"name": "Ada", "age": {number}}}')

    assert check(GATE, but(wrong)).score == 0.75
