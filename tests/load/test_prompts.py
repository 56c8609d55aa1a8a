from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.load.plan import Plan
from autotune.load.prompts import HEAD_TOKENS, Corpus, PromptKey, corpus_text

KEY = PromptKey(seed=1, workload="agent", phase="run", concurrency=4, repeat=0)
CORPUS = Corpus(tokens=tuple(range(100, 1100)))


def ids(key, length):
    prompt = CORPUS.prompt(key, length)
    assert isinstance(prompt, list)
    return prompt


@given(st.integers(1, 5000), st.integers(0, 300))
def test_a_prompt_has_exactly_the_length_that_was_asked_for(length, index):
    assert len(CORPUS.prompt(replace(KEY, index=index), length)) == length


def test_prompts_are_the_same_every_time():
    assert CORPUS.prompt(KEY, 200) == CORPUS.prompt(replace(KEY), 200)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2},
        {"phase": "warm-up"},
        {"concurrency": 8},
        {"repeat": 1},
        {"index": 1},
        {"workload": "chat"},
    ],
)
def test_no_two_requests_begin_alike(change):
    other = replace(KEY, **change)
    assert CORPUS.prompt(KEY, 64)[:HEAD_TOKENS] != CORPUS.prompt(other, 64)[:HEAD_TOKENS]
    assert KEY.salt != other.salt
    assert Corpus().prompt(KEY, 64) != Corpus().prompt(other, 64)


def test_what_the_tokenizer_puts_first_stays_first():
    prompt = replace(CORPUS, start=(1,)).prompt(KEY, 50)
    assert (prompt[0], len(prompt)) == (1, 50)


def test_the_requests_of_a_level_cover_the_whole_text():
    starts = [ids(replace(KEY, index=index), 20)[HEAD_TOKENS] for index in range(20)]
    assert all(any(100 + low <= at < 350 + low for at in starts) for low in range(0, 1000, 250))


def test_the_end_of_a_long_prompt_stands_nowhere_else_in_it():
    prompt = ids(KEY, 4000)[HEAD_TOKENS:]
    assert prompt.count(prompt[-1]) == 1
    assert prompt.count(prompt[0]) > 1


def test_without_a_tokenizer_the_text_has_about_the_right_length():
    assert len(str(Corpus().prompt(KEY, 500))) == 2000


def test_the_corpus_holds_prose_code_json_and_chat():
    text = corpus_text()
    assert 20_000 < len(text) < 40_000
    assert all(word in text for word in ("ferry", "def ", '"properties"', "Assistant:"))


def test_a_request_fixes_everything_that_a_server_might_choose():
    plan = Plan(key=KEY, requests=2, input_tokens=30, output_tokens=9)
    bodies = plan.bodies(CORPUS, "m")
    assert len(set(bodies)) == 2
    for field in (
        b'"temperature": 0.0',
        b'"ignore_eos": true',
        b'"max_tokens": 9',
        b'"min_tokens": 9',
        b'"include_usage": true',
        b'"return_token_ids": true',
    ):
        assert field in bodies[0]
