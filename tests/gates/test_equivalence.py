import pytest

from autotune.gates.equivalence import EquivalenceGate
from autotune.gates.likeness import likeness
from autotune.model.outcome import Reference
from tests.fakes.replay_server import Recorded, Said
from tests.gates.asking_gates import check, reasons

GATE = EquivalenceGate()
RIGHT = {"17 + 25": "42", "6 times 7": "42", "blue lamp": "blue lamp 7", "harbor": "harbor"}


def says(asked):
    question = asked.body["messages"][0]["content"]
    return next((text for key, text in RIGHT.items() if key in question), f"About: {question}")


def good(asked):
    return metrics(asked) or Said(content=says(asked)).whole()


def metrics(asked, drafted=0, accepted=0):
    if asked.path != "/metrics":
        return None
    lines = [
        "# TYPE vllm:spec_decode_num_draft_tokens_total counter",
        f"vllm:spec_decode_num_draft_tokens_total {drafted}",
        "# TYPE vllm:spec_decode_num_accepted_tokens_total counter",
        f"vllm:spec_decode_num_accepted_tokens_total {accepted}",
    ]
    return Recorded(body="\n".join([*lines, ""]).encode(), kind="text/plain")


@pytest.fixture
def reference():
    return Reference(verdicts=(check(GATE, good),))


def test_the_baseline_leaves_its_answers(reference):
    (verdict,) = reference.verdicts

    assert verdict.passed
    assert len(verdict.answers) == 8
    assert verdict.answers["sum"] == "42"


def test_the_same_answers_are_identical(reference):
    verdict = check(GATE, good, reference=reference)

    assert verdict.passed
    assert verdict.note == ""
    assert verdict.signals == {"identical": 1.0, "edit_distance": 0.0}


def test_other_words_warn_and_do_not_reject(reference):
    def other(asked):
        return metrics(asked) or Said(content=says(asked).replace("About", "On")).whole()

    verdict = check(GATE, other, reference=reference)

    assert verdict.passed
    assert "50% of the answers" in verdict.note
    assert verdict.signals["first_divergence"] == 0
    assert {case.reason for case in verdict.cases} == {"", "differs"}
    strict = check(EquivalenceGate(min_identical=0.9), other, reference=reference)
    assert not strict.passed
    assert "50% identical, 90% due" in strict.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "empty_output"),
        ("!" * 200, "repeated_output"),
        ("of of of " * 40, "repeated_output"),
        ("\ufffdpmal \ufffd\ufffd xx", "garbled_output"),
    ],
)
def test_a_collapse_rejects(reference, text, reason):
    verdict = check(GATE, lambda a: metrics(a) or Said(content=text).whole(), reference=reference)

    assert not verdict.passed
    assert reasons(verdict) == {reason}


def test_simple_answers_that_the_baseline_knew_must_not_be_lost(reference):
    def nonsense(asked):
        return metrics(asked) or Said(content="Perhaps the weather is a kind of music.").whole()

    assert check(GATE, nonsense).passed
    verdict = check(GATE, nonsense, reference=reference)
    assert not verdict.passed
    assert reasons(verdict) >= {"wrong_answer"}


@pytest.mark.parametrize(
    ("drafted", "accepted", "passed"), [(500, 0, False), (500, 1, True), (20, 0, True)]
)
def test_drafts_of_which_none_is_accepted_reject(reference, drafted, accepted, passed):
    verdict = check(GATE, lambda a: metrics(a, drafted, accepted) or good(a), reference=reference)

    assert verdict.passed is passed
    assert ("acceptance_zero" in reasons(verdict)) is not passed


def test_likeness_is_told_by_words_and_characters():
    found = likeness({"a": "one two three", "b": "x"}, {"a": "one two four", "b": "x", "c": "y"})

    assert found is not None
    assert (found.identical, found.first_divergence) == (0.5, 8)
    assert found.distance == pytest.approx(1 / 6)
    assert likeness({"a": "x"}, {}) is None
