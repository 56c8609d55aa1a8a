"""Puts an answer together from what arrives, whole or streamed, and remembers what broke on the way.

Left out: the connection. Bytes come in, a `ChatReply` goes out.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import httpx

from autotune.model.chat import ChatReply, ToolCall

LONGEST_PROBLEM = 500
"""Characters of an error that are kept: some servers answer with a whole traceback."""


class Answer:
    """Collects an answer off the wire, whole or in events; what arrived before a break counts."""

    def __init__(self) -> None:
        self.status = 0
        self.problem: str | None = None
        self._done = True
        self._streamed = False
        self._pending = b""
        self._event: list[bytes] = []
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _CallParts] = {}
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] = {}

    def begin(self, response: httpx.Response, *, asked_for_stream: bool) -> None:
        self.status = response.status_code
        kind = response.headers.get("content-type", "")
        self._streamed = (
            self.status == HTTPStatus.OK
            and "json" not in kind
            and (asked_for_stream or kind.startswith("text/event-stream"))
        )
        self._done = not (self.status == HTTPStatus.OK and asked_for_stream)

    def feed(self, chunk: bytes) -> bool:
        """Take what arrived; say whether the stream said that it is over."""
        self._pending += chunk
        if self._streamed:
            # On bytes: text would also be split at U+2028 and U+0085, which JSON holds as they are.
            lines = self._pending.splitlines(keepends=True)
            whole = len(lines) if self._pending.endswith(b"\n") else len(lines) - 1
            self._pending = b"".join(lines[whole:])
            for line in lines[:whole]:
                self._read_line(line.rstrip(b"\r\n"))
        return self._streamed and self._done

    def reply(self) -> ChatReply:
        """Say what came."""
        if self._streamed:
            self._read_line(self._pending.rstrip(b"\r\n"))
            self._read_line(b"")
        elif self.status and self.problem is None:
            self._read_whole()
        self._pending = b""
        return ChatReply(
            status=self.status,
            content="".join(self._content) if self._content else None,
            reasoning="".join(self._reasoning) if self._reasoning else None,
            tool_calls=tuple(self._calls[index].joined() for index in sorted(self._calls)),
            finish_reason=self._finish_reason,
            prompt_tokens=_count(self._usage.get("prompt_tokens")),
            completion_tokens=_count(self._usage.get("completion_tokens")),
            problem=self.problem,
            done=self._done,
        )

    def _read_line(self, line: bytes) -> None:
        """One line of the event stream; an empty one ends the event."""
        if line.startswith(b"data:"):
            self._event.append(line.removeprefix(b"data:").removeprefix(b" "))
        elif not line and self._event:
            event, self._event = b"\n".join(self._event).strip(), []
            if event == b"[DONE]":
                self._done = True
            else:
                self._read_message(parse_json(event), event, part="delta")

    def _read_whole(self) -> None:
        body = parse_json(self._pending)
        if self.status == HTTPStatus.OK:
            self._read_message(body, self._pending, part="message")
        else:
            self.problem = f"HTTP {self.status}: {_error_text(body, self._pending)}"

    def _read_message(self, message: Any, raw: bytes, *, part: str) -> None:
        if not isinstance(message, dict):
            self._breaks(f"the answer is no JSON object: {_shown(raw)}")
            return
        if message.get("error") is not None or message.get("object") == "error":
            self._breaks(f"error in the answer: {_error_text(message, raw)}")
            return
        if isinstance(message.get("usage"), dict):
            # Running totals, where they come with every chunk: the last one is the sum.
            self._usage = message["usage"]
        choices = message.get("choices")
        if not isinstance(choices, list):
            self._breaks(f"the answer has no choices: {_shown(raw)}")
        elif choices:
            self._read_choice(choices[0], part)
        elif part == "message":
            self._breaks("the answer has an empty list of choices")

    def _read_choice(self, choice: Any, part: str) -> None:
        delta = choice.get(part) if isinstance(choice, dict) else None
        if not isinstance(delta, dict):
            if delta is not None or part == "message":
                self._breaks(f"a choice without {part}")
            return
        finish_reason = choice.get("finish_reason")
        if isinstance(finish_reason, str):
            self._finish_reason = finish_reason
        self._take_text(delta.get("content"), self._content, "content")
        # `reasoning` since vLLM 0.12, `reasoning_content` before and elsewhere; some send both.
        thought = delta.get("reasoning")
        if thought is None:
            thought = delta.get("reasoning_content")
        self._take_text(thought, self._reasoning, "reasoning")
        for position, call in enumerate(_items(delta.get("tool_calls"))):
            self._take_call(call, position, whole=part == "message")

    def _take_text(self, text: Any, parts: list[str], name: str) -> None:
        if isinstance(text, str):
            parts.append(text)
        elif text is not None:
            self._breaks(f"{name} is {type(text).__name__}, not a string")

    def _take_call(self, call: Any, position: int, *, whole: bool) -> None:
        if not isinstance(call, dict):
            self._breaks(f"a tool call is {type(call).__name__}, not an object")
            return
        index = call.get("index")
        # Whole messages carry no index, or the same one for every call.
        place = position if whole or not isinstance(index, int) else index
        parts = self._calls.setdefault(place, _CallParts())
        function = call.get("function")
        known = function if isinstance(function, dict) else {}
        parts.add(id=call.get("id"), name=known.get("name"))
        self._take_text(known.get("arguments"), parts.arguments, "arguments of a tool call")

    def _breaks(self, problem: str) -> None:
        """Keep the first problem: the later ones follow from it."""
        if self.problem is None:
            self.problem = problem


@dataclass(slots=True)
class _CallParts:
    id: str | None = None
    name: str | None = None
    arguments: list[str] = field(default_factory=list)

    def add(self, *, id: Any, name: Any) -> None:  # noqa: A002 - the field's name on the wire
        if isinstance(id, str):
            self.id = self.id or id
        if isinstance(name, str):
            # Sent once by vLLM, in pieces or again with every chunk by others.
            self.name = name if self.name in (None, "", name) else f"{self.name}{name}"

    def joined(self) -> ToolCall:
        return ToolCall(name=self.name, arguments="".join(self.arguments), id=self.id)


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _error_text(body: Any, raw: bytes) -> str:
    """Find the sentence: vLLM's, the one of its key check, FastAPI's, or whatever came."""
    if not isinstance(body, dict):
        return _shown(raw)
    error = body.get("error")
    if isinstance(error, str):
        return error
    source = error if isinstance(error, dict) else body
    message = source.get("message") or source.get("detail")
    return message if isinstance(message, str) else _shown(raw)


def _shown(raw: bytes) -> str:
    return " ".join(raw.decode(errors="backslashreplace").split())[:200] or "nothing"


def parse_json(data: bytes) -> Any | None:
    """Read JSON; None for what is none. Deep nesting ends in RecursionError."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
