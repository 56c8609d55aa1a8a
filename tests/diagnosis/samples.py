"""Small logs for the tests, put together the way vLLM prints its failures."""

ENGINE = "(EngineCore pid=311) "
API = "(APIServer pid=42) "
ENGINE_ERROR = f"{ENGINE}ERROR 11-21 09:30:12 [core.py:1584] "

BANNER = (
    f"{API}INFO 11-21 09:29:40 [api_utils.py:345]  ▄▄ ▄█ █     █ ▀▄▀ █  version 0.33.0\n"
    f"{API}INFO 11-21 09:29:40 [api_utils.py:273] non-default args: "
    "{'model_tag': 'acme/tiny', 'port': 8123, 'model': 'acme/tiny', 'max_num_seqs': 16}\n"
)
STARTED = (
    f"{ENGINE}INFO 11-21 09:29:52 [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: "
    "model='acme/tiny', speculative_config=None\n"
    f"{ENGINE}INFO 11-21 09:29:53 [model_runner.py:400] Starting to load model acme/tiny...\n"
)
READY = (
    f"{API}INFO:     Started server process [42]\n"
    f"{API}INFO:     Waiting for application startup.\n"
    f"{API}INFO:     Application startup complete.\n"
)
ORDERLY_STOP = (
    f"{API}INFO:     Shutting down\n"
    f"{API}INFO:     Waiting for application shutdown.\n"
    f"{API}INFO:     Application shutdown complete.\n"
    f"{API}INFO:     Finished server process [42]\n"
)


def engine_start_failure(message: str) -> str:
    """Print an exception in the engine, with everything that follows from it."""
    return (
        f"{BANNER}{STARTED}"
        f"{ENGINE_ERROR}EngineCore failed to start.\n"
        f"{ENGINE_ERROR}Traceback (most recent call last):\n"
        f'{ENGINE_ERROR}  File "/opt/vllm/v1/engine/core.py", line 1540, in run_engine_core\n'
        f"{ENGINE_ERROR}    engine_core = EngineCoreProc(*args, **kwargs)\n"
        f"{ENGINE_ERROR}{message}\n"
        f"{ENGINE}Process EngineCore:\n"
        f"{ENGINE}Traceback (most recent call last):\n"
        f"{ENGINE}{message}\n"
        f"{API}Traceback (most recent call last):\n"
        f'{API}  File "/opt/bin/vllm", line 8, in <module>\n'
        f"{API}RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {}\n"
    )


def configuration_failure(*lines: str) -> str:
    """Print an exception of the API server before any engine was started."""
    return (
        f"{BANNER}{API}Traceback (most recent call last):\n"
        f'{API}  File "/opt/bin/vllm", line 8, in <module>\n'
        f"{API}    sys.exit(main())\n" + "".join(f"{API}{line}\n" for line in lines)
    )


def death_under_load(message: str) -> str:
    """Print an exception in a serving engine, and the API server that goes with it."""
    return (
        f"{BANNER}{STARTED}{READY}"
        f'{API}INFO:     127.0.0.1:50112 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
        f"{ENGINE_ERROR}EngineCore encountered a fatal error.\n"
        f"{ENGINE_ERROR}Traceback (most recent call last):\n"
        f"{ENGINE_ERROR}    self._process_engine_step()\n"
        f"{ENGINE_ERROR}{message}\n"
        f"{API}ERROR 11-21 09:30:13 [async_llm.py:700] AsyncLLM output_handler failed.\n"
        f"{API}ERROR 11-21 09:30:13 [async_llm.py:700] vllm.v1.engine.exceptions.EngineDeadError: "
        "EngineCore encountered an issue. See stack trace (above) for the root cause.\n"
        f'{API}INFO:     127.0.0.1:50114 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error\n'
        f"{ORDERLY_STOP}"
    )
