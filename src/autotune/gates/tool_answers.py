"""Judges answers to a question with tools: the right call, with arguments that can be used."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.gates.answers import (
    PASSED,
    failed,
    find_empty,
    find_garbled,
    find_request_problem,
    find_violation,
    has_call_mark,
    has_call_text,
    has_thoughts,
    is_cut,
    offered_tools,
    parse_json,
    runs_away,
    shown,
)
from autotune.model.chat import ChatReply, ChatRequest, ToolCall
from autotune.model.outcome import CaseResult

LONGEST_TAIL = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCalls:
    """The calls that must come, by the values that their arguments must hold.

    tool: the only tool that may be called (None: any that is offered)
    holding: for each call that must be there, values by argument. A text is met by a text that
    holds it, in any case: "Paris, France" is as good a city as "Paris".
    exactly: the arguments, to the last key
    """

    tool: str | None = None
    holding: tuple[Mapping[str, Any], ...] = ()
    exactly: Mapping[str, Any] | None = None


def judge_calls(reply: ChatReply, request: ChatRequest, expected: ExpectedCalls) -> CaseResult:
    """Judge an answer that must be tool calls."""
    problem = find_request_problem(reply)
    if problem is not None:
        return problem
    if not reply.tool_calls:
        return _explain_no_call(reply, request)
    problem = find_broken_call(reply, request)
    if problem is not None:
        return problem
    return _compare(reply.tool_calls, expected)


def judge_parallel(
    reply: ChatReply, request: ChatRequest, expected: ExpectedCalls, *, able: bool
) -> CaseResult:
    """Judge an answer that should be several calls at once.

    One good call instead is no verdict on the server, unless the model has done better: `able`.
    """
    result = judge_calls(reply, request, expected)
    if able or result.reason not in ("no_tool_call", "calls_missing"):
        return result
    return CaseResult(
        id="",
        verdict="inconclusive",
        reason="one_call_at_a_time",
        why=f"the model does not seem to call tools in parallel ({result.why})",
    )


def judge_no_call(reply: ChatReply, request: ChatRequest) -> CaseResult:
    """Judge an answer that must be text although tools are offered."""
    problem = find_request_problem(reply)
    if problem is not None:
        return problem
    if reply.tool_calls:
        name = reply.tool_calls[0].name
        return failed("unexpected_call", f"{shown(name)} was called where no tool was needed")
    content = reply.content or ""
    if not content.strip():
        return _explain_no_content(reply, request)
    return _find_leak(content, request) or find_garbled(content) or PASSED


def find_broken_call(reply: ChatReply, request: ChatRequest) -> CaseResult | None:
    """Find what makes the calls of an answer unusable, whichever tool was wanted."""
    for call in reply.tool_calls:
        problem = _find_broken(call, reply, request)
        if problem is not None:
            return problem
    said = [(call.name, call.arguments) for call in reply.tool_calls]
    if len(set(said)) < len(said):
        return failed("repeated_call", f"the same call came twice: {shown(str(said[0]))}")
    if has_call_mark(reply.content or ""):
        return failed("markup_in_content", f"beside the calls stands {shown(reply.content)}")
    return None


def _explain_no_call(reply: ChatReply, request: ChatRequest) -> CaseResult:
    content = reply.content or ""
    if not content.strip():
        return _explain_no_content(reply, request)
    leak = _find_leak(content, request)
    if leak is not None:
        return leak
    if runs_away(content):
        return failed("runaway_whitespace", "the answer ends in blanks")
    garbled = find_garbled(content)
    if garbled is not None:
        return garbled
    if is_cut(reply, request):
        return failed("truncated", f"{request.max_tokens} tokens were spent without a call")
    return failed("no_tool_call", f"the answer is text: {shown(content)}")


def _explain_no_content(reply: ChatReply, request: ChatRequest) -> CaseResult:
    if has_call_text(reply.reasoning or "", request):
        return failed(
            "tool_call_in_reasoning", f"the call stands in the reasoning: {shown(reply.reasoning)}"
        )
    return find_empty(reply, request)


def _find_leak(content: str, request: ChatRequest) -> CaseResult | None:
    if has_call_text(content, request):
        return failed("tool_call_in_text", f"the call came as text: {shown(content)}")
    if has_thoughts(content):
        return failed("reasoning_in_content", f"thoughts came as content: {shown(content)}")
    return None


def _find_broken(call: ToolCall, reply: ChatReply, request: ChatRequest) -> CaseResult | None:
    offered = offered_tools(request)
    if not call.name:
        return failed("tool_name_missing", f"a call without a name: {shown(call.arguments)}")
    if call.name not in offered:
        return failed("unknown_tool", f"{shown(call.name)} is not among the offered tools")
    schema = offered[call.name]
    if not call.arguments.strip() and not schema.get("required"):
        # A tool without required arguments may be called with "" as well as with "{}".
        return None
    try:
        arguments = parse_json(call.arguments)
    except ValueError as error:
        return _explain_no_json(call, reply, request, error)
    if not isinstance(arguments, dict):
        return failed(
            "arguments_not_object",
            f"the arguments of {call.name} are {_kind(arguments)}: {shown(call.arguments)}",
        )
    if not arguments and schema.get("required"):
        return _arguments_missing(call, schema)
    violation = find_violation(arguments, schema)
    if violation is not None:
        return failed("schema_violation", f"the arguments of {call.name}: {violation}")
    return None


def _explain_no_json(
    call: ToolCall, reply: ChatReply, request: ChatRequest, error: ValueError
) -> CaseResult:
    text = call.arguments
    if runs_away(text):
        return failed("runaway_whitespace", f"the arguments of {call.name} end in blanks")
    if is_cut(reply, request):
        return failed(
            "truncated",
            f"the {request.max_tokens} tokens of the request end within the arguments of "
            f"{call.name}: {shown(text[-LONGEST_TAIL:])}",
        )
    if not text.strip():
        return _arguments_missing(call, offered_tools(request)[str(call.name)])
    return failed(
        "arguments_not_json", f"the arguments of {call.name} are no JSON ({error}): {shown(text)}"
    )


def _arguments_missing(call: ToolCall, schema: Mapping[str, Any]) -> CaseResult:
    wanted = ", ".join(map(str, schema["required"]))
    return failed(
        "arguments_missing",
        f"the arguments of {call.name} are {shown(call.arguments)}, its schema requires {wanted}",
    )


def _compare(calls: tuple[ToolCall, ...], expected: ExpectedCalls) -> CaseResult:
    if expected.tool is not None:
        other = next((call.name for call in calls if call.name != expected.tool), None)
        if other is not None:
            return failed("wrong_tool", f"{shown(other)} was called, {expected.tool} was due")
    arguments = [parse_json(call.arguments.strip() or "{}") for call in calls]
    if expected.exactly is not None and not any(
        same_json(found, expected.exactly) for found in arguments
    ):
        return failed(
            "wrong_arguments", f"{shown(calls[0].arguments)} is not {dict(expected.exactly)}"
        )
    if len(calls) < len(expected.holding):
        return failed(
            "calls_missing", f"{len(calls)} of {len(expected.holding)} calls came at once"
        )
    for values in expected.holding:
        if not any(_holds(found, values) for found in arguments):
            return failed(
                "wrong_arguments", f"no call holds {dict(values)}: {shown(calls[0].arguments)}"
            )
    return PASSED


def _holds(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(found, dict) and all(
            key in found and _holds(found[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return isinstance(found, list) and all(
            any(_holds(item, value) for item in found) for value in wanted
        )
    if isinstance(wanted, str):
        return isinstance(found, str) and wanted.casefold() in found.casefold()
    return same_json(found, wanted)


def same_json(one: Any, other: Any) -> bool:
    """Compare as JSON does: true is not 1, a list is ordered, an object is not; 2 is 2.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def _kind(value: Any) -> str:
    names = {str: "a string", list: "an array", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
