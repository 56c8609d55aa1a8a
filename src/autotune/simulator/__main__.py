"""`python -m autotune.simulator [options] -- MODEL [vllm serve flags]`."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from functools import partial
from types import FrameType
from typing import Any

from aiohttp import web

from autotune.simulator import vllm_log
from autotune.simulator.arguments import ServeArguments, SimulationOptions, read_command_line
from autotune.simulator.engine import Engine, VirtualClock
from autotune.simulator.generation_routes import GenerationRoutes
from autotune.simulator.hardware_profiles import HARDWARE
from autotune.simulator.http_server import HttpServer, wait_for_death
from autotune.simulator.metrics import Metrics
from autotune.simulator.model_profiles import model_profile
from autotune.simulator.noise import Noise
from autotune.simulator.performance import StepModel, StepSettings
from autotune.simulator.profiles import KV_CACHE_FACTORS, HardwareProfile, ModelProfile
from autotune.simulator.refusals import RefusedError
from autotune.simulator.scheduler import Scheduler
from autotune.simulator.settings import ServeSettings, resolve
from autotune.simulator.speculation import Speculation
from autotune.simulator.startup import Started, Startup, announce_version, effective_settings
from autotune.simulator.stats_log import StatsLog
from autotune.simulator.switches import Condition, Switches, speed_factor
from autotune.simulator.tokenizer import Tokenizer

# vLLM answers 503 for 1 to 3.5 s before it exits (measured with 0.32); tests want it shorter.
_DEATH_GRACE_S = 0.5
_STATS_INTERVAL_S = 10.0


def main(argv: list[str] | None = None) -> int:
    options, arguments = read_command_line(sys.argv[1:] if argv is None else argv)
    signal.signal(signal.SIGTERM, _leave)
    hardware = HARDWARE[options.hardware]
    model = model_profile(arguments.model)
    announce_version(arguments)
    try:
        settings = resolve(arguments, hardware, model)
        listener = _bind(settings)
        if listener is None:
            return 1
        started = Startup(
            settings=settings,
            hardware=hardware,
            model=model,
            switches=options.switches,
            scale=options.startup_scale,
            seed=options.seed,
        ).run()
    except RefusedError as problem:
        vllm_log.refusal(problem.refusal)
        return 1
    _run(
        _serve(
            options=options,
            arguments=arguments,
            settings=settings,
            hardware=hardware,
            model=model,
            started=started,
            listener=listener,
        )
    )
    return 0


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(0)


def _bind(settings: ServeSettings) -> socket.socket | None:
    """Take the port before anything is loaded, as vLLM does; nobody can connect before `listen`."""
    host = settings.host
    if not host.startswith("127."):
        if host not in {"localhost", "::1"}:
            vllm_log.uvicorn(f"the simulator listens on 127.0.0.1, not on {host}", level="WARNING")
        host = "127.0.0.1"
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, settings.port))
    except OSError as problem:
        listener.close()
        vllm_log.raw(
            "APIServer",
            "Traceback (most recent call last):\n"
            '  File "/opt/vllm/vllm/entrypoints/launchers/launcher.py", line 118, in create_server_socket\n'
            "    sock.bind(addr)\n"
            f"OSError: {problem}",
        )
        return None
    return listener


def _run(server: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop  # noqa: PLC0415 - optional: it is not built for every platform
    except ImportError:
        asyncio.run(server)
    else:
        uvloop.run(server)


async def _serve(
    *,
    options: SimulationOptions,
    arguments: ServeArguments,
    settings: ServeSettings,
    hardware: HardwareProfile,
    model: ModelProfile,
    started: Started,
    listener: socket.socket,
) -> None:
    switches = options.switches
    effective = effective_settings(settings, started.backends)
    clock = VirtualClock(startup_s=started.startup_s, time_scale=options.time_scale)
    noise = Noise(_noise_seed(options.seed, arguments), switches)
    scheduler = Scheduler(
        limits=settings.limits,
        memory=started.memory,
        speculation=_speculation(settings, switches),
        model=StepModel(
            hardware, model, _step_settings(settings, started, speed_factor(switches, effective))
        ),
        noise=noise,
        prefix_caching=settings.prefix_caching,
        jit_spike=switches.jit_spike,
    )
    metrics = Metrics(
        scheduler=scheduler,
        model_name=settings.served_names[0],
        cache_labels={
            "num_gpu_blocks": str(started.memory.blocks),
            "block_size": str(started.memory.block_size),
            "cache_dtype": settings.kv_cache_dtype,
            "gpu_memory_utilization": str(settings.gpu_memory_utilization),
            "enable_prefix_caching": str(settings.prefix_caching),
        },
        draft_tokens=settings.speculation.draft_tokens if settings.speculation else 0,
        max_model_len=started.memory.max_model_len,
    )
    scheduler.on_step = metrics.iteration.observe
    interval_s = float(os.environ.get("VLLM_LOG_STATS_INTERVAL", _STATS_INTERVAL_S))
    stats = StatsLog(scheduler, interval_s=interval_s, began_s=clock.now())
    engine = Engine(
        scheduler=scheduler,
        clock=clock,
        noise=noise,
        dies_at=_matching(switches.dies_at_request, effective),
        hangs_at=_matching(switches.hang_at_request, effective),
        on_tick=_ignore if settings.flag("disable_log_stats") else stats.tick,
        on_jit=_log_jit,
    )
    tokenizer = Tokenizer()
    generations = GenerationRoutes(
        settings=settings,
        max_model_len=started.memory.max_model_len,
        engine=engine,
        metrics=metrics,
        tokenizer=tokenizer,
        switches=switches,
        effective=effective,
    )
    engine.flush = generations.flush
    server = HttpServer(
        settings=settings,
        max_model_len=started.memory.max_model_len,
        engine=engine,
        metrics=metrics,
        generations=generations,
        tokenizer=tokenizer,
        effective=effective,
    )
    await _listen_until_the_end(
        engine,
        server.application(),
        wait_for_death(engine, generations, grace_s=_DEATH_GRACE_S),
        listener,
        ignores_term=bool(_matching(switches.ignores_term, effective)),
    )


async def _listen_until_the_end(
    engine: Engine,
    application: web.Application,
    dying: Coroutine[Any, Any, None],
    listener: socket.socket,
    *,
    ignores_term: bool,
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, partial(_on_term, stop, ignores_term))
    loop.add_signal_handler(signal.SIGINT, stop.set)
    runner = web.AppRunner(
        application, access_log=None, handler_cancellation=True, shutdown_timeout=0.01
    )
    await runner.setup()
    host, port = listener.getsockname()[:2]
    vllm_log.log("APIServer", "entry.py:139", f"Starting vLLM server on http://{host}:{port}")
    vllm_log.uvicorn(f"Started server process [{os.getpid()}]")
    vllm_log.uvicorn("Waiting for application startup.")
    await web.SockSite(runner, listener, backlog=2048).start()
    vllm_log.uvicorn("Application startup complete.")
    core = asyncio.create_task(engine.run())
    core.add_done_callback(partial(_notice_failure, engine))
    death = asyncio.create_task(dying)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({death, stopped}, return_when=asyncio.FIRST_COMPLETED)
    vllm_log.uvicorn("Shutting down")
    for task in (core, death, stopped):
        task.cancel()
    await asyncio.gather(core, death, stopped, return_exceptions=True)
    await runner.cleanup()
    vllm_log.uvicorn("Application shutdown complete.")
    vllm_log.uvicorn(f"Finished server process [{os.getpid()}]")


def _notice_failure(engine: Engine, core: "asyncio.Task[None]") -> None:
    """Treat an error of the simulator itself like the death of an engine: said, and not hung."""
    if not core.cancelled() and core.exception() is not None:
        vllm_log.raw("EngineCore", f"the simulator failed: {core.exception()!r}")
        engine.dead.set()


def _on_term(stop: asyncio.Event, ignores: bool) -> None:
    if ignores:
        vllm_log.uvicorn("Waiting for connections to close. (CTRL+C to force quit)")
    else:
        stop.set()


def _step_settings(settings: ServeSettings, started: Started, factor: float) -> StepSettings:
    return StepSettings(
        draft_read_gb=settings.speculation.draft_read_gb if settings.speculation else 0.0,
        kv_factor=KV_CACHE_FACTORS[settings.kv_cache_dtype],
        speed=started.backends.speed * factor,
        capture_sizes=settings.capture_sizes,
        eager=settings.enforce_eager,
        blocking_schedule=not settings.async_scheduling,
    )


def _speculation(settings: ServeSettings, switches: Switches) -> Speculation | None:
    speculation = settings.speculation
    if speculation is None or switches.acceptance is None:
        return speculation
    return Speculation(
        method=speculation.method,
        draft_tokens=speculation.draft_tokens,
        acceptance=switches.acceptance,
        draft_read_gb=speculation.draft_read_gb,
        kv_share=speculation.kv_share,
        by_batch=speculation.by_batch,
    )


def _noise_seed(seed: int, arguments: ServeArguments) -> str:
    """Mix in the configuration: equal seeds must not make the noise of two configurations equal."""
    kept = {
        name: value
        for name, value in arguments.given.items()
        if name not in {"port", "host", "served_model_name", "api_key"}
    }
    return f"{seed}/{arguments.model}/{sorted(kept.items(), key=str)}"


def _matching(condition: Condition | None, effective: dict[str, object]) -> Condition | None:
    return condition if condition is not None and condition.matches(effective) else None


def _ignore(_clock_s: float) -> None:
    """Log no statistics."""


def _log_jit() -> None:
    vllm_log.log(
        "EngineCore",
        "jit_monitor.py:104",
        "Triton kernel JIT compilation during inference: _topk_topp_kernel. This causes a latency spike "
        "for the requests in the batch.",
        level="WARNING",
    )


if __name__ == "__main__":
    sys.exit(main())
