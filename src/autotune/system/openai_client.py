"""Speaks to an OpenAI-compatible server over httpx: questions of gates, probes of launchers.

Whatever a server does, an answer comes back that says what broke; nothing here raises for it.
Left out: load, which needs stamps an order of magnitude sharper and has a client of its own.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

import httpx

from autotune.model.chat import ChatReply, ChatRequest
from autotune.model.host import RunningServer
from autotune.system.chat_answer import LONGEST_PROBLEM, Answer, parse_json
from autotune.system.other_answers import PATHS, read_reply
from autotune.system.request_bodies import request_body

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
        began = time.perf_counter()
        if request.endpoint == "chat":
            reply = await self._chat(request)
        else:
            reply = await self._ask_other(request)
        elapsed = (time.perf_counter() - began) * self.server.time_scale
        return _redacted(replace(reply, latency_s=elapsed), self.server.api_key)

    async def _chat(self, request: ChatRequest) -> ChatReply:
        answer = Answer()
        try:
            async with asyncio.timeout(self.timeout_s):
                await self._exchange(request, answer)
        except TimeoutError:
            answer.problem = self._too_late()
        except httpx.HTTPError as error:
            answer.problem = _describe(error)
        return answer.reply()

    async def _ask_other(self, request: ChatRequest) -> ChatReply:
        content = request_body(request, self.server.served_model)
        try:
            async with asyncio.timeout(self.timeout_s):
                response = await self._http.post(PATHS[request.endpoint], content=content)
        except TimeoutError:
            return ChatReply(status=0, problem=self._too_late())
        except httpx.HTTPError as error:
            return ChatReply(status=0, problem=_describe(error))
        kind = response.headers.get("content-type", "")
        return read_reply(request, response.status_code, kind, response.content)

    def _too_late(self) -> str:
        return f"no complete answer within {self.timeout_s:g} s"

    async def _exchange(self, request: ChatRequest, answer: Answer) -> None:
        content = request_body(request, self.server.served_model)
        async with self._http.stream("POST", PATHS["chat"], content=content) as response:
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
    try:
        async with _async_client(server.base_url, server.api_key, allowed_s) as http:
            yield OpenAIClient(server=server, timeout_s=allowed_s, _http=http)
    finally:
        # A transport is closed a turn of the loop after it was told to.
        await asyncio.sleep(0)


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


def is_there(base_url: str, *, timeout_s: float = _CONTROL_TIMEOUT_S) -> bool:
    """Tell whether anything at all listens there, whatever it says."""
    try:
        with _client(base_url, None, timeout_s) as http:
            http.get("/health")
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL, UnicodeError):
        return False
    except httpx.HTTPError:
        return True
    return True


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
    content = request_body(ChatRequest(messages=(message,), max_tokens=1), model)
    answer = Answer()
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
        verify=_trust(base_url),
    )


def _async_client(base_url: str, api_key: str | None, timeout_s: float) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=base_url,
        headers=_headers(api_key),
        timeout=timeout_s,
        limits=httpx.Limits(max_connections=None),
        trust_env=False,
        verify=_trust(base_url),
    )


def _trust(base_url: str) -> ssl.SSLContext | bool:
    return True if base_url.startswith("https:") else _NO_TLS


def _headers(api_key: str | None) -> dict[bytes, bytes]:
    headers = {b"Content-Type": b"application/json"}
    if api_key is not None:
        # As bytes: httpx would raise for a key that is not ASCII before anything was sent.
        headers[b"Authorization"] = b"Bearer " + api_key.encode()
    return headers


def _get_now(url: str, api_key: str | None, timeout_s: float) -> httpx.Response | None:
    try:
        parts = httpx.URL(url)
        with _client(url[: -len(parts.raw_path)], api_key, timeout_s) as http:
            return http.get(parts.raw_path.decode())
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
    return parse_json(response.content)


def _model_entries(response: httpx.Response | None) -> tuple[dict[str, Any], ...] | None:
    told = _json_of(response)
    data = told.get("data") if isinstance(told, dict) else None
    if not isinstance(data, list):
        return None
    return tuple(entry for entry in data if isinstance(entry, dict))


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
