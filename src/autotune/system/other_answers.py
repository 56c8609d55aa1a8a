"""Reads the answers of /v1/responses and /v1/messages into the same `ChatReply` as a chat's.

Whole bodies and event streams. Both kinds of stream name an event's type in its data as well, so
the `event:` lines are not needed. Left out: what gates do not look at, citations for example.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from autotune.model.chat import ChatReply, ChatRequest, ToolCall

PATHS: Mapping[str, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
_FINISHED = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls"}
_CUT = {"max_tokens": "length", "max_output_tokens": "length"}


@dataclass(slots=True)
class _Parts:
    """What has come so far. A call is collected by the index of its item."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, tuple[str | None, str | None, str]] = field(default_factory=dict)
    finish_reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    ended: bool = False

    def call(self, place: Any, *, name: Any = None, id: Any = None, more: Any = "") -> None:  # noqa: A002 - the field's name on the wire
        key = place if isinstance(place, int) else len(self.calls)
        known_id, known_name, arguments = self.calls.get(key, (None, None, ""))
        if not isinstance(more, str):
            self.problem = self.problem or "arguments of a tool call are no string"
            more = ""
        self.calls[key] = (known_id or _text(id), known_name or _text(name), arguments + more)

    def reply(self) -> ChatReply:
        calls = [self.calls[place] for place in sorted(self.calls)]
        return ChatReply(
            status=HTTPStatus.OK,
            content="".join(self.content) or None,
            reasoning="".join(self.reasoning) or None,
            tool_calls=tuple(
                ToolCall(name=name, arguments=arguments, id=number)
                for number, name, arguments in calls
            ),
            finish_reason=self.finish_reason,
            prompt_tokens=_count(self.usage.get("input_tokens")),
            completion_tokens=_count(self.usage.get("output_tokens")),
            problem=self.problem,
            done=self.ended,
        )


def read_reply(request: ChatRequest, status: int, kind: str, body: bytes) -> ChatReply:
    """Read what came; whatever it is, a reply says what broke."""
    if status != HTTPStatus.OK:
        return ChatReply(status=status, problem=f"HTTP {status}: {_error_of(_json(body), body)}")
    parts = _Parts()
    if "json" in kind or not request.stream:
        _take_whole(parts, request.endpoint, _json(body), body)
    else:
        _take_stream(parts, request.endpoint, body)
    return replace(parts.reply(), status=status)


def _take_whole(parts: _Parts, endpoint: str, message: Any, raw: bytes) -> None:
    if not isinstance(message, dict):
        parts.problem = f"the answer is no JSON object: {_shown(raw)}"
        return
    if message.get("error") is not None:
        parts.problem = f"error in the answer: {_error_of(message, raw)}"
        return
    if endpoint == "responses":
        _take_response(parts, message)
    else:
        for place, block in enumerate(_objects(message.get("content"))):
            _take_block(parts, place, block)
            if block.get("type") == "tool_use":
                parts.call(place, more=json.dumps(block.get("input")))
        _end_message(parts, message)
    parts.ended = True


def _take_response(parts: _Parts, message: Mapping[str, Any]) -> None:
    for place, item in enumerate(_objects(message.get("output"))):
        if item.get("type") == "function_call":
            arguments = item.get("arguments")
            parts.call(place, name=item.get("name"), id=item.get("call_id"), more=arguments)
        elif item.get("type") == "message":
            parts.content += _texts(item.get("content"))
        elif item.get("type") == "reasoning":
            parts.reasoning += _texts(item.get("content")) or _texts(item.get("summary"))
    _end_response(parts, message)


def _end_response(parts: _Parts, message: Mapping[str, Any]) -> None:
    _take_usage(parts, message)
    details = message.get("incomplete_details")
    why = details.get("reason") if isinstance(details, dict) else None
    parts.finish_reason = _CUT.get(str(why), "tool_calls" if parts.calls else "stop")
    if message.get("status") == "failed":
        parts.problem = f"error in the answer: {_error_of(message, b'failed')}"


def _end_message(parts: _Parts, message: Mapping[str, Any]) -> None:
    _take_usage(parts, message)
    reason = message.get("stop_reason")
    if isinstance(reason, str):
        parts.finish_reason = _CUT.get(reason) or _FINISHED.get(reason, reason)


def _take_usage(parts: _Parts, message: Mapping[str, Any]) -> None:
    usage = message.get("usage")
    if isinstance(usage, dict):
        parts.usage = {**parts.usage, **usage}


def _take_block(parts: _Parts, place: Any, block: Mapping[str, Any]) -> None:
    match block.get("type"):
        case "text":
            parts.content.append(_text(block.get("text")) or "")
        case "thinking":
            parts.reasoning.append(_text(block.get("thinking")) or "")
        case "tool_use":
            parts.call(place, name=block.get("name"), id=block.get("id"))
        case _:
            pass


def _take_stream(parts: _Parts, endpoint: str, body: bytes) -> None:
    take: Callable[[_Parts, Mapping[str, Any]], None] = (
        _take_response_event if endpoint == "responses" else _take_message_event
    )
    for line in body.split(b"\n"):
        data = line.strip()
        if not data.startswith(b"data:") or data == b"data: [DONE]":
            continue
        event = _json(data.removeprefix(b"data:"))
        if not isinstance(event, dict):
            parts.problem = parts.problem or f"the answer is no JSON object: {_shown(data)}"
        elif event.get("type") == "error" or event.get("error") is not None:
            parts.problem = parts.problem or f"error in the answer: {_error_of(event, data)}"
        else:
            take(parts, event)


def _take_response_event(parts: _Parts, event: Mapping[str, Any]) -> None:
    place = event.get("output_index")
    delta = event.get("delta")
    match event.get("type"):
        case "response.output_text.delta":
            parts.content.append(_text(delta) or "")
        case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
            parts.reasoning.append(_text(delta) or "")
        case "response.output_item.added":
            for item in _objects([event.get("item")]):
                if item.get("type") == "function_call":
                    parts.call(place, name=item.get("name"), id=item.get("call_id"))
        case "response.function_call_arguments.delta":
            parts.call(place, more=delta)
        case "response.completed" | "response.incomplete" | "response.failed":
            parts.ended = True
            for message in _objects([event.get("response")]):
                _end_response(parts, message)
        case _:
            pass


def _take_message_event(parts: _Parts, event: Mapping[str, Any]) -> None:
    place = event.get("index")
    match event.get("type"):
        case "message_start":
            for message in _objects([event.get("message")]):
                _take_usage(parts, message)
        case "content_block_start":
            for block in _objects([event.get("content_block")]):
                _take_block(parts, place, block)
        case "content_block_delta":
            for delta in _objects([event.get("delta")]):
                _take_delta(parts, place, delta)
        case "message_delta":
            for delta in _objects([event.get("delta")]):
                _end_message(parts, {**delta, "usage": event.get("usage")})
        case "message_stop":
            parts.ended = True
        case _:
            pass


def _take_delta(parts: _Parts, place: Any, delta: Mapping[str, Any]) -> None:
    match delta.get("type"):
        case "text_delta":
            parts.content.append(_text(delta.get("text")) or "")
        case "thinking_delta":
            parts.reasoning.append(_text(delta.get("thinking")) or "")
        case "input_json_delta":
            parts.call(place, more=delta.get("partial_json"))
        case _:
            pass


def _texts(blocks: Any) -> list[str]:
    return [text for block in _objects(blocks) if (text := _text(block.get("text")))]


def _objects(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _json(data: bytes) -> Any | None:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _error_of(body: Any, raw: bytes) -> str:
    if not isinstance(body, dict):
        return _shown(raw)
    error = body.get("error")
    source = error if isinstance(error, dict) else body
    message = source.get("message") or source.get("detail") or error
    return message if isinstance(message, str) else _shown(raw)


def _shown(raw: bytes) -> str:
    return " ".join(raw.decode(errors="backslashreplace").split())[:200] or "nothing"
