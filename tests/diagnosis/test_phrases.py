import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.diagnosis.phrases import literal_phrases


@pytest.mark.parametrize(
    ("pattern", "phrases"),
    [
        (r"No available memory", ("No available memory",)),
        (r"\[Errno 98\] in use", ("[Errno 98] in use",)),
        (r"colou?r of \d+ cats", ("r of ",)),
        (r"ab*cde", ("cde",)),
        (r"(?:one|three)?rest", ("rest",)),
        (r"(?:alpha|beta)\b", ("alpha", "beta")),
        (r"(?P<limit>\d+) (?:x|yy)z long enough", ("z long enough",)),
        (r"[^\]x]+tail{2}", ("tai",)),
    ],
)
def test_the_longest_text_that_must_be_there_is_found(pattern, phrases):
    assert literal_phrases(pattern) == phrases


def test_an_open_group_is_an_error():
    with pytest.raises(ValueError, match="not closed"):
        literal_phrases("(abc")


@given(st.from_regex(r"(?:one \d+|two)? and (?:three|four+)[xy]{2} end?", fullmatch=True))
def test_every_match_contains_a_phrase(text):
    pattern = r"(?:one \d+|two)? and (?:three|four+)[xy]{2} end?"

    assert re.search(pattern, text)
    assert any(phrase in text for phrase in literal_phrases(pattern))
