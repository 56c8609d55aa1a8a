"""The HTTP surface of `vllm serve`, on aiohttp. Routes and error objects are vLLM 0.33's."""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from autotune.simulator import vllm_log
from autotune.simulator.engine import Engine, EngineDeadError
from autotune.simulator.generation_routes import GenerationRoutes
from autotune.simulator.http_requests import (
    BadRequestError,
    chat_prompt,
    check_model,
    read_body,
    text_prompt,
)
from autotune.simulator.metrics import Metrics
from autotune.simulator.settings import ServeSettings
from autotune.simulator.tokenizer import Tokenizer

_LARGEST_BODY = 256 * 2**20
_ERROR_TYPES = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}


class HttpServer:
    """The application: what surrounds every request, and the routes that generate nothing."""

    def __init__(
        self,
        *,
        settings: ServeSettings,
        max_model_len: int,
        engine: Engine,
        metrics: Metrics,
        generations: GenerationRoutes,
        tokenizer: Tokenizer,
        effective: Mapping[str, Any],
    ) -> None:
        self._settings = settings
        self._max_model_len = max_model_len
        self._engine = engine
        self._metrics = metrics
        self._generations = generations
        self._tokenizer = tokenizer
        self._effective = effective
        self._started = int(time.time())
        given = settings.given
        self._quiet = set(str(given.get("disable_access_log_for_endpoints") or "").split(","))
        self._log_access = not given.get("disable_uvicorn_access_log", False)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=_LARGEST_BODY, middlewares=[self._around])
        app.add_routes(
            [
                web.get("/health", self._health),
                web.route("*", "/ping", self._health),
                web.get("/version", self._version),
                web.get("/v1/models", self._models),
                web.get("/metrics", self._show_metrics),
                web.get("/load", self._load),
                web.get("/simulation", self._simulation),
                web.post("/tokenize", self._tokenize),
                web.post("/detokenize", self._detokenize),
                web.post("/v1/completions", self._generations.completions),
                web.post("/v1/chat/completions", self._generations.chat),
            ]
        )
        if os.environ.get("VLLM_SERVER_DEV_MODE") == "1":
            app.add_routes(
                [
                    web.post("/reset_prefix_cache", self._reset_prefix_cache),
                    web.get("/server_info", self._server_info),
                ]
            )
        return app

    # Around every request

    @web.middleware
    async def _around(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        response = await self._answer(request, handler)
        if self._log_access and request.path not in self._quiet:
            peer = request.transport.get_extra_info("peername") if request.transport else None
            client = f"{peer[0]}:{peer[1]}" if peer else "127.0.0.1:0"
            vllm_log.access(client, request.method, request.path_qs, response.status)
        return response

    async def _answer(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        keys = self._settings.api_keys
        if keys and request.path.startswith("/v1"):
            sent = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if sent not in keys:
                return web.json_response({"error": "Unauthorized"}, status=401)
        try:
            return await handler(request)
        except BadRequestError as problem:
            return _error(problem.message, status=problem.status, param=problem.param)
        except EngineDeadError as problem:
            return _error(str(problem), status=500)
        except web.HTTPException as problem:
            return web.json_response({"detail": problem.reason}, status=problem.status)

    # Small routes

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self._engine.dead.is_set() else 200)

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": vllm_log.VERSION})

    async def _models(self, _: web.Request) -> web.Response:
        cards: list[dict[str, Any]] = [
            {
                "id": name,
                "object": "model",
                "created": self._started,
                "owned_by": "vllm",
                "root": self._settings.model,
                "parent": None,
                "max_model_len": self._max_model_len,
                "permission": [],
            }
            for name in self._settings.served_names
        ]
        return web.json_response({"object": "list", "data": cards})

    async def _show_metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            text=self._metrics.render(),
            headers={"Content-Type": "text/plain; version=1.0.0; charset=utf-8"},
        )

    async def _load(self, _: web.Request) -> web.Response:
        return web.json_response({"server_load": self._generations.open_requests})

    async def _simulation(self, _: web.Request) -> web.Response:
        clock = self._engine.clock
        return web.json_response(
            {
                "startup_s": clock.startup_s,
                "time_scale": clock.time_scale,
                "clock_s": clock.now(),
                "effective": self._effective,
            }
        )

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = read_body(await request.read())
        check_model(body, self._settings.served_names)
        if "messages" in body:
            prompt = chat_prompt(body, caching=False)
        else:
            prompt = text_prompt(str(body.get("prompt", "")), salt="", caching=False)
        ids = prompt.token_ids(self._tokenizer)
        ids += [self._tokenizer.id_of("\n")] * (prompt.tokens - len(ids))
        return web.json_response(
            {
                "count": prompt.tokens,
                "max_model_len": self._max_model_len,
                "tokens": ids,
                "token_strs": None,
            }
        )

    async def _detokenize(self, request: web.Request) -> web.Response:
        body = read_body(await request.read())
        check_model(body, self._settings.served_names)
        return web.json_response({"prompt": self._tokenizer.decode(body.get("tokens") or [])})

    async def _reset_prefix_cache(self, _: web.Request) -> web.Response:
        self._engine.scheduler.forget_prefixes()
        return web.json_response({"success": True})

    async def _server_info(self, _: web.Request) -> web.Response:
        return web.json_response({"vllm_config": self._effective})


def _error(message: str, *, status: int, param: str | None = None) -> web.Response:
    kind = _ERROR_TYPES.get(status, "BadRequestError")
    body = {"error": {"message": message, "type": kind, "param": param, "code": status}}
    return web.Response(status=status, text=json.dumps(body), content_type="application/json")


async def wait_for_death(engine: Engine, generations: GenerationRoutes, *, grace_s: float) -> None:
    """Do what vLLM does when its engine dies: fail the requests, answer 503 for a moment, leave."""
    await engine.dead.wait()
    root = "RuntimeError: CUDA error: an illegal memory access was encountered"
    vllm_log.engine_failure("EngineCore encountered a fatal error.", root)
    vllm_log.log(
        "APIServer",
        "async_llm.py:787",
        "AsyncLLM output_handler failed.\nvllm.v1.engine.exceptions.EngineDeadError: "
        "EngineCore encountered an issue. See stack trace (above) for the root cause.",
        level="ERROR",
    )
    generations.fail_all()
    await asyncio.sleep(grace_s)
