"""A server of known timing, as a process of its own: `python -m tests.fakes.timed_server`.

It speaks vLLM's streaming format. How it behaves is asked for by the name of the model, so that
one process serves many tests: `timed,ttft_ms=20,cadence_ms=2,per_chunk=3,slots=4,fault=hang`.
Chunks are sent on an absolute schedule, each with the `time.monotonic()` at which it was written.
`/truth` tells what really happened to each request and forgets it. A bare protocol instead of a
web framework, since a server that takes 64 requests in 10 ms has no known timing at 64 streams.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

MODEL = "timed"


@dataclass(frozen=True, kw_only=True)
class Behavior:
    """Times in ms from when a request has its slot.

    slots: requests served at a time, the others queue; per_chunk: tokens in a chunk
    ids, usage: whether token ids and usage are sent; timing: queue and TTFT in the usage chunk
    fault: error_event, no_usage, hang, truncate, short, http_500, http_400, reset
    after: requests that are answered properly before the fault sets in
    """

    ttft_ms: float = 5.0
    cadence_ms: float = 1.0
    per_chunk: int = 1
    slots: int = 1000
    ids: int = 1
    usage: int = 1
    timing: int = 0
    tokenize: int = 1
    bos: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    kv_usage: float = 0.25
    preempt: int = 0
    fault: str = ""
    after: int = 0

    @classmethod
    def asked_for_by(cls, model: str) -> "Behavior":
        options = dict(item.split("=", 1) for item in model.split(",")[1:])
        plain = cls()
        values: dict[str, Any] = {
            name: type(getattr(plain, name))(text) for name, text in options.items()
        }
        return cls(**values)


@dataclass
class State:
    slots: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    counts: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    truth: list[dict[str, float]] = field(default_factory=list)
    prompts: list[dict[str, object]] = field(default_factory=list)
    kv_usage: float = 0.0
    tokenized: int = 0


@dataclass
class Timing:
    """One request on its way: what happened when, in `time.monotonic()`."""

    arrived: float
    admitted: float = 0.0
    written: list[float] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """One client: reads requests, one at a time, and answers them in chunked encoding."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.pending = b""
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport) -> None:
        self.transport = transport

    def connection_lost(self, error) -> None:
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        self.pending += data
        head, found, rest = self.pending.partition(b"\r\n\r\n")
        length = next(
            (
                int(line.partition(b":")[2])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ),
            0,
        )
        if not found or len(rest) < length:
            return
        self.pending = rest[length:]
        arrived = time.monotonic()
        path = head.split(b" ", 2)[1].decode()
        body = json.loads(rest[:length]) if length else {}
        self.task = asyncio.create_task(self.answer(path, body, arrived))

    async def answer(self, path: str, body: dict[str, Any], arrived: float) -> None:
        if path == "/v1/completions":
            await complete(self, body, Timing(arrived))
        elif path == "/tokenize":
            self.whole(*tokenize(self.state, body))
        elif path == "/metrics":
            self.whole(200, metrics(self.state))
        elif path == "/truth":
            self.whole(200, truth(self.state))
        else:
            self.whole(200 if path == "/health" else 404, "")

    def whole(self, status: int, text: str) -> None:
        payload = text.encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(payload)}\r\n\r\n"
        self.transport.write(head.encode() + payload)

    def begin(self) -> None:
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )

    def write(self, data: bytes) -> None:
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.transport.write(b"0\r\n\r\n")


async def until(due: float) -> None:
    # uvloop rounds timers to whole milliseconds.
    await asyncio.sleep(max(0.0, due - time.monotonic()))


def event(payload: object) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


async def complete(client: Connection, body: dict[str, Any], timing: Timing) -> None:
    state = client.state
    behavior = Behavior.asked_for_by(body["model"])
    state.seen[body["model"]] += 1
    state.prompts.append({"prompt": body["prompt"], "cache_salt": body.get("cache_salt")})
    fault = behavior.fault if state.seen[body["model"]] > behavior.after else ""
    if fault.startswith("http_"):
        error = {"message": "this request was refused", "code": int(fault[5:])}
        client.whole(int(fault[5:]), json.dumps({"error": error}))
        return
    if fault == "reset":
        client.transport.abort()
        return
    slot = state.slots.setdefault(body["model"], asyncio.Semaphore(behavior.slots))
    async with slot:
        timing.admitted = time.monotonic()
        state.kv_usage = max(state.kv_usage, behavior.kv_usage)
        await stream(client, body, behavior, fault, timing)


async def stream(client, body, behavior, fault, timing) -> None:
    client.begin()
    # A chunk without a token comes first, as the role chunk of a chat does.
    client.write(event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]}))
    if fault == "hang":
        await asyncio.sleep(3600)
    total = body["max_tokens"] - (1 if fault == "short" else 0)
    counts = [min(behavior.per_chunk, total - n) for n in range(0, total, behavior.per_chunk)]
    for number, count in enumerate(counts):
        await until(timing.admitted + (behavior.ttft_ms + number * behavior.cadence_ms) / 1e3)
        if number == len(counts) // 2 and fault == "error_event":
            client.write(event({"error": {"message": "the engine died", "code": 500}}))
            break
        if number == len(counts) // 2 and fault == "truncate":
            client.end()
            return
        choice = {"index": 0, "text": " word" * count, "finish_reason": None}
        if number == len(counts) - 1:
            choice["finish_reason"] = "length"
        if behavior.ids:
            choice["token_ids"] = [7] * count
        timing.written.append(time.monotonic())
        client.write(event({"choices": [choice], "at": timing.written[-1]}))
    else:
        if behavior.usage and fault != "no_usage":
            client.write(usage_event(behavior, body["prompt"], total, timing))
        account(client.state, behavior, counts, timing)
    client.write(b"data: [DONE]\n\n")
    client.end()


def usage_event(behavior, prompt, total, timing) -> bytes:
    size = len(prompt) if isinstance(prompt, list) else len(prompt.split())
    usage = {"prompt_tokens": size, "completion_tokens": total, "total_tokens": size + total}
    payload = {"choices": [], "usage": usage}
    if behavior.timing:
        payload["metrics"] = {
            "queue_time_ms": (timing.admitted - timing.arrived) * 1e3,
            "time_to_first_token_ms": (timing.written[0] - timing.admitted) * 1e3,
        }
    return event(payload)


def account(state, behavior, counts, timing) -> None:
    """Keep the books: those that an engine shows, and the truth."""
    state.counts["vllm:request_success_total"] += 1
    state.counts["vllm:request_queue_time_seconds_sum"] += timing.admitted - timing.arrived
    state.counts["vllm:request_queue_time_seconds_count"] += 1
    state.counts["vllm:request_prefill_time_seconds_sum"] += timing.written[0] - timing.admitted
    state.counts["vllm:request_prefill_time_seconds_count"] += 1
    state.counts["vllm:num_preemptions_total"] += behavior.preempt
    if behavior.draft_tokens:
        drafts = len(counts)
        state.counts["vllm:spec_decode_num_drafts_total"] += drafts
        state.counts["vllm:spec_decode_num_draft_tokens_total"] += drafts * behavior.draft_tokens
        state.counts["vllm:spec_decode_num_accepted_tokens_total"] += drafts * behavior.accepted
    state.truth.append(
        {
            "arrived": timing.arrived,
            "admitted": timing.admitted,
            "first": timing.written[0],
            "last": timing.written[-1],
            "tokens": sum(counts),
            "first_tokens": counts[0],
        }
    )


def tokenize(state: State, body: dict[str, Any]) -> tuple[int, str]:
    """Give every word a number of its own, and a 1 in front where a BOS token is asked for."""
    behavior = Behavior.asked_for_by(body["model"])
    if not behavior.tokenize:
        return 404, json.dumps({"detail": "Not Found"})
    state.tokenized += 1
    start = [1] if behavior.bos and body.get("add_special_tokens", True) else []
    words = body["prompt"].split()
    tokens = start + [int(hashlib.sha256(w.encode()).hexdigest()[:7], 16) % 50_000 for w in words]
    return 200, json.dumps({"tokens": tokens, "count": len(tokens)})


def metrics(state: State) -> str:
    values = {**state.counts, "vllm:kv_cache_usage_perc": state.kv_usage}
    lines = [f'{name}{{engine="0",model_name="timed"}} {values[name]}' for name in sorted(values)]
    return "\n".join(lines) + "\n"


def truth(state: State) -> str:
    """Hand over what happened since the last call."""
    told = {"requests": state.truth, "prompts": state.prompts, "tokenized": state.tokenized}
    state.truth, state.prompts, state.kv_usage, state.tokenized = [], [], 0.0, 0
    return json.dumps(told)


async def serve(port: int) -> None:
    state = State()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(state), "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - our parent reads the port
    # Our parent holds the other end: when it is gone, so are we.
    await asyncio.to_thread(sys.stdin.buffer.read)
    os._exit(0)


@contextlib.contextmanager
def timed_server() -> Iterator[str]:
    """Start the server as a process and give its address."""
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.timed_server"],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A streaming server of known timing.")
    parser.add_argument("--port", type=int, default=0)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(parser.parse_args().port))
