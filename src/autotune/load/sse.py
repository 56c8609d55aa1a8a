"""Reads a recorded event stream: which tokens came when, and whether the answer counts.

Runs after the load, never during it. Tokens come from `token_ids`, else from running usage, else
from the final usage; chunks are never counted as tokens, since speculation puts several into one
and a reasoning parser may hold many back.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Literal, TypeAlias

TokenSource: TypeAlias = Literal["token_ids", "continuous_usage", "usage"]

DONE = "[DONE]"
LONGEST_ERROR = 500
"""Characters of a server's error that are kept: some answer with a whole traceback."""

_TEXT_FIELDS = ("text", "content", "reasoning", "reasoning_content")
"""Where a token's text may stand. `reasoning_content` was renamed `reasoning` in vLLM 0.16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one request got.

    stamps, tokens: of the token-bearing chunks, when each was complete and how much was in it
    source: where the tokens of a chunk are known from; `usage` spreads the total evenly
    queue_ms, prefill_ms: from the engine, where it reports them
    error: why the request does not count, else None
    """

    stamps: tuple[float, ...] = ()
    tokens: tuple[int, ...] = ()
    prompt_tokens: int | None = None
    source: TokenSource | None = None
    queue_ms: float | None = None
    prefill_ms: float | None = None
    error: str | None = None

    @property
    def output_tokens(self) -> int:
        return sum(self.tokens)


def parse_reply(stamps: Sequence[float], reads: Sequence[bytes]) -> Reply:
    """Read a stream from the pieces in which it arrived, each with the time of its arrival.

    An event carries the stamp of the read that completed its line.
    """
    story = _Story()
    try:
        for at, payload in events(stamps, reads):
            story.add(at, payload)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        return Reply(error=f"the stream is not what an OpenAI server sends: {error}")
    return story.reply()


def events(stamps: Sequence[float], reads: Sequence[bytes]) -> Iterator[tuple[float, str]]:
    """Yield the data of each server-sent event with its stamp; comments and ids are dropped."""
    ends = list(accumulate(map(len, reads)))
    data: list[str] = []
    at = 0.0
    position = read = 0
    # A last event without its blank line still counts: some servers close right behind it.
    for line in (*b"".join(reads).split(b"\n"), b""):
        position += len(line) + 1
        if line.startswith(b"data:"):
            while read < len(ends) - 1 and ends[read] < position:
                read += 1
            at = stamps[read]
            data.append(line[5:].strip().decode(errors="replace"))
        elif data and line in (b"", b"\r"):
            yield at, "\n".join(data)
            data.clear()


def error_text(body: bytes) -> str:
    """Find the message in the body of a failed answer."""
    text = body.decode(errors="replace").strip()
    try:
        return _message(json.loads(text))
    except ValueError:
        return text[:LONGEST_ERROR] or "no reason given"


@dataclass(slots=True)
class _Story:
    """What the events said so far."""

    at: list[float] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    running: list[int | None] = field(default_factory=list)
    bears_text: list[bool] = field(default_factory=list)
    knows_ids: bool = False
    usage: Mapping[str, Any] | None = None
    timing: Mapping[str, Any] | None = None
    finished: bool = False
    error: str | None = None

    def add(self, at: float, payload: str) -> None:
        if payload == DONE:
            self.finished = True
            return
        event = json.loads(payload)
        if event.get("error") is not None or event.get("object") == "error":
            self.error = self.error or f"error event: {_message(event)}"
            return
        usage = event.get("usage")
        self.usage = usage or self.usage
        self.timing = event.get("metrics") or self.timing
        for choice in event.get("choices") or ():
            self._add_choice(at, choice, usage)

    def _add_choice(
        self, at: float, choice: Mapping[str, Any], usage: Mapping[str, Any] | None
    ) -> None:
        ids = choice.get("token_ids")
        self.knows_ids = self.knows_ids or ids is not None
        self.at.append(at)
        self.ids.append(len(ids or ()))
        self.running.append(None if usage is None else int(usage["completion_tokens"]))
        # Ids decide alone where there are any, so the text need not be looked at.
        self.bears_text.append(bool(ids) or _bears_text(choice))
        self.finished = self.finished or choice.get("finish_reason") is not None

    def reply(self) -> Reply:
        total = None if self.usage is None else int(self.usage["completion_tokens"])
        source, stamps, tokens = self._account(total)
        return Reply(
            stamps=stamps,
            tokens=tokens,
            prompt_tokens=None if self.usage is None else int(self.usage["prompt_tokens"]),
            source=source,
            queue_ms=_number(self.timing, "queue_time_ms"),
            # vLLM counts this one from when the request was scheduled, so the queue is not in it.
            prefill_ms=_number(self.timing, "time_to_first_token_ms"),
            error=self.error or self._defect(source, tokens),
        )

    def _account(self, total: int | None) -> "_Account":
        """Choose the best account of the tokens; one that contradicts the usage is not the best."""
        if self.knows_ids and total in (None, sum(self.ids)):
            return "token_ids", *_nonempty(self.at, self.ids)
        if total is None:
            return None, (), ()
        steps = _steps(self.running)
        if steps is not None and sum(steps) == total:
            return "continuous_usage", *_nonempty(self.at, steps)
        stamps = [at for at, bears in zip(self.at, self.bears_text, strict=True) if bears]
        return "usage", *_nonempty(stamps, _shares(total, len(stamps)))

    def _defect(self, source: TokenSource | None, tokens: Sequence[int]) -> str | None:
        if not self.finished:
            return "the stream ended in the middle: neither finish_reason nor [DONE] came"
        if source is None:
            return "neither token ids nor usage came, so the tokens cannot be counted"
        if not tokens:
            return "no token came"
        return None


_Account: TypeAlias = tuple[TokenSource | None, tuple[float, ...], tuple[int, ...]]


def _bears_text(choice: Mapping[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    if any(choice.get(name) or delta.get(name) for name in _TEXT_FIELDS):
        return True
    return bool(delta.get("tool_calls"))


def _nonempty(
    stamps: Sequence[float], counts: Sequence[int]
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    kept = [(at, count) for at, count in zip(stamps, counts, strict=True) if count]
    return tuple(at for at, _ in kept), tuple(count for _, count in kept)


def _steps(running: Sequence[int | None]) -> list[int] | None:
    """Turn running totals into tokens per chunk; None where they are no running totals."""
    counts = [count for count in running if count is not None]
    steps = [new - old for old, new in pairwise((0, *counts))]
    complete = bool(counts) and len(counts) == len(running)
    return steps if complete and min(steps) >= 0 else None


def _shares(total: int, parts: int) -> list[int]:
    """Split the total evenly into whole numbers."""
    edges = [total * number // parts for number in range(parts + 1)] if parts else []
    return [end - start for start, end in pairwise(edges)]


def _message(event: Any) -> str:
    """Dig out the text of an error, wherever a server puts it."""
    found = event
    for key in ("error", "message", "detail"):
        if isinstance(found, Mapping) and key in found:
            found = found[key]
    return (found if isinstance(found, str) else json.dumps(found))[:LONGEST_ERROR]


def _number(source: Mapping[str, Any] | None, name: str) -> float | None:
    value = None if source is None else source.get(name)
    return float(value) if isinstance(value, int | float) else None
