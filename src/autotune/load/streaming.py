"""Sends one streaming completion and notes when each piece of the answer arrived.

While a load runs nothing here looks into what came: a read is kept as it is with its time, and
parsed when the load is over (`autotune.load.sse`). At 64 streams of 50 chunks/s that halves the
client's CPU and its stamp error. Times are `time.monotonic()`.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from autotune.load.sse import error_text
from autotune.model.host import RunningServer

COMPLETIONS = "/v1/completions"
STOPPED = "stopped, since the pass had failed"
HTTP_OK = 200

_READ_BUFFER = 8 * 2**20
"""Bytes. aiohttp pauses a connection at twice its buffer; at the default of 64 KiB a client
reported 44 tok/s for a server that gave 486 at a context of 50,000 tokens."""

_CONNECT_TIMEOUT_S = 10.0


class ServerGoneError(Exception):
    """The server does not take the request, or not any more."""


class StampedBody(aiohttp.payload.Payload):
    """A request's bytes that know when they were handed to the socket.

    The stamp comes after the write: in a burst of 64 the last request leaves milliseconds after
    the call that wanted it sent.
    """

    def __init__(self, value: bytes) -> None:
        super().__init__(value, content_type="application/json")
        self._size = len(value)
        self.sent_s: float | None = None

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        await writer.write(self._value)
        self.sent_s = time.monotonic()

    async def write_with_length(
        self,
        writer: AbstractStreamWriter,
        content_length: int | None,  # noqa: ARG002 - aiohttp's signature; bodies are sent whole
    ) -> None:
        await self.write(writer)


@dataclass(slots=True)
class Recording:
    """One request while it runs: raw reads and their stamps, in two lists of plain values.

    Neither list holds containers, so the garbage collector never has to walk what was recorded.
    """

    body: bytes = field(repr=False)
    scheduled_s: float | None = None
    sent_s: float | None = None
    ended_s: float | None = None
    stamps: list[float] = field(default_factory=list, repr=False)
    reads: list[bytes] = field(default_factory=list, repr=False)
    error: str | None = None


@contextlib.asynccontextmanager
async def open_session(server: RunningServer) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a connection pool without limits, proxies, cookies or total timeouts."""
    headers = {"Accept-Encoding": "identity"}
    if server.api_key is not None:
        headers["Authorization"] = f"Bearer {server.api_key}"
    async with aiohttp.ClientSession(
        base_url=server.base_url,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
        read_bufsize=_READ_BUFFER,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        headers=headers,
    ) as session:
        yield session


async def open_connections(session: aiohttp.ClientSession, count: int) -> None:
    """Connect before the load starts, so that no request pays for it.

    Raises:
        ServerGoneError: Nobody answers.
    """

    async def connect() -> None:
        async with session.get("/health") as response:
            await response.read()

    try:
        await asyncio.gather(*(connect() for _ in range(count)))
    except (aiohttp.ClientError, OSError) as error:
        raise ServerGoneError(describe(error)) from error


async def stream_completion(session: aiohttp.ClientSession, recording: Recording) -> None:
    """Send the request and record its answer until the end of the stream.

    Raises:
        ServerGoneError: The connection broke or the request was refused; the recording says why.
    """
    body = StampedBody(recording.body)
    recording.scheduled_s = time.monotonic()
    try:
        async with session.post(COMPLETIONS, data=body) as response:
            await _expect_ok(response)
            await _record(response.content, recording)
    except (aiohttp.ClientError, OSError) as error:
        recording.error = describe(error)
        raise ServerGoneError(recording.error) from error
    except ServerGoneError as error:
        recording.error = str(error)
        raise
    except asyncio.CancelledError:
        recording.error = STOPPED
        raise
    finally:
        recording.sent_s = body.sent_s
        recording.ended_s = time.monotonic()


async def _expect_ok(response: aiohttp.ClientResponse) -> None:
    if response.status != HTTP_OK:
        reason = error_text(await response.read())
        raise ServerGoneError(f"HTTP {response.status}: {reason}")


async def _record(content: aiohttp.StreamReader, recording: Recording) -> None:
    # Bound methods: this loop runs once for every chunk of every stream.
    now, read = time.monotonic, content.readany
    stamp, keep = recording.stamps.append, recording.reads.append
    while data := await read():
        stamp(now())
        keep(data)


def describe(error: Exception) -> str:
    """Name an error of a connection, in words where it has some."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
