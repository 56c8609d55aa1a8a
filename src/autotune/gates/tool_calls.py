"""The gate that asks for tool calls in the ways that agents do."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from autotune.gates.answers import failed, shown
from autotune.gates.asking import Case, ask_all, conclude, is_hopeless
from autotune.gates.options import check_asking, thinking_option
from autotune.gates.tool_answers import ExpectedCalls, judge_calls, judge_no_call, judge_parallel
from autotune.gates.tool_cases import ToolQuestion, questions
from autotune.model.chat import ChatReply, ChatRequest
from autotune.model.outcome import CaseResult, Verdict
from autotune.protocols import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallsGate:
    """Calls of tools, required, named and left to the model, whole and streamed.

    calls: rounds of the 16 questions, each round in other words
    threshold: share of the judged questions that must pass
    thinking: turns thinking on or off by `enable_thinking` of the chat template; left out, the
    template decides. Thoughts count against max_tokens.
    max_tokens: budget of an answer; one that is cut is asked for once more with four times that
    """

    calls: int = 1
    threshold: float = 1.0
    thinking: bool | None = None
    max_tokens: int = 256

    def __post_init__(self) -> None:
        check_asking(self.calls, self.threshold, self.thinking, self.max_tokens)

    @property
    def name(self) -> str:
        return "tool_calls"

    async def check(self, client: Client, *, moment: str) -> Verdict:
        """Ask round after round, until the verdict is clear."""
        results: list[CaseResult] = []
        able = False
        for number in range(self.calls):
            cases = self._cases(number, able=able)
            results += await ask_all(client, cases)
            still_to_come = len(cases) * (self.calls - 1 - number)
            if is_hopeless(results, still_to_come=still_to_come, threshold=self.threshold):
                break
            able = able or _can_parallel(results)
        return conclude(self.name, moment, results, threshold=self.threshold)

    def _cases(self, number: int, *, able: bool) -> list[Case]:
        return [
            self._case(question, number, stream=stream, able=able)
            for question in questions(number)
            for stream in question.streams
        ]

    def _case(self, question: ToolQuestion, number: int, *, stream: bool, able: bool) -> Case:
        request = ChatRequest(
            messages=question.messages,
            max_tokens=self.max_tokens,
            stream=stream,
            tools=question.tools,
            tool_choice=question.tool_choice,
            extra=thinking_option(self.thinking),
        )
        return Case(
            id=f"{question.kind}/{'stream' if stream else 'whole'}/{number + 1}",
            request=request,
            judge=partial(_judge, question=question, able=able),
        )


def _judge(
    reply: ChatReply, request: ChatRequest, *, question: ToolQuestion, able: bool
) -> CaseResult:
    if question.tool is None:
        result = judge_no_call(reply, request)
        if (
            result.verdict == "pass"
            and question.says
            and question.says not in (reply.content or "")
        ):
            return failed("wrong_answer", f"{question.says!r} is not in {shown(reply.content)}")
        return result
    expected = ExpectedCalls(tool=question.tool, holding=question.holding)
    if len(question.holding) > 1:
        return judge_parallel(reply, request, expected, able=able)
    return judge_calls(reply, request, expected)


def _can_parallel(results: Sequence[CaseResult]) -> bool:
    return any(result.id.startswith("parallel/") and result.verdict == "pass" for result in results)
