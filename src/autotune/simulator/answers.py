"""What the model says to a request: segments of reasoning, text and tool calls, cut into tokens.

The answer depends on the prompt alone, so two configurations give the same text unless a switch
breaks one of them.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from autotune.simulator.patterns import example_of
from autotune.simulator.prose import natural_length, prose, short_answer
from autotune.simulator.schema_filler import SchemaFiller
from autotune.simulator.text_facts import find_facts
from autotune.simulator.tokenizer import Tokenizer
from autotune.simulator.tool_calls import ToolCall, call_named, choose_calls

_REASONING_TOKENS = 32
# A call begins and ends with markup that the tool parser swallows: tokens without text.
_OPENING, _CLOSING = "", ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive tokens of one kind; a call's first and last piece are its invisible markup."""

    kind: Literal["reasoning", "content", "call"]
    pieces: Sequence[str]
    call: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Everything that would be said; `tokens` is how much of it is."""

    segments: tuple[Segment, ...]
    tokens: int
    finish_reason: str

    @property
    def calls(self) -> bool:
        return any(segment.kind == "call" for segment in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakage:
    """Which outputs come out garbled."""

    tools: bool = False
    structured: bool = False
    text: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long the answer may be."""

    max_tokens: int
    min_tokens: int
    ignore_eos: bool


def content_key(*parts: str) -> int:
    """Turn a prompt into a number that is the same in every process."""
    key = 0
    for part in parts:
        key = zlib.crc32(part.encode(), key)
    return key


def answer_text(
    *, content: int, question: str, lengths: Lengths, stop: Sequence[str], breakage: Breakage
) -> Answer:
    """Answer in prose, or with the one right answer if there is one."""
    short = short_answer(question)
    pieces = (
        Tokenizer.split(short) if short is not None else prose(content, natural_length(content))
    )
    return _finished(
        (), _with_stop(pieces, stop), content=content, lengths=lengths, breakage=breakage
    )


def answer_completion(
    *, content: int, lengths: Lengths, stop: Sequence[str], breakage: Breakage
) -> Answer:
    """Continue a text."""
    pieces = prose(content, natural_length(content))
    return _finished(
        (), _with_stop(pieces, stop), content=content, lengths=lengths, breakage=breakage
    )


def answer_chat(
    request: Mapping[str, Any],
    *,
    content: int,
    lengths: Lengths,
    thinks: bool,
    breakage: Breakage,
) -> Answer:
    """Answer a chat: tool calls, structured output or text, after some reasoning if it thinks."""
    messages: Sequence[Mapping[str, Any]] = request["messages"]
    question = last_user_text(messages)
    reasoning: tuple[Segment, ...] = ()
    if thinks:
        thought = prose(content + 7, _REASONING_TOKENS)
        reasoning = (Segment(kind="reasoning", pieces=thought),)
    calls = tool_calls_for(request, question)
    if calls:
        return _calling(reasoning, calls, lengths, breakage, named=_is_named(request))
    structured = structured_text(request, question)
    if structured is not None:
        if breakage.structured:
            structured = garbled(structured)
        segments = (*reasoning, Segment(kind="content", pieces=Tokenizer.split(structured)))
        return _cut(segments, lengths, "stop")
    results = _tool_results(messages)
    if results:
        pieces = Tokenizer.split(f"Here is what I found: {' '.join(results)}")
    else:
        short = short_answer(question)
        pieces = Tokenizer.split(short) if short else prose(content, natural_length(content))
    stop = _stops(request)
    return _finished(
        reasoning, _with_stop(pieces, stop), content=content, lengths=lengths, breakage=breakage
    )


def tool_calls_for(request: Mapping[str, Any], question: str) -> list[ToolCall]:
    tools: Sequence[Mapping[str, Any]] = request.get("tools") or ()
    choice = request.get("tool_choice") or ("auto" if tools else "none")
    if not tools or choice == "none":
        return []
    if isinstance(choice, Mapping):
        wanted = choice.get("function", {}).get("name")
        return [call_named(tool, question) for tool in tools if tool["function"]["name"] == wanted][
            :1
        ]
    parallel = request.get("parallel_tool_calls") is not False
    if choice == "auto" and request["messages"][-1].get("role") == "tool":
        return []
    return choose_calls(tools, question, required=choice == "required", parallel=parallel)


def _is_named(request: Mapping[str, Any]) -> bool:
    return isinstance(request.get("tool_choice"), Mapping)


def _calling(
    reasoning: tuple[Segment, ...],
    calls: Sequence[ToolCall],
    lengths: Lengths,
    breakage: Breakage,
    *,
    named: bool,
) -> Answer:
    segments = list(reasoning)
    for index, call in enumerate(calls):
        arguments = garbled(call.arguments) if breakage.tools else call.arguments
        pieces = [_OPENING, *Tokenizer.split(arguments), _CLOSING]
        segments.append(Segment(kind="call", pieces=pieces, call=index, name=call.name))
    # vLLM ends a named call with "stop".
    return _cut(tuple(segments), lengths, "stop" if named else "tool_calls")


def structured_text(request: Mapping[str, Any], question: str) -> str | None:
    """Build what guided decoding would allow; None when the request asks for free text."""
    wanted = _structure(request)
    if wanted is None:
        return None
    kind, value = wanted
    if kind == "json":
        schema = json.loads(value) if isinstance(value, str) else value
        return json.dumps(SchemaFiller(find_facts(question), schema).fill(schema))
    if kind == "choice":
        named = [option for option in value if str(option).lower() in question.lower()]
        return str((named or value)[0])
    if kind == "regex":
        return example_of(str(value))
    return json.dumps({"answer": short_answer(question) or "".join(prose(len(question), 12))})


def _structure(request: Mapping[str, Any]) -> tuple[str, Any] | None:
    form = request.get("response_format") or {}
    if form.get("type") == "json_schema":
        return "json", form["json_schema"].get("schema") or {}
    if form.get("type") == "json_object":
        return "json_object", None
    structured = request.get("structured_outputs") or {}
    for kind in ("json", "choice", "regex", "json_object"):
        if structured.get(kind):
            return kind, structured[kind]
    return None


def last_user_text(messages: Sequence[Mapping[str, Any]]) -> str:
    for message in reversed(messages):
        if message.get("role") == "user":
            return message_text(message)
    return message_text(messages[-1]) if messages else ""


def message_text(message: Mapping[str, Any]) -> str:
    """Join the text of a message, whichever of the two forms it has."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return ""


def _tool_results(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    results: list[str] = []
    for message in reversed(messages):
        if message.get("role") != "tool":
            break
        results.insert(0, message_text(message))
    return results


def _stops(request: Mapping[str, Any]) -> Sequence[str]:
    stop = request.get("stop") or ()
    return [stop] if isinstance(stop, str) else stop


def _with_stop(pieces: Sequence[str], stop: Sequence[str]) -> Sequence[str]:
    if not stop:
        return pieces
    text = "".join(pieces)
    ends = [at for at in (text.find(word) for word in stop if word) if at >= 0]
    return Tokenizer.split(text[: min(ends)]) or [""] if ends else pieces


def _finished(
    reasoning: tuple[Segment, ...],
    pieces: Sequence[str],
    *,
    content: int,
    lengths: Lengths,
    breakage: Breakage,
) -> Answer:
    before = sum(len(segment.pieces) for segment in reasoning)
    least = lengths.max_tokens if lengths.ignore_eos else lengths.min_tokens
    missing = min(least, lengths.max_tokens) - before - len(pieces)
    if missing > 0:
        pieces = [*pieces, *_continued(content, missing)]
    if breakage.text:
        pieces = [piece[::-1] if index % 3 else "�" for index, piece in enumerate(pieces)]
    return _cut((*reasoning, Segment(kind="content", pieces=pieces)), lengths, "stop")


def _continued(content: int, tokens: int) -> list[str]:
    more = prose(content + 3, tokens)
    if more:
        more[0] = f" {more[0]}"
    return more


def _cut(segments: tuple[Segment, ...], lengths: Lengths, reason: str) -> Answer:
    whole = sum(len(segment.pieces) for segment in segments)
    if whole > lengths.max_tokens or (lengths.ignore_eos and whole == lengths.max_tokens):
        return Answer(segments=segments, tokens=lengths.max_tokens, finish_reason="length")
    return Answer(segments=segments, tokens=whole, finish_reason=reason)


def garbled(text: str) -> str:
    """Break a JSON text the way a bad kernel does: plausible at a glance, never valid.

    >>> garbled('{"city": "Paris"}')
    '{"city":"}{ "Paris"'
    """
    middle = len(text) // 2
    return text[:middle] + '"}{' + text[middle:-1]
