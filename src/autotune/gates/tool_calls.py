"""The gate that asks for tool calls in the ways that agents do."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from autotune.gates.answers import failed, shown
from autotune.gates.asking import Case, ask_in_rounds, ask_one_by_one
from autotune.gates.long_context import long_context
from autotune.gates.options import (
    LONG_CONTEXT_TOKENS,
    SAMPLED,
    Asking,
    check_choices,
    check_count,
    thinking_option,
    ways,
)
from autotune.gates.tool_answers import ExpectedCalls, judge_calls, judge_no_call, judge_parallel
from autotune.gates.tool_cases import ToolQuestion, questions
from autotune.model.chat import ChatReply, ChatRequest, Endpoint
from autotune.model.outcome import CaseResult, Reference, Verdict
from autotune.protocols import Client

ENDPOINTS: tuple[Endpoint, ...] = ("chat", "responses", "messages")
KINDS = tuple(question.kind for question in questions(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallsGate(Asking):
    """Calls of tools, required, named and left to the model, whole and streamed.

    calls: rounds of the 16 questions, each round in other words
    threshold: share of the judged questions that must pass
    not_worse_than_baseline: judge by the baseline instead: reject what is worse than it by more than
    this share (0.1 is ten points) beyond doubt, by an exact test at 5 %
    strict_cold: reject also where only the first request after the start goes wrong
    finalist_calls: rounds that are asked again of what would enter the front; 0: none
    thinking: turns thinking on or off by `enable_thinking` of the chat template, or asks `both`;
    left out, the template decides. Thoughts count against max_tokens.
    max_tokens: budget of an answer; one that is cut is asked for once more with four times that
    kinds: questions that are asked (required, named, auto, no_tool_needed, parallel, tool_result,
    no_arguments, many_tools, nested, unicode); left out, all
    endpoints: interfaces that are asked, of chat, responses and messages; one that the server does
    not have is inconclusive
    long_context: tokens before one question, asked once after the load, at most a third of what the
    server takes; 0: none
    """

    kinds: tuple[str, ...] | None = None
    endpoints: tuple[Endpoint, ...] = ("chat",)
    long_context: int = LONG_CONTEXT_TOKENS

    def __post_init__(self) -> None:
        Asking.__post_init__(self)
        if self.kinds is not None:
            check_choices("kinds", self.kinds, KINDS)
        check_choices("endpoints", self.endpoints, ENDPOINTS)
        check_count("long_context", self.long_context, least=0)

    @property
    def name(self) -> str:
        return "tool_calls"

    async def check(
        self, client: Client, *, moment: str, reference: Reference | None = None
    ) -> Verdict:
        """Ask round after round, until the verdict is clear; cold, the very first request alone."""
        if moment == "cold":
            results = await ask_one_by_one(client, self._round((), 0, moment, client)[:1])
        else:
            rounds = [
                partial(self._round, number=number, moment=moment, client=client)
                for number in range(self.rounds(moment))
            ]
            results = await ask_in_rounds(client, rounds, self.rule)
        return self.rule.conclude(self.name, moment, results, reference=reference)

    def _round(
        self, asked: Sequence[CaseResult], number: int, moment: str, client: Client
    ) -> list[Case]:
        able = _can_parallel(asked)
        chosen = [q for q in questions(number) if self.kinds is None or q.kind in self.kinds]
        cases = [
            self._case(question, number, stream=stream, able=able, way=(endpoint, *mode))
            for endpoint in self.endpoints
            for mode in self.thinking_modes()
            for place, question in enumerate(chosen)
            for stream in ways(question.streams, place, moment)
        ]
        first = next((question for question in chosen if question.tool is not None), None)
        if number or first is None:
            return cases
        way: Way = ("chat", *self.thinking_modes()[0])
        if moment == "load":
            # Drafts that hold at temperature 0 may garble what is sampled.
            sampled = replace(first, kind="sampled")
            cases.append(self._case(sampled, 0, stream=True, able=able, way=way, warm=True))
        if moment == "after" and self.long_context:
            before = long_context(self.long_context, client.server)
            long = replace(first, kind="long_context", messages=(before, *first.messages))
            cases.append(self._case(long, 0, stream=True, able=able, way=way))
        return cases

    def _case(
        self,
        question: ToolQuestion,
        number: int,
        *,
        stream: bool,
        able: bool,
        way: "Way",
        warm: bool = False,
    ) -> Case:
        endpoint, prefix, thinking = way
        request = ChatRequest(
            messages=question.messages,
            max_tokens=self.max_tokens,
            temperature=SAMPLED if warm else 0.0,
            stream=stream,
            tools=question.tools,
            tool_choice=question.tool_choice,
            extra=thinking_option(thinking),
            endpoint=endpoint,
        )
        place = prefix if endpoint == "chat" else f"{endpoint}/{prefix}"
        return Case(
            id=f"{place}{question.kind}/{'stream' if stream else 'whole'}/{number + 1}",
            request=request,
            judge=partial(_judge, question=question, able=able),
        )


Way: TypeAlias = tuple[Endpoint, str, bool | None]
"""Interface, what it adds to a case's name, and whether to think."""


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
    return any("parallel/" in result.id and result.verdict == "pass" for result in results)
