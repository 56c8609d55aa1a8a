"""A real HTTP server on loopback that answers what a test recorded, well formed or not."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from autotune.model.host import RunningServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """An answer. `cut` promises more bytes than it sends, `hang` sends none, `raw` is no HTTP."""

    body: bytes = b""
    status: int = 200
    kind: str = "application/json"
    cut: bool = False
    hang: bool = False
    raw: bytes | None = None

    def wire(self) -> bytes:
        if self.raw is not None:
            return self.raw
        length = len(self.body) + (100 if self.cut else 0)
        head = (
            f"HTTP/1.1 {self.status} Recorded\r\ncontent-type: {self.kind}\r\n"
            f"content-length: {length}\r\nconnection: close\r\n\r\n"
        )
        return head.encode() + self.body


TURNS_TO_SERVE = 20


class ReplayServer:
    """Serves for the length of a block. `answer` may be exchanged between requests."""

    def __init__(self, answer: Callable[[Asked], Recorded] | Recorded) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self.base_url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._server: asyncio.Server | None = None
        self._in_flight = 0
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        )
        self._server = started.result()
        port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def running(self, **changes: Any) -> RunningServer:
        facts: dict[str, Any] = {"served_model": "m", "log": "", "startup_s": 1.0}
        return RunningServer(base_url=self.base_url, **{**facts, **changes})

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self._over.set()
        # A connection that was accepted takes a few turns of the loop until it is served.
        for _ in range(TURNS_TO_SERVE):
            await asyncio.sleep(0)
            while self._tasks:
                await asyncio.gather(*self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._in_flight += 1
        try:
            recorded = self._find_answer(await self._read(reader))
            if recorded.hang:
                await self._over.wait()
                return
            writer.write(recorded.wire())
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client went away, or the test is over
        finally:
            self._in_flight -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._tasks.discard(task)

    def _find_answer(self, asked: Asked) -> Recorded:
        self.asked.append(asked)
        return self.answer if isinstance(self.answer, Recorded) else self.answer(asked)

    async def _read(self, reader: asyncio.StreamReader) -> Asked:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        # One turn of the loop, so that requests sent together are seen together.
        await asyncio.sleep(0.005)
        return Asked(
            method=method,
            path=path,
            headers=headers,
            body=json.loads(content) if content else {},
            in_flight=self._in_flight,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a model says, before it is put on the wire whole or in pieces."""

    content: str | None = None
    reasoning: str | None = None
    calls: Sequence[tuple[str, str]] = ()
    finish_reason: str = "stop"
    completion_tokens: int = 9
    more: dict[str, Any] = field(default_factory=dict)

    def recorded(self, *, stream: bool) -> Recorded:
        return self.streamed() if stream else self.whole()

    def whole(self) -> Recorded:
        calls = [
            {
                "id": f"call_{place}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for place, (name, arguments) in enumerate(self.calls)
        ]
        message = {
            "role": "assistant",
            "content": self.content,
            "reasoning": self.reasoning,
            "tool_calls": calls,
            **self.more,
        }
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        return Recorded(body=json.dumps({"choices": [choice], "usage": self._usage()}).encode())

    def streamed(self) -> Recorded:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning": piece} for piece in pieces(self.reasoning or "")]
        deltas += [{"content": piece} for piece in pieces(self.content or "")]
        for place, (name, arguments) in enumerate(self.calls):
            head = {"index": place, "id": f"call_{place}", "function": {"name": name}}
            deltas.append({"tool_calls": [head]})
            deltas += [
                {"tool_calls": [{"index": place, "function": {"arguments": piece}}]}
                for piece in pieces(arguments)
            ]
        return events(
            *(chunk(delta) for delta in deltas),
            chunk({}, finish_reason=self.finish_reason),
            {"choices": [], "usage": self._usage()},
        )

    def _usage(self) -> dict[str, int]:
        return {"prompt_tokens": 20, "completion_tokens": self.completion_tokens}


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def chunk(delta: dict[str, Any], *, finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def events(*messages: dict[str, Any], done: bool = True) -> Recorded:
    lines = [f"data: {json.dumps(message)}\n\n" for message in messages]
    body = "".join([*lines, "data: [DONE]\n\n"] if done else lines)
    return Recorded(body=body.encode(), kind="text/event-stream; charset=utf-8")


def error(status: int, message: str) -> Recorded:
    body = {"error": {"message": message, "type": "BadRequestError", "code": status}}
    return Recorded(body=json.dumps(body).encode(), status=status)
