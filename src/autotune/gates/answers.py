"""What an answer is, before anybody asks whether it is right: broken, cut, empty, or garbled.

Pure functions over `ChatReply`. Findings name one `reason` each; `why` is a sentence for a person.
"""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from referencing import Registry
from referencing.exceptions import Unresolvable

from autotune.model.chat import ChatReply, ChatRequest
from autotune.model.outcome import CaseResult

RUNAWAY_WHITESPACE = 40
"""Blanks at the end of an unfinished answer that no indentation explains."""
LONGEST_SHOWN = 120
NO_CHARACTER = "\ufffd"

PASSED = CaseResult(id="", verdict="pass")

# How models mark thoughts in text; a closing mark alone means that the template opened it.
_THOUGHT_MARK = re.compile(
    r"</?think(?:ing)?>|</?seed:think>|</?reasoning>|\[/?THINK\]|<\|?channel\|?>|"
    r"<\|(?:START|END)_THINKING\|>|<\|(?:begin|end)_of_thought\|>|◁/?think▷",
    re.IGNORECASE,
)
# How models mark calls in text, one alternative for a family of templates (the escapes stand for
# the wide bar and the low line of DeepSeek's marks).
_CALL_MARK = re.compile(
    r"</?tool_calls?>|</?(?:minimax|seed):tool_call>|</?function_calls?>|<function=|<invoke name=|"
    r"</?tools?>|<arg_key>|\[TOOL_CALLS\]|<\|python_tag\|>|<\|/?tool_call|<\|?tool_call\|?>|"
    r"<\uff5c(?:tool\u2581|DSML)|<\|action_start\|>|<(?:start|end)_function_call>|functools\[|"
    r"to=functions\.",
    re.IGNORECASE,
)
_BLANKS_AT_END = re.compile(r"(?:\s|\\[nrt])*\Z")
_REPETITION = re.compile(r"(.{1,8}?)\1{23,}\Z", re.DOTALL)
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)

# vLLM's own sentences for what no configuration of knobs can heal.
_SETUP_ERRORS = (
    (re.compile(r"--enable-auto-tool-choice|--tool-call-parser"), "tool_parser_missing"),
    (re.compile(r"must provide a chat template"), "chat_template_missing"),
)


def failed(reason: str, why: str) -> CaseResult:
    return CaseResult(id="", verdict="fail", reason=reason, why=why)


def find_request_problem(reply: ChatReply) -> CaseResult | None:
    """Tell apart what the server refuses for good, what broke on the way, and an answer (None)."""
    refusal = _find_refusal(reply)
    if refusal is not None:
        return CaseResult(
            id="",
            verdict="setup_error",
            reason=refusal,
            why=reply.problem or f"HTTP {reply.status}",
        )
    why = reply.problem
    if why is None and reply.status != HTTPStatus.OK:
        why = f"HTTP {reply.status}"
    if why is None and not reply.done and reply.finish_reason is None:
        why = "the stream ended without a finish_reason and without [DONE]"
    if why is None:
        return None
    return CaseResult(id="", verdict="request_failed", reason="request_failed", why=why)


def _find_refusal(reply: ChatReply) -> str | None:
    if reply.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return "unauthorized"
    if reply.status == HTTPStatus.NOT_FOUND:
        return "model_not_found"
    if reply.status == HTTPStatus.BAD_REQUEST:
        problem = reply.problem or ""
        return next((name for text, name in _SETUP_ERRORS if text.search(problem)), None)
    return None


def is_missing(reply: ChatReply) -> bool:
    """Say whether the server has no such endpoint; a model that it does not know is another thing."""
    unknown = re.search(r"\bmodel\b", reply.problem or "", re.IGNORECASE)
    return reply.status in _NO_ROUTE and unknown is None


_NO_ROUTE = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


def is_cut(reply: ChatReply, request: ChatRequest) -> bool:
    """Say whether the token budget ended the answer. `finish_reason` alone does not tell.

    vLLM reports `tool_calls` for a streamed call that was cut.
    """
    spent = reply.completion_tokens
    return reply.finish_reason == "length" or (spent is not None and spent >= request.max_tokens)


def runs_away(text: str) -> bool:
    """Say whether an unfinished text ends in blanks that more tokens would only prolong."""
    blanks = _BLANKS_AT_END.search(text)
    return blanks is not None and len(blanks.group()) >= RUNAWAY_WHITESPACE


def find_empty(reply: ChatReply, request: ChatRequest) -> CaseResult:
    """Say why an answer has nothing in it that anybody could read."""
    content = reply.content or ""
    if len(content) >= RUNAWAY_WHITESPACE or runs_away(reply.reasoning or ""):
        return failed("runaway_whitespace", f"{len(content)} blanks and nothing else")
    if is_cut(reply, request):
        return failed(
            "truncated", f"{request.max_tokens} tokens were spent before the answer began"
        )
    if (reply.reasoning or "").strip():
        return failed("answer_in_reasoning", f"only reasoning came: {shown(reply.reasoning)}")
    spent = reply.completion_tokens
    tokens = "" if spent is None else f", although {spent} tokens were generated"
    return failed("empty_output", f"neither content nor reasoning nor a tool call came{tokens}")


def find_garbled(text: str) -> CaseResult | None:
    """Name text that is no language: one piece over and over, or bytes that are no characters."""
    tail = text[-400:]
    repeated = _REPETITION.search(tail)
    if repeated is not None and repeated.group(1).strip(" -=_.*#\n"):
        return failed("repeated_output", f"it ends in {shown(repeated.group(1))} over and over")
    # The last one may be a character whose other bytes were cut off.
    if NO_CHARACTER in text.rstrip()[:-1]:
        return failed("garbled_output", f"bytes that are no characters: {shown(text)}")
    return None


def has_thoughts(text: str) -> bool:
    return _THOUGHT_MARK.search(text) is not None


def has_call_mark(text: str) -> bool:
    return _CALL_MARK.search(text) is not None


def has_call_text(text: str, request: ChatRequest) -> bool:
    """Say whether a text holds a call: marked, as bare JSON, or in the way of a Python call."""
    if has_call_mark(text):
        return True
    names = "|".join(re.escape(name) for name in offered_tools(request))
    if not names:
        return False
    bare = text.strip().removeprefix("```json").strip("`\n ")
    if re.match(rf"\[?(?:{names})\(", bare):
        return True
    return bare[:1] in ("{", "[") and bool(
        re.search(rf'"name"\s*:\s*"(?:{names})"', bare)
        and re.search(r'"(?:arguments|parameters)"\s*:', bare)
    )


def offered_tools(request: ChatRequest) -> dict[str, Mapping[str, Any]]:
    """Name the tools on offer, with the schemas of their arguments."""
    functions = [tool["function"] for tool in request.tools]
    return {function["name"]: function.get("parameters", {}) for function in functions}


def parse_json(text: str) -> Any:
    """Read JSON as the standard has it: no NaN, no Infinity, no depth that nobody can walk.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def find_violation(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Say where a value breaks a schema; None where it does not."""
    # An empty registry: a reference that leaves the schema must not become a download.
    validator = Draft202012Validator(schema, registry=Registry())
    try:
        worst = best_match(validator.iter_errors(value))
    except Unresolvable as unresolvable:
        return f"the schema points nowhere: {unresolvable}"[:LONGEST_SHOWN]
    except re.error as error:
        return f"a pattern of the schema is no regular expression of Python: {error}"
    except (RecursionError, ArithmeticError) as error:
        return f"it cannot be compared with the schema: {error}"
    return None if worst is None else _sentence(worst)


def _sentence(error: ValidationError) -> str:
    where = ".".join(str(step) for step in error.absolute_path)
    return f"{where}: {_short(error.message)}" if where else _short(error.message)


def whitespace_share(text: str) -> float:
    """Share of a JSON text that is blank between its values."""
    return count_blanks(text) / max(1, len(text))


def count_blanks(text: str) -> int:
    """Count the blanks of a JSON text that are in none of its strings."""
    return sum(character.isspace() for character in _STRINGS.sub("", text))


def shown(text: str | None) -> str:
    """Quote a text in a sentence: short, and printable whatever it holds."""
    return repr(_short(text or ""))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
