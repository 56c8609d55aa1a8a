"""Puts the cases of a gate to a server, several at once, and counts what came back."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from autotune.model.chat import ChatReply, ChatRequest
from autotune.model.outcome import CaseResult, Verdict
from autotune.protocols import Client

Judge: TypeAlias = Callable[[ChatReply, ChatRequest], CaseResult]

MORE_TOKENS = 4
"""How much larger the budget is when a cut answer is asked for once more."""

ROUNDING = 1e-9
"""9 of 10 reaches 0.9, however the division rounds."""

_PARSER = "`enable_auto_tool_choice: true` and `tool_call_parser: NAME` (the parser of this model)"
_REMEDIES = {
    "tool_parser_missing": f"add {_PARSER} to server.args",
    "tool_call_in_text": f"if the baseline answers so too, add {_PARSER} to server.args",
    "tool_call_in_reasoning": (
        "if the baseline answers so too, `reasoning_parser` in server.args does not suit this "
        "model, or it calls tools only with `thinking: false`"
    ),
    "reasoning_in_content": (
        "if the baseline answers so too, add `reasoning_parser: NAME` (the parser of this model) "
        "to server.args"
    ),
    "chat_template_missing": "add `chat_template: FILE` to server.args: the model has none",
    "model_not_found": (
        "the server has no such model or no chat endpoint: compare `served_model_name` in "
        "server.args with the names in its /v1/models"
    ),
    "unauthorized": "the server wants a key: compare `api_key` in server.args and VLLM_API_KEY",
}
# What a larger budget can heal, and what is left of it when the second answer is cut as well.
_CUT = ("truncated", "arguments_not_json", "arguments_missing", "not_json", "request_failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question, and who judges its answer."""

    id: str
    request: ChatRequest
    judge: Judge


async def ask_all(client: Client, cases: Sequence[Case]) -> tuple[CaseResult, ...]:
    """Put every case to the server at the same time."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_ask(client, case)) for case in cases]
    return tuple(task.result() for task in tasks)


async def _ask(client: Client, case: Case) -> CaseResult:
    result = case.judge(await client.chat(case.request), case.request)
    if result.reason == "truncated":
        larger = replace(case.request, max_tokens=case.request.max_tokens * MORE_TOKENS)
        again = case.judge(await client.chat(larger), larger)
        if again.reason in _CUT:
            # Also where the server refuses so many tokens: what is known is that it was cut.
            why = f"{result.why}; with {larger.max_tokens} tokens: {again.why}"
            again = replace(result, why=why)
        result = again
    return replace(result, id=case.id)


def score(results: Sequence[CaseResult]) -> float:
    """Share of the judged cases that passed; 0 where nothing could be judged."""
    judged = [result for result in results if result.verdict != "inconclusive"]
    passed = [result for result in judged if result.verdict == "pass"]
    return len(passed) / len(judged) if judged else 0.0


def is_hopeless(results: Sequence[CaseResult], *, still_to_come: int, threshold: float) -> bool:
    """Say whether no later answer can change the verdict any more."""
    if any(result.verdict == "setup_error" for result in results):
        return True
    lost = sum(result.verdict in ("fail", "request_failed") for result in results)
    best = 1 - lost / max(1, len(results) + still_to_come)
    return best < threshold - ROUNDING


def conclude(gate: str, moment: str, results: Sequence[CaseResult], *, threshold: float) -> Verdict:
    """Count. A server that is set up wrong does not pass, whatever else it can do."""
    reached = score(results)
    misconfigured = any(result.verdict == "setup_error" for result in results)
    return Verdict(
        gate=gate,
        moment=moment,
        passed=not misconfigured and reached >= threshold - ROUNDING,
        score=reached,
        threshold=threshold,
        cases=tuple(results),
        remedy=_find_remedy(results),
    )


def _find_remedy(results: Sequence[CaseResult]) -> str | None:
    """Name the missing thing: what stops every case comes before what spoils one."""
    reasons = {result.reason for result in results if result.verdict != "pass"}
    first = [result.reason for result in results if result.verdict == "setup_error"]
    return next((_REMEDIES[reason] for reason in (*first, *_REMEDIES) if reason in reasons), None)
