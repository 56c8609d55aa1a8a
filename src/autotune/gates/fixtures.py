"""The gate that asks your own questions: one JSON object a line, in a file of yours.

    {"id": "reply-length", "messages": [{"role": "user", "content": "Sum up: ..."}],
     "expect": {"max_words": 40, "not_matches": "(?i)as an AI"}}

Shown on two lines; in the file it is one. Beside `id` and `messages` a line may hold `tools`,
`tool_choice`, `response_format`, `stream`, `max_tokens`, `temperature`, and under `expect`:

    tool            the tool that must be called; null: none may be
    arguments       the arguments of the call, to the last key
    json_schema     a schema that the answer must be JSON to
    matches, not_matches      a regular expression that the answer must (not) hold
    contains, not_contains    a text, or a list of texts, that the answer must (not) hold
    min_chars, max_chars, max_words, max_tokens    the length of the answer
    max_latency_s   from the question to the end of the answer, in seconds

Whatever is expected, an answer must be readable, calls must keep to the schemas of the offered
tools, and an answer to a `response_format` with a schema must keep to that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from autotune.gates.asking import Case, ask_all, ask_one_by_one
from autotune.gates.expectations import judge
from autotune.gates.fixture_file import Fixture, read_fixtures
from autotune.gates.options import Asking, check_count, thinking_option
from autotune.model.chat import ChatRequest
from autotune.model.outcome import Reference, Verdict
from autotune.protocols import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class FixturesGate(Asking):
    """Your own questions with your own checks, from a file with one JSON object a line.

    file: the file
    calls: how often the file is asked
    threshold: share of the questions that must pass
    not_worse_than_baseline: judge by the baseline instead: reject what is worse than it by more than
    this share (0.1 is ten points) beyond doubt, by an exact test at 5 %
    strict_cold: reject also where only the first request after the start goes wrong
    finalist_calls: how often the file is asked again of what would enter the front; 0: not at all
    thinking: turns thinking on or off by `enable_thinking` of the chat template, or asks `both`;
    left out, the template decides
    max_tokens: budget of an answer whose line does not say; one that is cut is asked for once more
    with four times that
    concurrency: questions in flight
    """

    file: str
    concurrency: int = 16
    _fixtures: tuple[Fixture, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        Asking.__post_init__(self)
        check_count("concurrency", self.concurrency)
        # Read once: every configuration of a study answers the same questions.
        object.__setattr__(self, "_fixtures", read_fixtures(Path(self.file)))

    @property
    def name(self) -> str:
        return "fixtures"

    async def check(
        self, client: Client, *, moment: str, reference: Reference | None = None
    ) -> Verdict:
        """Ask the whole file, time after time, until the verdict is clear; cold, its first line."""
        if moment == "cold":
            results = await ask_one_by_one(client, self._cases(0)[:1])
            return self.rule.conclude(self.name, moment, results, reference=reference)
        results = []
        calls = self.rounds(moment)
        for number in range(calls):
            cases = self._cases(number)
            for batch in _batches(cases, self.concurrency):
                results += await ask_all(client, batch)
            if self.rule.is_hopeless(results, still_to_come=len(cases) * (calls - 1 - number)):
                break
        return self.rule.conclude(self.name, moment, results, reference=reference)

    def _cases(self, number: int) -> list[Case]:
        return [
            self._case(fixture, number, prefix, thinking)
            for prefix, thinking in self.thinking_modes()
            for fixture in self._fixtures
        ]

    def _case(self, fixture: Fixture, number: int, prefix: str, thinking: bool | None) -> Case:
        request = ChatRequest(
            messages=fixture.messages,
            max_tokens=fixture.max_tokens or self.max_tokens,
            temperature=fixture.temperature,
            stream=fixture.stream,
            tools=fixture.tools,
            tool_choice=fixture.tool_choice,
            response_format=fixture.response_format,
            extra=thinking_option(thinking),
        )
        name = fixture.id if number == 0 else f"{fixture.id}/{number + 1}"
        return Case(
            id=f"{prefix}{name}", request=request, judge=partial(judge, expected=fixture.expect)
        )


def _batches(cases: Sequence[Case], size: int) -> list[Sequence[Case]]:
    return [cases[start : start + size] for start in range(0, len(cases), size)]
