"""One generation request: from engine steps to a JSON answer or a stream of SSE chunks.

Streaming builds its chunks as text, because json.dumps of whole objects would be the bottleneck of
a fast server. A chunk holds what one engine step produced.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from autotune.simulator.answers import Answer, Segment
from autotune.simulator.http_requests import Prompt
from autotune.simulator.metrics import Metrics
from autotune.simulator.scheduler import Work
from autotune.simulator.tokenizer import Tokenizer

ENGINE_DEAD_EVENT = (
    'data: {"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root '
    'cause.","type":"InternalServerError","param":null,"code":500}}\n\ndata: [DONE]\n\n'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyOptions:
    """What the client wants to see beside the text."""

    kind: Literal["chat", "completion"]
    model: str
    stream: bool
    usage: bool
    continuous_usage: bool
    token_ids: bool
    per_request_metrics: bool
    cached_tokens: bool
    interval: int


@dataclass(slots=True, kw_only=True, eq=False)
class Choice:
    """One answer of a request, and how far it has been sent."""

    index: int
    prompt: Prompt
    answer: Answer
    work: Work | None = None
    sent: int = 0
    done: bool = False
    call_ids: dict[int, str] = field(default_factory=dict)


class Generation:
    """Collects the tokens of all choices of one request."""

    def __init__(
        self,
        *,
        options: ReplyOptions,
        choices: Sequence[Choice],
        tokenizer: Tokenizer,
        metrics: Metrics,
        on_output: Callable[["Generation"], None],
    ) -> None:
        prefix = "chatcmpl" if options.kind == "chat" else "cmpl"
        self.id = f"{prefix}-{uuid.uuid4().hex}"
        self.options = options
        self.choices = choices
        self.failed = False
        self.ended = asyncio.Event()
        self.has_output = asyncio.Event()
        self.pending: list[str] = []
        self.writer: Callable[[bytes], None] | None = None
        self._created = int(time.time())
        self._tokenizer = tokenizer
        self._metrics = metrics
        self._on_output = on_output
        self._by_work: dict[int, Choice] = {}
        name = "chat.completion.chunk" if options.kind == "chat" else "text_completion"
        self._head = (
            f'data: {{"id":"{self.id}","object":"{name}","created":{self._created},'
            f'"model":{json.dumps(options.model)},"choices":['
        )

    def attach(self, choice: Choice, work: Work) -> None:
        choice.work = work
        self._by_work[id(work)] = choice

    # What the engine reports

    def tokens(self, work: Work, clock_s: float) -> None:
        if work.last_token_s:
            self._metrics.inter_token.observe(clock_s - work.last_token_s)
        else:
            self._metrics.first_token(work)
        if not self.options.stream:
            return
        choice = self._by_work[id(work)]
        last = work.produced >= work.output_tokens
        held = work.produced - choice.sent
        if held >= self.options.interval or last or not choice.sent:
            self._stream(choice, work.produced, last=last)
            self._on_output(self)

    def finished(self, work: Work, clock_s: float) -> None:
        choice = self._by_work[id(work)]
        choice.done = True
        reason = choice.answer.finish_reason
        self._metrics.finished(work, "stop" if reason == "tool_calls" else reason, clock_s)
        if all(other.done for other in self.choices):
            if self.options.stream:
                self._end_stream()
            self.ended.set()
            self._on_output(self)

    def fail(self) -> None:
        """End because the engine is gone; a stream ends with an error event and still says [DONE]."""
        self.failed = True
        if self.options.stream:
            self.pending.append(ENGINE_DEAD_EVENT)
        self.ended.set()
        self._on_output(self)

    # Streaming

    def take(self) -> bytes:
        """Hand over what is waiting to be written."""
        data = "".join(self.pending).encode()
        self.pending.clear()
        return data

    def flush(self) -> None:
        """Write to the socket if it is open; else wake the handler, which opens it."""
        if self.writer is None or self.ended.is_set():
            self.has_output.set()
        elif self.pending:
            self.writer(self.take())

    def _stream(self, choice: Choice, upto: int, *, last: bool) -> None:
        start, choice.sent = choice.sent, upto
        if self.options.kind == "completion":
            text = _text_between(choice.answer.segments, start, upto)
            body = f'"text":{json.dumps(text)}'
        else:
            if not start:
                self._chunk(choice, '"delta":{"role":"assistant","content":""}', start, start)
            delta = self._delta(choice, start, upto)
            if delta == "{}" and not last and not self.options.token_ids:
                return  # only tokens that the parser swallowed: vLLM sends nothing
            body = f'"delta":{delta}'
        reason = f'"{choice.answer.finish_reason}"' if last else "null"
        self._chunk(choice, body, start, upto, reason)

    def _chunk(
        self, choice: Choice, body: str, start: int, upto: int, reason: str = "null"
    ) -> None:
        options = self.options
        extra = ""
        if options.token_ids:
            ids = _ids_between(self._tokenizer, choice.answer.segments, start, upto)
            extra = f',"token_ids":{ids}'
            if not start and options.kind == "completion":
                extra += f',"prompt_token_ids":{choice.prompt.token_ids(self._tokenizer)}'
        tail = "]"
        if options.token_ids and options.kind == "chat" and upto == 0:
            tail += f',"prompt_token_ids":{choice.prompt.token_ids(self._tokenizer)}'
        if options.continuous_usage:
            tail += f',"usage":{json.dumps(self._usage())}'
        self.pending.append(
            f'{self._head}{{"index":{choice.index},{body},"logprobs":null,"finish_reason":{reason}'
            f"{extra}}}{tail}}}\n\n"
        )

    def _delta(self, choice: Choice, start: int, upto: int) -> str:
        """Merge the tokens of a step into one delta object."""
        segments = choice.answer.segments
        if len(segments) == 1 and segments[0].kind == "content":
            return f'{{"content":{json.dumps("".join(segments[0].pieces[start:upto]))}}}'
        delta: dict[str, Any] = {}
        for segment, first, last in _overlaps(segments, start, upto):
            text = "".join(segment.pieces[first:last])
            if segment.kind == "call":
                entry = self._call_entry(choice, segment, text, opens=first == 0)
                if entry:
                    delta.setdefault("tool_calls", []).append(entry)
            elif text:
                delta[segment.kind] = delta.get(segment.kind, "") + text
        return json.dumps(delta)

    @staticmethod
    def _call_entry(
        choice: Choice, segment: Segment, text: str, *, opens: bool
    ) -> dict[str, Any] | None:
        if opens:
            identifier = choice.call_ids.setdefault(segment.call, _call_id())
            function = {"name": segment.name, "arguments": text}
            return {
                "index": segment.call,
                "id": identifier,
                "type": "function",
                "function": function,
            }
        return {"index": segment.call, "function": {"arguments": text}} if text else None

    def _end_stream(self) -> None:
        if self.options.usage:
            extra = ""
            if self.options.per_request_metrics:
                extra = f',"metrics":{json.dumps(self.timings())}'
            self.pending.append(
                f'{self._head}],"usage":{json.dumps(self._usage(final=True))}{extra}}}\n\n'
            )
        self.pending.append("data: [DONE]\n\n")

    # The whole answer

    def reply(self) -> dict[str, Any]:
        """Build the answer to a request that does not stream."""
        chat = self.options.kind == "chat"
        build = self._chat_choice if chat else self._completion_choice
        reply: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion" if chat else "text_completion",
            "created": self._created,
            "model": self.options.model,
            "choices": [build(choice) for choice in self.choices],
            "usage": self._usage(final=True),
        }
        if self.options.token_ids and chat:
            reply["prompt_token_ids"] = self.choices[0].prompt.token_ids(self._tokenizer)
        if self.options.per_request_metrics:
            reply["metrics"] = self.timings()
        return reply

    def _completion_choice(self, choice: Choice) -> dict[str, Any]:
        shown = {
            "index": choice.index,
            "text": _text_between(choice.answer.segments, 0, choice.answer.tokens),
            "logprobs": None,
            "finish_reason": choice.answer.finish_reason,
            "stop_reason": None,
        }
        if self.options.token_ids:
            shown["prompt_token_ids"] = choice.prompt.token_ids(self._tokenizer)
        return shown | self._shown_ids(choice)

    def _chat_choice(self, choice: Choice) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        calls = []
        for segment, first, last in _overlaps(choice.answer.segments, 0, choice.answer.tokens):
            text = "".join(segment.pieces[first:last])
            if segment.kind == "call":
                function = {"name": segment.name, "arguments": text}
                calls.append({"id": _call_id(), "type": "function", "function": function})
            else:
                message[segment.kind] = text
        if calls:
            message["tool_calls"] = calls
        return {
            "index": choice.index,
            "message": message,
            "logprobs": None,
            "finish_reason": choice.answer.finish_reason,
            "stop_reason": None,
        } | self._shown_ids(choice)

    def _shown_ids(self, choice: Choice) -> dict[str, Any]:
        if not self.options.token_ids:
            return {}
        answer = choice.answer
        return {"token_ids": _ids_between(self._tokenizer, answer.segments, 0, answer.tokens)}

    def _usage(self, *, final: bool = False) -> dict[str, Any]:
        prompt = sum(choice.prompt.tokens for choice in _first_of_prompts(self.choices))
        sent = sum(choice.answer.tokens if final else choice.sent for choice in self.choices)
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + sent,
            "completion_tokens": sent,
        }
        if final and self.options.cached_tokens:
            cached = sum(choice.work.cached_tokens for choice in self.choices if choice.work)
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return usage

    def timings(self) -> dict[str, Any]:
        """Tell vLLM's per-request metrics of the first choice, in virtual milliseconds."""
        work = self.choices[0].work
        if work is None:
            return {}
        generation_s = work.last_token_s - work.first_token_s
        inference_s = work.last_token_s - work.scheduled_s
        return {
            "time_to_first_token_ms": (work.first_token_s - work.scheduled_s) * 1000,
            "generation_time_ms": generation_s * 1000,
            "queue_time_ms": (work.scheduled_s - work.arrived_s) * 1000,
            "mean_itl_ms": generation_s / (work.produced - 1) * 1000 if work.produced > 1 else None,
            "tokens_per_second": work.produced / inference_s if inference_s > 0 else None,
        }


def _call_id() -> str:
    return f"chatcmpl-tool-{uuid.uuid4().hex[:16]}"


def _first_of_prompts(choices: Sequence[Choice]) -> list[Choice]:
    """Keep one choice a prompt: n answers to one prompt count it once."""
    seen: dict[int, Choice] = {}
    for choice in choices:
        seen.setdefault(id(choice.prompt), choice)
    return list(seen.values())


def _overlaps(segments: Sequence[Segment], start: int, upto: int) -> list[tuple[Segment, int, int]]:
    """Find the segments that the tokens from `start` to `upto` belong to."""
    found = []
    offset = 0
    for segment in segments:
        size = len(segment.pieces)
        first, last = max(0, start - offset), min(size, upto - offset)
        if first < last:
            found.append((segment, first, last))
        offset += size
    return found


def _text_between(segments: Sequence[Segment], start: int, upto: int) -> str:
    if len(segments) == 1:
        return "".join(segments[0].pieces[start:upto])
    return "".join(
        "".join(segment.pieces[first:last])
        for segment, first, last in _overlaps(segments, start, upto)
    )


def _ids_between(
    tokenizer: Tokenizer, segments: Sequence[Segment], start: int, upto: int
) -> list[int]:
    return [
        tokenizer.id_of(piece)
        for segment, first, last in _overlaps(segments, start, upto)
        for piece in segment.pieces[first:last]
    ]
