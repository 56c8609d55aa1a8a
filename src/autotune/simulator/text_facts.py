"""What a request says, as far as simple patterns find it: names, numbers, dates, addresses.

Feeds tool arguments and structured output, so that they depend on the question. Not language
understanding: the sentences that tests and gates use are enough.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w-])")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|(?<!\w)'([^']+)'(?!\w)")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]*\w")
_URL = re.compile(r"https?://[^\s\"'<>)]+[^\s\"'<>).,;]")
_PATH = re.compile(
    r"(?<![\w:/])(?:~|\.{1,2})?/[\w./-]*\w|\b[\w-]+\.(?:txt|md|py|json|yaml|csv|log|pdf)\b"
)
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_TIME = re.compile(r"\b\d{1,2}:\d{2}\b")
_RELATIVE_DAY = re.compile(
    r"\b(?:today|tomorrow|yesterday|tonight|(?:next |on )?(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b",
    flags=re.IGNORECASE,
)
_CODE = re.compile(r"\b[A-Z]{2,5}\b")
_NAME = re.compile(r"\b[A-Z][\w'-]*(?:[ -](?:(?:de|del|la|of|the) )?[A-Z][\w'-]*)*")
_ARITHMETIC = re.compile(r"[\d(][\d\s.()]*(?:[-+*/x^%][\s\d.()]+)+")
_AFTER = r"\b{word}\s+(?:the\s+)?(?P<value>[A-Z][\w'-]*(?:[ -][A-Z][\w'-]*)*)"


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Capitalised because a sentence begins with them, not because they are names.
_SENTENCE_WORDS = words_of(
    "a an and are at book call can check compute convert could create delete do does extract find for "
    "from generate get give hello hey hi how i if in is it its list look make my no please ok one plan "
    "read remind reply respond return run schedule search send set show tell thanks that the then "
    "there this to today tomorrow translate turn use using was we what what's whats when where which "
    "who why will with would write yes you your json tool function calculate classify order also both "
    "compare summarize fetch open play start stop add update"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFacts:
    """Everything found in one text, in the order of the text."""

    text: str
    words: frozenset[str]
    numbers: tuple[float, ...]
    quoted: tuple[str, ...]
    names: tuple[str, ...]
    emails: tuple[str, ...]
    urls: tuple[str, ...]
    paths: tuple[str, ...]
    dates: tuple[str, ...]
    times: tuple[str, ...]
    codes: tuple[str, ...]
    arithmetic: str | None

    def after(self, word: str) -> str | None:
        """Return the name that follows a word, as `Rome` follows `to`."""
        match = re.search(_AFTER.format(word=word), self.text)
        return match["value"] if match else None


def find_facts(text: str) -> TextFacts:
    dates = (*_DATE.findall(text), *_RELATIVE_DAY.findall(text))
    without_dates = _EMAIL.sub(" ", _URL.sub(" ", _TIME.sub(" ", _DATE.sub(" ", text))))
    arithmetic = _ARITHMETIC.search(text)
    return TextFacts(
        text=text,
        words=frozenset(re.findall(r"[a-z]+", text.lower())),
        numbers=tuple(float(number) for number in _NUMBER.findall(without_dates)),
        quoted=tuple(next(filter(None, match.groups())) for match in _QUOTED.finditer(text)),
        names=tuple(_names(without_dates)),
        emails=tuple(_EMAIL.findall(text)),
        urls=tuple(_URL.findall(text)),
        paths=tuple(_PATH.findall(_URL.sub(" ", text))),
        dates=dates,
        times=tuple(_TIME.findall(text)),
        codes=tuple(_CODE.findall(text)),
        arithmetic=arithmetic[0].strip() if arithmetic else None,
    )


def _names(text: str) -> list[str]:
    """Find capitalised phrases, without the words that only begin a sentence.

    >>> _names("What is the weather in New York and in Oslo?")
    ['New York', 'Oslo']
    """
    found = []
    for match in _NAME.finditer(text):
        words = match[0].split()
        while words and words[0].lower().rstrip("'") in _SENTENCE_WORDS:
            words = words[1:]
        name = " ".join(words)
        if name and name not in found:
            found.append(name)
    return found


def find_objects(text: str) -> Iterator[dict[str, Any]]:
    """Find the JSON objects that stand in a text, outermost ones only.

    >>> list(find_objects('Send {"to": {"name": "Ada"}} now'))
    [{'to': {'name': 'Ada'}}]
    """
    decoder = json.JSONDecoder()
    position = text.find("{")
    while position >= 0:
        try:
            found, end = decoder.raw_decode(text, position)
        except ValueError:
            end = position + 1
        else:
            yield found
        position = text.find("{", end)
