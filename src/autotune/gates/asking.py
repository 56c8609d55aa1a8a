"""Puts the cases of a gate to a server, several at once, and counts what came back."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from autotune.gates.answers import failed, is_missing, shown
from autotune.gates.comparing import SIGNIFICANT, Count, count, p_worse
from autotune.model.chat import ChatReply, ChatRequest
from autotune.model.outcome import CaseResult, Reference, Verdict
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
    "thinking_not_off": (
        "this model's chat template does not heed `enable_thinking`: leave `thinking` out"
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
    result = await _put(client, case, case.request)
    if result.reason == "truncated":
        larger = replace(case.request, max_tokens=case.request.max_tokens * MORE_TOKENS)
        again = await _put(client, case, larger)
        if again.reason in _CUT:
            # Also where the server refuses so many tokens: what is known is that it was cut.
            why = f"{result.why}; with {larger.max_tokens} tokens: {again.why}"
            again = replace(result, why=why)
        result = again
    return replace(result, id=case.id)


async def _put(client: Client, case: Case, request: ChatRequest) -> CaseResult:
    reply = await client.chat(request)
    result = case.judge(reply, request)
    if request.endpoint != "chat" and is_missing(reply):
        return CaseResult(
            id="", verdict="inconclusive", reason="endpoint_missing", why=f"HTTP {reply.status}"
        )
    options = request.extra.get("chat_template_kwargs")
    off = isinstance(options, Mapping) and options.get("enable_thinking") is False
    if result.verdict == "pass" and off and (reply.reasoning or "").strip():
        return failed("thinking_not_off", f"thoughts came all the same: {shown(reply.reasoning)}")
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a gate passes: by its own threshold, or not worse than the baseline by more than `margin`."""

    threshold: float
    margin: float | None = None

    def is_hopeless(self, results: Sequence[CaseResult], *, still_to_come: int) -> bool:
        """Say whether no later answer can change the verdict any more."""
        if any(result.verdict == "setup_error" for result in results):
            return True
        if self.margin is not None:
            return not _answered(results)
        lost = sum(result.verdict in ("fail", "request_failed") for result in results)
        best = 1 - lost / max(1, len(results) + still_to_come)
        return best < self.threshold - ROUNDING

    def conclude(
        self,
        gate: str,
        moment: str,
        results: Sequence[CaseResult],
        *,
        reference: Reference | None = None,
    ) -> Verdict:
        """Count. A server that is set up wrong does not pass, whatever else it can do."""
        reached = count(results)
        verdict = Verdict(
            gate=gate,
            moment=moment,
            passed=reached.share >= self.threshold - ROUNDING,
            score=reached.share,
            threshold=self.threshold,
            cases=tuple(results),
            remedy=_find_remedy(results),
        )
        if self.margin is not None:
            baseline = None if reference is None else reference.verdict(gate, moment)
            verdict = _held_against(verdict, baseline, reached, self.margin)
        return replace(verdict, passed=verdict.passed and not verdict.set_up_wrong)


def _held_against(
    verdict: Verdict, baseline: Verdict | None, reached: Count, margin: float
) -> Verdict:
    """Judge by the baseline's verdict; the baseline itself passes whatever it scores."""
    first = next((case for case in verdict.cases if case.verdict not in _HARMLESS), None)
    shown = "" if first is None else f": {first.id}: {first.why or first.reason}"
    if baseline is None:
        note = f"{verdict.gate} {verdict.score:.0%} on the baseline{shown}" if first else ""
        return replace(verdict, passed=_answered(verdict.cases), threshold=0.0, note=note)
    theirs = count(baseline.cases)
    probability = p_worse(reached, theirs, margin=margin)
    compared = (
        f"{verdict.score:.0%} against the baseline's {theirs.share:.0%}, margin {margin:.0%} "
        f"(p = {probability:.2g})"
    )
    return replace(
        verdict,
        passed=probability >= SIGNIFICANT and (_answered(verdict.cases) or not theirs.passed),
        threshold=max(0.0, theirs.share - margin),
        compared=compared,
        note=f"{verdict.gate} {compared}{shown}" if first else "",
    )


_HARMLESS = ("pass", "inconclusive")


def _answered(results: Sequence[CaseResult]) -> bool:
    """Say whether the server answered anything at all, right or wrong."""
    return any(result.verdict in ("pass", "fail", "inconclusive") for result in results)


async def ask_in_rounds(
    client: Client, rounds: Sequence[Callable[[Sequence[CaseResult]], Sequence[Case]]], rule: Rule
) -> list[CaseResult]:
    """Ask round after round, until the verdict is clear."""
    results: list[CaseResult] = []
    for number, cases_of in enumerate(rounds):
        cases = cases_of(results)
        results += await ask_all(client, cases)
        if rule.is_hopeless(results, still_to_come=len(cases) * (len(rounds) - 1 - number)):
            break
    return results


async def ask_one_by_one(client: Client, cases: Sequence[Case]) -> list[CaseResult]:
    return [await _ask(client, case) for case in cases]


def _find_remedy(results: Sequence[CaseResult]) -> str | None:
    """Name the missing thing: what stops every case comes before what spoils one."""
    reasons = {result.reason for result in results if result.verdict != "pass"}
    first = [result.reason for result in results if result.verdict == "setup_error"]
    return next((_REMEDIES[reason] for reason in (*first, *_REMEDIES) if reason in reasons), None)
