"""Speaks to an OpenAI-compatible server over httpx: questions of gates, probes of launchers.

Whatever a server does, an answer comes back that says what broke; nothing here raises for it.
Left out: load, which needs stamps an order of magnitude sharper and has a client of its own.
"""

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

import httpx

from autotune.model.chat import ChatReply, ChatRequest, ToolCall
from autotune.model.host import RunningServer

LONGEST_PROBLEM = 500
"""Characters of an error that are kept: some servers answer with a whole traceback."""
SHORTEST_TIMEOUT_S = 10.0
"""Floor for servers that run faster than real time: our own client needs real seconds."""

# Loopback is plain HTTP, and loading the certificates that a default context trusts costs 30 ms
# for every client. This context trusts nobody.
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# A server without an engine answers health checks at once; one that is busy may take a moment.
_CONTROL_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIClient:
    """A connection pool to one server. Opened by `connect`."""

    server: RunningServer
    timeout_s: float
    _http: httpx.AsyncClient = field(repr=False)

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Ask once. Never raises for what the server does: the reply says what broke."""
        answer = _Answer()
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._exchange(request, answer)
        except TimeoutError:
            answer.problem = f"no complete answer within {self.timeout_s:g} s"
        except httpx.HTTPError as error:
            answer.problem = _describe(error)
        elapsed = (time.perf_counter() - began) * self.server.time_scale
        return _redacted(replace(answer.reply(), latency_s=elapsed), self.server.api_key)

    async def _exchange(self, request: ChatRequest, answer: "_Answer") -> None:
        content = _body(request, self.server.served_model)
        async with self._http.stream("POST", "/v1/chat/completions", content=content) as response:
            answer.begin(response, asked_for_stream=request.stream)
            async for chunk in response.aiter_bytes():
                if answer.feed(chunk):
                    break


@contextlib.asynccontextmanager
async def connect(
    server: RunningServer, *, timeout_s: float = 120.0
) -> AsyncIterator[OpenAIClient]:
    """Open a client for a running server. A question may take `timeout_s` of the server's time."""
    allowed_s = max(timeout_s / server.time_scale, min(timeout_s, SHORTEST_TIMEOUT_S))
    async with _async_client(server.base_url, server.api_key, allowed_s) as http:
        yield OpenAIClient(server=server, timeout_s=allowed_s, _http=http)


async def health(server: RunningServer) -> bool:
    """Ask whether the engine is alive."""
    response = await _get(server, "/health")
    return response is not None and response.status_code == HTTPStatus.OK


async def models(server: RunningServer) -> list[str] | None:
    """Name the models that are served; None where the server does not say."""
    entries = _model_entries(await _get(server, "/v1/models"))
    return None if entries is None else [str(entry.get("id")) for entry in entries]


async def version(server: RunningServer) -> str | None:
    """Name the version that the server gives itself."""
    told = _json_of(await _get(server, "/version"))
    return told.get("version") if isinstance(told, dict) else None


def probe_health(base_url: str, *, timeout_s: float = _CONTROL_TIMEOUT_S) -> int | None:
    """Return the HTTP status of `/health`; None while nobody answers."""
    response = _get_now(f"{base_url}/health", None, timeout_s)
    return None if response is None else response.status_code


def probe_models(
    base_url: str, api_key: str | None, *, timeout_s: float = _CONTROL_TIMEOUT_S
) -> tuple[dict[str, Any], ...] | None:
    """Return the entries of `/v1/models`; None where the server does not say."""
    return _model_entries(_get_now(f"{base_url}/v1/models", api_key, timeout_s))


def probe_chat(
    base_url: str, model: str, api_key: str | None, *, timeout_s: float = 120.0
) -> ChatReply:
    """Ask for one token: the first real answer of a server."""
    message = {"role": "user", "content": "Hi"}
    content = _body(ChatRequest(messages=(message,), max_tokens=1), model)
    answer = _Answer()
    began = time.perf_counter()
    try:
        with _client(base_url, api_key, timeout_s) as http:
            response = http.post("/v1/chat/completions", content=content)
        answer.begin(response, asked_for_stream=False)
        answer.feed(response.content)
    except httpx.HTTPError as error:
        answer.problem = _describe(error)
    reply = replace(answer.reply(), latency_s=time.perf_counter() - began)
    return _redacted(reply, api_key)


def get_json(
    url: str, *, api_key: str | None = None, timeout_s: float = _CONTROL_TIMEOUT_S
) -> Any | None:
    """Return what a URL answers with 200, read as JSON; None otherwise."""
    return _json_of(_get_now(url, api_key, timeout_s))


def _client(base_url: str, api_key: str | None, timeout_s: float) -> httpx.Client:
    return httpx.Client(
        base_url=base_url,
        headers=_headers(api_key),
        timeout=timeout_s,
        trust_env=False,
        verify=_NO_TLS,
    )


def _async_client(base_url: str, api_key: str | None, timeout_s: float) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=base_url,
        headers=_headers(api_key),
        timeout=timeout_s,
        limits=httpx.Limits(max_connections=None),
        trust_env=False,
        verify=_NO_TLS,
    )


def _headers(api_key: str | None) -> dict[bytes, bytes]:
    headers = {b"Content-Type": b"application/json"}
    if api_key is not None:
        # As bytes: httpx would raise for a key that is not ASCII before anything was sent.
        headers[b"Authorization"] = b"Bearer " + api_key.encode()
    return headers


def _get_now(url: str, api_key: str | None, timeout_s: float) -> httpx.Response | None:
    try:
        with _client("", api_key, timeout_s) as http:
            return http.get(url)
    except httpx.HTTPError:
        return None


async def _get(server: RunningServer, path: str) -> httpx.Response | None:
    try:
        async with _async_client(server.base_url, server.api_key, _CONTROL_TIMEOUT_S) as http:
            return await http.get(path)
    except httpx.HTTPError:
        return None


def _json_of(response: httpx.Response | None) -> Any | None:
    if response is None or response.status_code != HTTPStatus.OK:
        return None
    return _parse(response.content)


def _model_entries(response: httpx.Response | None) -> tuple[dict[str, Any], ...] | None:
    told = _json_of(response)
    data = told.get("data") if isinstance(told, dict) else None
    if not isinstance(data, list):
        return None
    return tuple(entry for entry in data if isinstance(entry, dict))


def _body(request: ChatRequest, model: str) -> bytes:
    body: dict[str, Any] = {
        "model": model,
        "messages": request.messages,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "stream": request.stream,
    }
    if request.stream:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = request.tools
    if request.tool_choice is not None:
        body["tool_choice"] = request.tool_choice
    if request.response_format is not None:
        body["response_format"] = request.response_format
    return json.dumps({**body, **request.extra}, default=_thawed).encode()


def _thawed(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


def _parse(data: bytes) -> Any | None:
    """Read JSON; None for what is none. Deep nesting ends in RecursionError."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _describe(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return f"no answer in time ({type(error).__name__})"
    if isinstance(error, httpx.LocalProtocolError):
        # Not quoted: it holds the header that was refused, and that is the one with the key.
        return "the request cannot be put on the wire: is the key one line of plain characters?"
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _redacted(reply: ChatReply, api_key: str | None) -> ChatReply:
    """Take the key out of the problem: a server may quote what it was sent."""
    problem = reply.problem
    if problem is None:
        return reply
    if api_key:
        problem = problem.replace(api_key, "***")
    return replace(reply, problem=problem[:LONGEST_PROBLEM])


class _Answer:
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
                self._read_message(_parse(event), event, part="delta")

    def _read_whole(self) -> None:
        body = _parse(self._pending)
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
