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

from autotune.gates.asking import Case, ask_all, conclude, is_hopeless
from autotune.gates.expectations import judge
from autotune.gates.fixture_file import Fixture, read_fixtures
from autotune.gates.options import check_asking, check_count, thinking_option
from autotune.model.chat import ChatRequest
from autotune.model.outcome import CaseResult, Verdict
from autotune.protocols import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class FixturesGate:
    """Your own questions with your own checks, from a file with one JSON object a line.

    file: the file
    calls: how often the file is asked
    threshold: share of the questions that must pass
    thinking: turns thinking on or off by `enable_thinking` of the chat template; left out, the
    template decides
    max_tokens: budget of an answer whose line does not say; one that is cut is asked for once more
    with four times that
    concurrency: questions in flight
    """

    file: str
    calls: int = 1
    threshold: float = 1.0
    thinking: bool | None = None
    max_tokens: int = 256
    concurrency: int = 16
    _fixtures: tuple[Fixture, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_asking(self.calls, self.threshold, self.thinking, self.max_tokens)
        check_count("concurrency", self.concurrency)
        # Read once: every configuration of a study answers the same questions.
        object.__setattr__(self, "_fixtures", read_fixtures(Path(self.file)))

    @property
    def name(self) -> str:
        return "fixtures"

    async def check(self, client: Client, *, moment: str) -> Verdict:
        """Ask the whole file, time after time, until the verdict is clear."""
        results: list[CaseResult] = []
        for number in range(self.calls):
            for batch in _batches(self._cases(number), self.concurrency):
                results += await ask_all(client, batch)
            still_to_come = len(self._fixtures) * (self.calls - 1 - number)
            if is_hopeless(results, still_to_come=still_to_come, threshold=self.threshold):
                break
        return conclude(self.name, moment, results, threshold=self.threshold)

    def _cases(self, number: int) -> list[Case]:
        return [self._case(fixture, number) for fixture in self._fixtures]

    def _case(self, fixture: Fixture, number: int) -> Case:
        request = ChatRequest(
            messages=fixture.messages,
            max_tokens=fixture.max_tokens or self.max_tokens,
            temperature=fixture.temperature,
            stream=fixture.stream,
            tools=fixture.tools,
            tool_choice=fixture.tool_choice,
            response_format=fixture.response_format,
            extra=thinking_option(self.thinking),
        )
        name = fixture.id if self.calls == 1 else f"{fixture.id}/{number + 1}"
        return Case(id=name, request=request, judge=partial(judge, expected=fixture.expect))


def _batches(cases: Sequence[Case], size: int) -> list[Sequence[Case]]:
    return [cases[start : start + size] for start in range(0, len(cases), size)]
