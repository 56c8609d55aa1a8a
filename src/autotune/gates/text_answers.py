"""Judges answers that are text: JSON to a schema, or plain words."""

import json
from collections.abc import Mapping
from typing import Any

from autotune.gates.answers import (
    PASSED,
    count_blanks,
    failed,
    find_empty,
    find_garbled,
    find_request_problem,
    find_violation,
    has_thoughts,
    is_cut,
    parse_json,
    runs_away,
    shown,
    whitespace_share,
)
from autotune.model.chat import ChatReply, ChatRequest
from autotune.model.outcome import CaseResult

PADDED_SHARE = 0.5


def judge_json(reply: ChatReply, request: ChatRequest, *, schema: Mapping[str, Any]) -> CaseResult:
    """Judge an answer that must be JSON to a schema, and nothing but that."""
    problem = find_request_problem(reply)
    if problem is not None:
        return problem
    content = reply.content or ""
    if not content.strip():
        return _explain_no_content(reply, request)
    try:
        value = parse_json(content)
    except ValueError as error:
        return _explain_no_json(content, reply, request, error)
    violation = find_violation(value, schema)
    if violation is not None:
        return failed("schema_violation", f"{violation} in {shown(content)}")
    share = whitespace_share(content)
    if share > PADDED_SHARE or _wider_than_written(content, value):
        return CaseResult(
            id="",
            verdict="pass",
            reason="padded",
            why=f"whitespace share {share:.0%}: blanks are counted as output tokens",
        )
    return PASSED


def _wider_than_written(content: str, value: Any) -> bool:
    """Compare with the widest form that people write: a line a value, four blanks a level."""
    widest = json.dumps(value, indent=4, ensure_ascii=False)
    return count_blanks(content) > count_blanks(widest) + 1


def judge_text(reply: ChatReply, request: ChatRequest) -> CaseResult:
    """Judge an answer that must be words for a person."""
    problem = find_request_problem(reply)
    if problem is not None:
        return problem
    content = reply.content or ""
    if not content.strip():
        return find_empty(reply, request)
    if has_thoughts(content):
        return failed("reasoning_in_content", f"thoughts came as content: {shown(content)}")
    return find_garbled(content) or PASSED


def _explain_no_content(reply: ChatReply, request: ChatRequest) -> CaseResult:
    if reply.tool_calls:
        return failed("unexpected_call", f"{shown(reply.tool_calls[0].name)} was called instead")
    thoughts = (reply.reasoning or "").strip()
    if thoughts.startswith(("{", "[")):
        return failed(
            "json_in_reasoning_channel", f"the JSON came as reasoning: {shown(reply.reasoning)}"
        )
    return find_empty(reply, request)


def _explain_no_json(
    content: str, reply: ChatReply, request: ChatRequest, error: ValueError
) -> CaseResult:
    text = content.lstrip()
    if has_thoughts(content):
        return failed("reasoning_in_content", f"thoughts came before the JSON: {shown(content)}")
    if text.startswith("```"):
        return failed("code_fence", f"the JSON stands in a code fence: {shown(content)}")
    if runs_away(content):
        return failed(
            "runaway_whitespace", f"the JSON begins with {shown(text[:40])} and ends in blanks"
        )
    if not text.startswith(("{", "[", '"')):
        inside = "{" in text or "[" in text
        reason = "text_around_json" if inside else "not_json"
        return failed(reason, f"the answer begins with text: {shown(content)}")
    garbled = find_garbled(content)
    if garbled is not None:
        return garbled
    if is_cut(reply, request):
        return failed(
            "truncated", f"the {request.max_tokens} tokens of the request end within the JSON"
        )
    if "Extra data" in str(error):
        return failed("text_around_json", f"something follows the JSON: {shown(content[-80:])}")
    return failed("not_json", f"{error}: {shown(content)}")
