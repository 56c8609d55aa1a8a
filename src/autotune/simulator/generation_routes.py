"""/v1/completions and /v1/chat/completions: from a request's body to the engine and back."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from autotune.simulator.answers import (
    Answer,
    Breakage,
    answer_chat,
    answer_completion,
    content_key,
)
from autotune.simulator.engine import Engine, EngineDeadError
from autotune.simulator.generation import Choice, Generation, ReplyOptions
from autotune.simulator.http_requests import (
    Prompt,
    chat_prompt,
    check_chat,
    check_model,
    check_stream_options,
    completion_prompts,
    read_body,
    read_lengths,
)
from autotune.simulator.metrics import Metrics
from autotune.simulator.scheduler import Work
from autotune.simulator.settings import ServeSettings
from autotune.simulator.switches import Condition, Switches
from autotune.simulator.tokenizer import Tokenizer

_SSE_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8"}
_DEFAULT_COMPLETION_TOKENS = 16


class GenerationRoutes:
    """The generating handlers, and the requests that are open."""

    def __init__(
        self,
        *,
        settings: ServeSettings,
        max_model_len: int,
        engine: Engine,
        metrics: Metrics,
        tokenizer: Tokenizer,
        switches: Switches,
        effective: Mapping[str, Any],
    ) -> None:
        self._settings = settings
        self._max_model_len = max_model_len
        self._engine = engine
        self._metrics = metrics
        self._tokenizer = tokenizer
        self._dirty: set[Generation] = set()
        self._open: set[Generation] = set()
        self._breaks = {
            "tools": _if_matching(switches.breaks_tools, effective),
            "structured": _if_matching(switches.breaks_json, effective),
            "text": _if_matching(switches.breaks_text, effective),
        }

    @property
    def open_requests(self) -> int:
        return len(self._open)

    def flush(self) -> None:
        """Write everything that the last steps produced."""
        if self._dirty:
            dirty, self._dirty = self._dirty, set()
            for generation in dirty:
                generation.flush()

    def fail_all(self) -> None:
        """End all requests because the engine is gone."""
        for generation in list(self._open):
            generation.fail()
        self.flush()

    def _mark(self, generation: Generation) -> None:
        self._dirty.add(generation)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        body = read_body(await request.read())
        options = self._options(body, kind="completion")
        prompts = completion_prompts(body, caching=self._settings.prefix_caching)
        choices: list[Choice] = []
        for prompt in prompts:
            for _ in range(int(body.get("n") or 1)):
                choices.append(self._completion(body, prompt, len(choices)))
        return await self._generate(request, options, choices)

    def _completion(self, body: Mapping[str, Any], prompt: Prompt, index: int) -> Choice:
        lengths = read_lengths(
            body,
            prompt_tokens=prompt.tokens,
            max_model_len=self._max_model_len,
            default=_DEFAULT_COMPLETION_TOKENS,
        )
        content = _varied(prompt.content, body, index)
        answer = answer_completion(
            content=content,
            lengths=lengths,
            stop=_stops(body),
            breakage=self._breakage(content, stream=bool(body.get("stream"))),
        )
        return Choice(index=index, prompt=prompt, answer=answer)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = read_body(await request.read())
        options = self._options(body, kind="chat")
        check_chat(body, self._settings.given)
        prompt = chat_prompt(body, caching=self._settings.prefix_caching)
        lengths = read_lengths(
            body,
            prompt_tokens=prompt.tokens,
            max_model_len=self._max_model_len,
            default=None,
        )
        choices = []
        for index in range(int(body.get("n") or 1)):
            content = _varied(prompt.content, body, index)
            answer = answer_chat(
                body,
                content=content,
                lengths=lengths,
                thinks=self._thinks(body),
                breakage=self._breakage(content, stream=options.stream),
            )
            self._count_tool_calls(body, answer)
            choices.append(Choice(index=index, prompt=prompt, answer=answer))
        return await self._generate(request, options, choices)

    def _thinks(self, body: Mapping[str, Any]) -> bool:
        if not self._settings.given.get("reasoning_parser"):
            return False
        written = {
            **(self._settings.given.get("default_chat_template_kwargs") or {}),
            **(body.get("chat_template_kwargs") or {}),
        }
        return written.get("enable_thinking", True) and body.get("reasoning_effort") != "none"

    def _count_tool_calls(self, body: Mapping[str, Any], answer: Answer) -> None:
        if body.get("tools"):
            choice = body.get("tool_choice") or "auto"
            mode = choice if isinstance(choice, str) else "named"
            self._metrics.tool_call(mode, "tool_calls" if answer.calls else "no_tool_calls")

    def _options(self, body: Mapping[str, Any], *, kind: Any) -> ReplyOptions:
        model = check_model(body, self._settings.served_names)
        check_stream_options(body)
        stream_options = body.get("stream_options") or {}
        flag = self._settings.flag
        return ReplyOptions(
            kind=kind,
            model=model,
            stream=bool(body.get("stream")),
            usage=bool(stream_options.get("include_usage")) or flag("enable_force_include_usage"),
            continuous_usage=bool(stream_options.get("continuous_usage_stats")),
            token_ids=bool(body.get("return_token_ids")),
            per_request_metrics=flag("enable_per_request_metrics"),
            cached_tokens=flag("enable_prompt_tokens_details"),
            interval=int(body.get("stream_interval") or self._settings.stream_interval),
        )

    def _breakage(self, content: int, *, stream: bool) -> Breakage:
        concurrency = len(self._open) + 1
        broken = {}
        for name, condition in self._breaks.items():
            broken[name] = (
                condition is not None
                and condition.holds(
                    speculation=self._settings.speculation is not None,
                    streaming=stream,
                    concurrency=concurrency,
                )
                and random.Random(f"{content}/{name}").uniform(0.0, 1.0) < condition.probability
            )
        return Breakage(**broken)

    async def _generate(
        self, request: web.Request, options: ReplyOptions, choices: Sequence[Choice]
    ) -> web.StreamResponse:
        self._engine.count_request()
        generation = Generation(
            options=options,
            choices=choices,
            tokenizer=self._tokenizer,
            metrics=self._metrics,
            on_output=self._mark,
        )
        self._open.add(generation)
        self._submit(generation)
        try:
            if options.stream:
                return await self._stream(request, generation)
            await generation.ended.wait()
            if generation.failed:
                raise EngineDeadError
            return web.json_response(generation.reply())
        finally:
            self._open.discard(generation)
            self._withdraw(generation)

    def _submit(self, generation: Generation) -> None:
        now = self._engine.now()
        for choice in generation.choices:
            work = Work(
                prompt_tokens=choice.prompt.tokens,
                output_tokens=choice.answer.tokens,
                content=choice.prompt.content + choice.index,
                block_keys=choice.prompt.block_keys,
                sink=generation,
                arrived_s=now,
            )
            generation.attach(choice, work)
            self._engine.add(work)

    def _withdraw(self, generation: Generation) -> None:
        """Abort what still runs when its client is gone."""
        for choice in generation.choices:
            if choice.work is not None and not choice.work.ended:
                self._engine.abort(choice.work)
                self._metrics.aborted()

    async def _stream(self, request: web.Request, generation: Generation) -> web.StreamResponse:
        response = web.StreamResponse(headers=_SSE_HEADERS)
        response.enable_chunked_encoding()
        await response.prepare(request)
        await generation.has_output.wait()
        data = generation.take()
        transport = request.transport

        def write(chunk: bytes) -> None:
            # Straight to the socket, in HTTP chunk framing: a coroutine per stream and step would
            # halve the number of streams that one core can serve.
            if transport is not None and not transport.is_closing():
                transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))

        generation.writer = write
        await response.write(data)
        await generation.ended.wait()
        rest = generation.take()
        if rest:
            await response.write(rest)
        await response.write_eof()
        return response


def _if_matching(condition: Condition | None, effective: Mapping[str, Any]) -> Condition | None:
    return condition if condition is not None and condition.matches(effective) else None


def _stops(body: Mapping[str, Any]) -> Sequence[str]:
    stop = body.get("stop") or ()
    return [stop] if isinstance(stop, str) else list(stop)


def _varied(content: int, body: Mapping[str, Any], index: int) -> int:
    """Vary the text when it is sampled with a seed; greedy decoding always says the same."""
    if body.get("temperature") and body.get("seed") is not None:
        return content_key(str(content), str(body["seed"]), str(index))
    return content + index
