"""Log lines in vLLM's format: process prefix, level, wall-clock time, source, message."""

import os
import sys
import time
from typing import Literal

from autotune.simulator.refusals import Refusal

Process = Literal["APIServer", "EngineCore"]
VERSION = "0.33.0"


def log(process: Process, source: str, message: str, *, level: str = "INFO") -> None:
    """Write one line; a message of several lines gets the prefix on each, as vLLM does."""
    # Both processes carry our pid: a reader that acts on one must not hit a stranger.
    prefix = f"({process} pid={os.getpid()}) {level} {time.strftime('%m-%d %H:%M:%S')} [{source}] "
    for line in message.split("\n"):
        sys.stdout.write(f"{prefix}{line}\n")
    sys.stdout.flush()


def uvicorn(message: str, *, level: str = "INFO") -> None:
    """Write a line of the HTTP server, which has no process prefix."""
    sys.stderr.write(f"{level}:     {message}\n")
    sys.stderr.flush()


def access(client: str, method: str, path: str, status: int) -> None:
    phrase = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}.get(status, "")
    sys.stdout.write(f'INFO:     {client} - "{method} {path} HTTP/1.1" {status} {phrase}\n')
    sys.stdout.flush()


def raw(process: Process, message: str) -> None:
    """Write lines that carry the process but no level, as a traceback at exit does."""
    for line in message.split("\n"):
        sys.stderr.write(f"({process} pid={os.getpid()}) {line}\n")
    sys.stderr.flush()


_ENGINE_FRAMES = """\
Traceback (most recent call last):
  File "/opt/vllm/vllm/v1/engine/core.py", line 1479, in run_engine_core
    engine_core = EngineCoreProc(*args, engine_index=dp_rank, **kwargs)
  File "/opt/vllm/vllm/v1/engine/core.py", line 1121, in __init__
    super().__init__(vllm_config, executor_class, log_stats)
  File "/opt/vllm/vllm/v1/engine/core.py", line 178, in __init__
    kv_cache_config = self._initialize_kv_caches(vllm_config)"""
_API_FRAMES = """\
Traceback (most recent call last):
  File "/opt/vllm/bin/vllm", line 10, in <module>
    sys.exit(main())
  File "/opt/vllm/vllm/entrypoints/cli/main.py", line 123, in main
    args.dispatch_function(args)
  File "/opt/vllm/vllm/entrypoints/cli/serve.py", line 148, in cmd
    uvloop.run(run_server(args))"""


def refusal(reason: Refusal) -> None:
    """Write the tracebacks with which vLLM gives up, root cause first."""
    if reason.process == "engine":
        engine_failure("EngineCore failed to start.", reason.root_line)
        raw(
            "APIServer",
            f"{_API_FRAMES}\nRuntimeError: Engine core initialization failed. See root cause above. "
            "Failed core proc(s): {}",
        )
        return
    raw("APIServer", f"{_API_FRAMES}\n{reason.root_line}")
    if "pydantic" in reason.exception:
        raw(
            "APIServer",
            "    For further information visit https://errors.pydantic.dev/2.13/v/value_error",
        )


def engine_failure(headline: str, root_line: str) -> None:
    log("EngineCore", "core.py:1509", headline, level="ERROR")
    log("EngineCore", "core.py:1509", f"{_ENGINE_FRAMES}\n{root_line}", level="ERROR")
    raw("EngineCore", "Process EngineCore:")
    raw("EngineCore", f"{_ENGINE_FRAMES}\n{root_line}")
