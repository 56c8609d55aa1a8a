"""What a fixture expects of an answer, and whether the answer keeps to it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.gates.answers import PASSED, failed, find_request_problem, shown
from autotune.gates.text_answers import judge_json, judge_text
from autotune.gates.tool_answers import (
    ExpectedCalls,
    find_broken_call,
    judge_calls,
    judge_no_call,
)
from autotune.model.chat import ChatReply, ChatRequest
from autotune.model.outcome import CaseResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The checks of one fixture; `no_tool` is `"tool": null` of the file."""

    tool: str | None = None
    no_tool: bool = False
    arguments: Mapping[str, Any] | None = None
    json_schema: Mapping[str, Any] | None = None
    matches: re.Pattern[str] | None = None
    not_matches: re.Pattern[str] | None = None
    contains: tuple[str, ...] = ()
    not_contains: tuple[str, ...] = ()
    min_chars: int | None = None
    max_chars: int | None = None
    max_words: int | None = None
    max_tokens: int | None = None
    max_latency_s: float | None = None


def judge(reply: ChatReply, request: ChatRequest, *, expected: Expectation) -> CaseResult:
    """Judge an answer: readable, of the kind that was asked for, and as the fixture wants it."""
    result = find_request_problem(reply) or _judge_kind(reply, request, expected)
    if result.verdict != "pass":
        return result
    content = reply.content or ""
    return (
        _find_wrong_text(content, expected)
        or _find_wrong_length(content, reply, expected)
        or _find_slow(reply, expected)
        or result
    )


def _judge_kind(reply: ChatReply, request: ChatRequest, expected: Expectation) -> CaseResult:
    if _wants_call(request, expected):
        named = request.tool_choice if isinstance(request.tool_choice, Mapping) else {}
        tool = expected.tool or named.get("function", {}).get("name")
        return judge_calls(reply, request, ExpectedCalls(tool=tool, exactly=expected.arguments))
    if reply.tool_calls and not expected.no_tool:
        return find_broken_call(reply, request) or PASSED
    schema = expected.json_schema or _wanted_schema(request)
    if schema is not None:
        return judge_json(reply, request, schema=schema)
    if request.tools:
        return judge_no_call(reply, request)
    return judge_text(reply, request)


def _wants_call(request: ChatRequest, expected: Expectation) -> bool:
    if expected.no_tool:
        return False
    if expected.tool is not None or expected.arguments is not None:
        return True
    return request.tool_choice == "required" or isinstance(request.tool_choice, Mapping)


def _wanted_schema(request: ChatRequest) -> Mapping[str, Any] | None:
    wanted = request.response_format or {}
    if wanted.get("type") == "json_object":
        return {"type": "object"}
    if wanted.get("type") != "json_schema":
        return None
    schema: Mapping[str, Any] = wanted["json_schema"]["schema"]
    return schema


def _find_wrong_text(content: str, expected: Expectation) -> CaseResult | None:
    if expected.matches is not None and not expected.matches.search(content):
        return failed("no_match", f"{expected.matches.pattern!r} is not in {shown(content)}")
    if expected.not_matches is not None:
        found = expected.not_matches.search(content)
        if found is not None:
            return failed("forbidden_match", f"the answer holds {shown(found.group())}")
    missing = next((text for text in expected.contains if text not in content), None)
    if missing is not None:
        return failed("text_missing", f"{missing!r} is not in {shown(content)}")
    unwanted = next((text for text in expected.not_contains if text in content), None)
    if unwanted is not None:
        return failed("forbidden_text", f"{unwanted!r} is in {shown(content)}")
    return None


def _find_wrong_length(content: str, reply: ChatReply, expected: Expectation) -> CaseResult | None:
    characters, words = len(content), len(content.split())
    if expected.min_chars is not None and characters < expected.min_chars:
        return failed("too_short", f"{characters} characters, at least {expected.min_chars} due")
    limits = (
        ("characters", characters, expected.max_chars),
        ("words", words, expected.max_words),
        ("tokens", reply.completion_tokens, expected.max_tokens),
    )
    for name, found, limit in limits:
        if limit is not None and found is not None and found > limit:
            return failed("too_long", f"{found} {name}, at most {limit} allowed")
    return None


def _find_slow(reply: ChatReply, expected: Expectation) -> CaseResult | None:
    limit = expected.max_latency_s
    if limit is None or reply.latency_s <= limit:
        return None
    return failed("too_slow", f"the answer took {reply.latency_s:.2f} s, {limit:g} s are allowed")
