"""A question to a chat endpoint and its answer, as faithful to the wire as gates need it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Endpoint: TypeAlias = Literal["chat", "responses", "messages"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One question. `extra` goes into the body as it is.

    endpoint: which of the server's interfaces is asked: /v1/chat/completions, /v1/responses or
    /v1/messages
    """

    messages: tuple[Mapping[str, Any], ...]
    max_tokens: int = 256
    temperature: float = 0.0
    stream: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    response_format: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    endpoint: Endpoint = "chat"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call; `arguments` is the raw string, whether it is JSON or not."""

    name: str | None
    arguments: str
    id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """An answer, streamed or not.

    status: HTTP status; problem: what broke the answer on the way (an error event in a stream that
    is HTTP 200, a body that is no JSON, a connection that ended), else None
    done: whether a stream ended with its `[DONE]`
    """

    status: int
    content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    problem: str | None = None
    done: bool = True
    latency_s: float = 0.0
