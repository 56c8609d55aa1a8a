import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.diagnosis import diagnose
from autotune.model.diagnosis import FAMILIES, Limit
from tests.diagnosis.samples import (
    API,
    BANNER,
    ENGINE,
    ENGINE_ERROR,
    ORDERLY_STOP,
    READY,
    STARTED,
    configuration_failure,
    death_under_load,
    engine_start_failure,
)

ENGINE_START_FAILURES = [
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has", "out_of_memory"),
    ("torch.AcceleratorError: CUDA error: out of memory", "out_of_memory"),
    ("ValueError: Free memory on device cuda:0 (40.1/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB). Decrease", "memory_occupied"),
    ("AssertionError: Error in memory profiling. Initial free memory 80 GiB, current free memory 90 GiB.", "memory_occupied"),
    ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "kv_cache_too_small"),
    ("ValueError: Failed to find a kernel that can implement the Mixed linear layer. Reasons:", "unsupported"),
    ("ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. Reason: ['head_size']", "unsupported"),
    ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "unsupported"),
    ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376", "unsupported"),
    ("NotImplementedError: MLA decode wants fp8 here", "unsupported"),
    ("ValueError: Load format `zip` is not supported", "invalid_config"),
    ("ValueError: Following weights were not initialized from checkpoint: {'lm_head.weight'}", "model_files"),
    ("KeyError: 'model.layers.3.self_attn.qkv_proj.weight_scale'", "model_files"),
    ("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge", "model_files"),
    ("RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)", "host_setup"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'ninja'", "host_setup"),
    ("OSError: [Errno 28] No space left on device", "host_setup"),
    ("ImportError: libcudart.so.13: cannot open shared object file: No such file or directory", "host_setup"),
    ("torch._inductor.exc.InductorError: RuntimeError: a pass went wrong", "compile_failed"),
    ("RuntimeError: vLLM failed to compile the model. The most likely reason", "compile_failed"),
    ("TimeoutError: Timed out waiting for engine core processes to start.", "hang"),
    ("RuntimeError: CUDA error: an illegal instruction was encountered", "engine_died"),
    ("RuntimeError: shapes cannot be multiplied (2x3 and 4x5)", "engine_died"),
    ("AssertionError", "engine_died"),
]  # fmt: skip

CONFIGURATION_FAILURES = [
    (("ValueError: Unknown attention backend: 'WRONG'. Valid options are: FLASH_ATTN",), "invalid_config"),
    (("TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser",), "invalid_config"),
    (("KeyError: 'WRONG_MODE'",), "invalid_config"),
    (("pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig", "gpu_memory_utilization", "  Input should be less than or equal to 1 [type=less_than_equal, input_value=2.0]"), "invalid_config"),
    (("pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig", "  Value error, Unknown quantization method: zap. Must be one of [...]"), "unsupported"),
    (("pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig", "  Value error, Invalid repository ID or local directory specified: '/models/none'."), "model_files"),
    (("OSError: You are trying to access a gated repo.",), "model_files"),
    (("ModuleNotFoundError: No module named 'some_kernels'",), "host_setup"),
    (("RuntimeError: Failed to infer device type, please set the environment variable",), "host_setup"),
    (("OSError: [Errno 98] Address already in use",), "port_in_use"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "family"), ENGINE_START_FAILURES)
def test_an_exception_in_the_engine_is_the_reason_not_what_follows_from_it(message, family):
    log = engine_start_failure(message)

    found = diagnose(log)

    assert (found.outcome, found.family) == ("failed", family)
    assert found.line == f"{ENGINE_ERROR}{message}"
    assert found.line_number == log[: log.index(message)].count("\n") + 1
    assert found.remedy


@pytest.mark.parametrize(("lines", "family"), CONFIGURATION_FAILURES)
def test_an_exception_before_any_engine_is_judged_by_its_words(lines, family):
    found = diagnose(configuration_failure(*lines), exit_code=1)

    assert (found.outcome, found.family) == ("failed", family)
    assert found.line == f"{API}{lines[-1]}".strip()


@pytest.mark.parametrize(
    ("message", "family", "failure_class"),
    [
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "engine_died", "illegal_memory_access"),
        ("AssertionError: the block table is torn", "engine_died", "python_exception"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "out_of_memory", "oom_runtime"),
        ("RuntimeError: [FP4 gemm Runner] Failed to run cutlass FP4 gemm on sm121", "unsupported", "unsupported_kernel"),
        ("TimeoutError: RPC call to execute_model timed out.", "hang", "rpc_timeout"),
    ],
)  # fmt: skip
def test_a_server_that_was_ready_and_died_failed_for_the_engines_own_reason(
    message, family, failure_class
):
    found = diagnose(death_under_load(message), exit_code=0)

    assert (found.outcome, found.family) == ("failed", family)
    assert found.failure_class == failure_class
    assert found.line == f"{ENGINE_ERROR}{message}"


def test_an_argument_parser_error_is_an_invalid_configuration():
    log = (
        "usage: vllm serve [model_tag] [options]\n"
        "vllm serve: error: argument --moe-backend: invalid choice: 'best' (choose from auto)\n"
    )

    found = diagnose(log, exit_code=2)

    assert (found.family, found.failure_class, found.line_number) == (
        "invalid_config",
        "invalid_value",
        2,
    )


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("ValueError: max_num_seqs (900) exceeds available Mamba cache blocks (481). Each sequence needs one. Please lower max_num_seqs to at most 481 or", Limit(knob="max_num_seqs", op="<=", number=481)),
        ("ValueError: To serve at least one request with the model's max seq len (65536), (9.1 GiB KV cache is needed, which is larger than the available KV cache memory (7.0 GiB). Based on the available memory, the estimated maximum model length is 50,320. Try", Limit(knob="max_model_len", op="<=", number=50320)),
        ("The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache (21008).", Limit(knob="max_model_len", op="<=", number=21008)),
        ("RuntimeError: CUDA out of memory occurred when warming up sampler with 512 dummy requests.", Limit(knob="max_num_seqs", op="<", number=512)),
        ("ValueError: num_speculative_tokens:5 must be divisible by n_predict=2", Limit(knob="num_speculative_tokens", op="multiple_of", number=2)),
    ],
)  # fmt: skip
def test_a_bound_in_the_message_is_carried_over(message, limit):
    assert diagnose(engine_start_failure(message)).limit == limit


def test_a_bound_that_a_terminal_broke_off_is_still_found():
    log = (
        f"{ENGINE_ERROR}ValueError: To serve at least one request with the model's max seq len (65536), "
        "(9.1 GiB KV cache is needed, which is larger than the available KV cache memory (7.0 GiB). "
        "Based on the available memory, the estimated maximum mo\ndel length is 50320. Try less.\n"
    )

    found = diagnose(log)

    assert found.limit == Limit(knob="max_model_len", op="<=", number=50320)


def test_a_bound_is_taken_from_a_repetition_when_the_first_line_is_cut():
    whole = "ValueError: max_num_seqs (64) exceeds available Mamba cache blocks (31). Lower it to at most 31"
    log = f"{ENGINE_ERROR}{whole[:75]}\n{ENGINE}{whole}\n"

    found = diagnose(log)

    assert (found.line_number, found.limit) == (1, Limit(knob="max_num_seqs", op="<=", number=31))


@pytest.mark.parametrize(
    "prefix",
    [
        "vllm-1  | ",
        "Nov 21 09:30:12 spark vllm[311]: ",
        "2026-11-21T09:30:12.123456789Z stderr F ",
        "2026-11-21 09:30:12.123 [Error] (Process) ",
        "[pod/vllm-0/server] ",
        "> ",
        "\x1b[0;36m",
        "ESC[0;36m",
    ],
)
def test_prefixes_of_containers_and_colors_do_not_hide_the_reason(prefix):
    log = engine_start_failure("ValueError: No available memory for the cache blocks. Try")
    log = "".join(f"{prefix}{line}\n" for line in log.splitlines())

    found = diagnose(log.encode())

    assert found.family == "kv_cache_too_small"
    assert found.line_number == 9
    assert found.facts.vllm_version == "0.33.0"


def test_json_lines_of_a_container_log_are_read():
    log = engine_start_failure("RuntimeError: CUDA error: out of memory")
    log = "".join(
        json.dumps({"log": f"{line}\n", "stream": "stderr"}) + "\n" for line in log.splitlines()
    )

    assert diagnose(log).family == "out_of_memory"


@pytest.mark.parametrize(
    ("before", "failure_class"),
    [
        (STARTED, "oom_weights"),
        (f"{STARTED}{ENGINE}INFO 11-21 09:30:00 [l.py:1] Loading weights took 3.1 seconds\n", "oom_profiling"),
        (f"{STARTED}{ENGINE}INFO 11-21 09:30:00 [l.py:1] GPU KV cache size: 1,024 tokens\n", "oom_kv_cache"),
        (f"{STARTED}Capturing CUDA graphs (decode, FULL):  10%|█ | 1/10\r", "oom_graph_capture"),
    ],
)  # fmt: skip
def test_running_out_of_memory_is_told_by_the_step_it_reached(before, failure_class):
    log = (
        before + f"\n{ENGINE_ERROR}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate\n"
    )

    assert diagnose(log).failure_class == failure_class


def test_memory_that_cannot_even_be_asked_for_is_occupied():
    log = (
        f"{BANNER}{ENGINE_ERROR}Traceback (most recent call last):\n"
        f"{ENGINE_ERROR}    return torch.cuda.mem_get_info(device)\n"
        f"{ENGINE_ERROR}torch.AcceleratorError: CUDA error: out of memory\n"
    )

    found = diagnose(log)

    assert (found.family, found.failure_class) == ("memory_occupied", "uma_accounting_oom")


def test_a_server_is_ready_by_its_own_word():
    found = diagnose(f"{BANNER}{STARTED}{READY}")

    assert found.outcome == "ready"
    assert found.family is None
    assert found.line == f"{API}INFO:     Application startup complete."


def test_an_answered_request_is_readiness_too():
    log = f'{BANNER}{STARTED}{API}INFO:     127.0.0.1:5 - "GET /v1/models HTTP/1.1" 200 OK\n'

    assert diagnose(log).outcome == "ready"


def test_a_kv_cache_and_a_url_are_no_readiness():
    log = (
        f"{BANNER}{STARTED}"
        f"{ENGINE}INFO 11-21 09:30:00 [k.py:1] GPU KV cache size: 8,192 tokens\n"
        f"{API}INFO 11-21 09:30:01 [entry.py:139] Starting vLLM server on http://127.0.0.1:8123\n"
    )

    found = diagnose(log)

    assert found.outcome == "incomplete"
    assert found.line is not None
    assert "Starting vLLM server" in found.line


def test_a_bind_error_after_the_startup_is_a_port_in_use():
    bind = "[Errno 98] error while attempting to bind on address ('127.0.0.1', 8123): address already in use"

    found = diagnose(f"{BANNER}{READY}{API}ERROR:    {bind}\n")

    assert found.family == "port_in_use"


def test_a_request_that_fails_does_not_fail_the_server():
    log = (
        f"{BANNER}{READY}{API}ERROR 11-21 09:31:00 [serving.py:9] Traceback (most recent call last):\n"
        f"{API}ERROR 11-21 09:31:00 [serving.py:9] ValueError: This feature is not supported\n"
        f'{API}INFO:     127.0.0.1:5 - "POST /v1/completions HTTP/1.1" 400 Bad Request\n'
    )

    assert diagnose(log).outcome == "ready"


def test_a_grammar_that_rejects_tokens_is_a_warning_of_a_ready_server():
    line = f"{ENGINE}ERROR 11-21 09:31:00 [backend_xgrammar.py:162] Failed to advance FSM for request x"

    found = diagnose(f"{BANNER}{READY}{line}\n")

    assert found.outcome == "ready"
    assert found.warnings == ("Failed to advance FSM for request x",)


@pytest.mark.parametrize("level", ["INFO", "WARNING"])
def test_what_its_own_logger_calls_harmless_is_no_failure(level):
    log = f"{BANNER}WARNING 11-21 09:29:41 [o.py:18] Failed to import from vllm._C with ImportError('libcuda.so.1: cannot open shared object file')\n"
    log += f"{BANNER}{API}{level} 11-21 09:29:41 [p.py:7] Address already in use. Retrying with a new port.\n"

    assert diagnose(log).outcome == "incomplete"


def test_an_exception_that_was_handled_does_not_fail_a_start_that_goes_on():
    log = (
        f"{BANNER}Traceback (most recent call last):\nValueError: no such plugin\n{STARTED}"
        f"{ENGINE}INFO 11-21 09:30:00 [l.py:1] Loading weights took 3.1 seconds\n"
    )

    assert diagnose(log).outcome == "incomplete"


def test_complaints_of_dying_objects_are_not_the_reason():
    log = configuration_failure("ValueError: the real reason").replace(
        f"{API}ValueError",
        "Exception ignored in: <function Executor.__del__ at 0x7f>\n"
        "Traceback (most recent call last):\nAttributeError: no attribute 'workers'\n"
        f"{API}Traceback (most recent call last):\n{API}ValueError",
    )

    found = diagnose(log)

    assert found.line == f"{API}ValueError: the real reason"


def test_the_exception_that_surfaced_wins_over_the_one_it_replaced():
    found = diagnose(
        configuration_failure(
            "KeyError: 'x'",
            "",
            "During handling of the above exception, another exception occurred:",
            "",
            "Traceback (most recent call last):",
            "ValueError: x is none of a, b, c",
        )
    )

    assert found.line == f"{API}ValueError: x is none of a, b, c"


def test_a_traceback_that_the_log_cuts_off_is_a_failure_nobody_can_name():
    log = f'{BANNER}{STARTED}{API}Traceback (most recent call last):\n{API}  File "/opt/x.py", line 1\n'

    found = diagnose(log)

    assert (found.outcome, found.family) == ("failed", "unknown")


def test_a_failure_before_a_supervisors_restart_still_counts_until_it_is_ready():
    failed = f"{BANNER}OSError: [Errno 98] Address already in use\n"

    assert diagnose(failed + BANNER).family == "port_in_use"
    again = diagnose(failed + BANNER + READY)
    assert again.outcome == "ready"
    assert again.warnings == ("before it was ready: OSError: [Errno 98] Address already in use",)


@pytest.mark.parametrize(
    "line",
    [
        "KeyboardInterrupt",
        "(Worker_TP0 pid=9) WARNING 11-21 09:29:59 [multiproc_executor.py:866] WorkerProc was terminated",
        "ERROR 11-21 09:29:59 utils.py:120] Worker VllmWorkerProcess pid 77 died, exit code: -15",
        f"{ENGINE}INFO 11-21 09:29:59 [core.py:1] [shutdown] EngineCore: trigger received signal=SIGTERM",
    ],
)
def test_a_start_that_somebody_stopped_is_interrupted(line):
    found = diagnose(f"{BANNER}{STARTED}{line}\n")

    assert (found.family, found.line) == ("interrupted", line)


def test_what_breaks_after_a_ctrl_c_is_not_the_reason():
    log = f"{BANNER}{STARTED}KeyboardInterrupt\nRuntimeError: NCCL error: remote process exited\n"

    assert diagnose(log).family == "interrupted"


def test_a_server_stopped_in_order_was_ready():
    log = f"{BANNER}{READY}{ORDERLY_STOP}"

    assert diagnose(log).outcome == "ready"
    assert diagnose(log, exit_code=0, stopped_by_us=True).outcome == "ready"
    assert diagnose(log, exit_code=0).family == "interrupted"


def test_what_breaks_while_we_stop_it_is_no_failure():
    log = f"{BANNER}{READY}{ORDERLY_STOP}{ENGINE_ERROR}RuntimeError: cannot schedule new futures\n"

    assert diagnose(log, exit_code=-9, stopped_by_us=True).outcome == "ready"


def test_a_reason_before_we_stopped_it_is_kept():
    log = death_under_load("RuntimeError: CUDA error: misaligned address")

    assert diagnose(log, exit_code=-15, stopped_by_us=True).family == "engine_died"


@pytest.mark.parametrize(
    ("exit_code", "family"),
    [(0, "engine_died"), (1, "unknown"), (2, "invalid_config"), (125, "host_setup"), (137, "engine_died"), (-9, "engine_died"), (-11, "engine_died"), (143, "interrupted"), (-2, "interrupted")],
)  # fmt: skip
def test_an_exit_code_decides_where_the_log_says_nothing(exit_code, family):
    found = diagnose(f"{BANNER}{STARTED}", exit_code=exit_code)

    assert (found.outcome, found.family) == ("failed", family)
    assert found.line_number == 4


def test_a_killed_engine_names_the_oom_killer():
    log = f"{BANNER}{READY}{API}ERROR 11-21 09:40:00 [c.py:5] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.\n"

    found = diagnose(log, exit_code=-9)

    assert found.family == "engine_died"
    assert "OOM killer" in (found.remedy or "")


def test_requests_that_wait_while_none_runs_show_a_dead_engine():
    statistics = f"{API}INFO 11-21 09:4{{}}:00 [loggers.py:271] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {{}} tokens/s, Running: {{}} reqs, Waiting: 5 reqs, GPU KV cache usage: 0.0%\n"
    once = statistics.format(1, "0.0", 0)
    busy = statistics.format(0, "88.1", 4)

    assert diagnose(f"{BANNER}{READY}{busy}{once}").outcome == "ready"
    found = diagnose(f"{BANNER}{READY}{busy}{once}{once}")
    assert (found.family, found.failure_class) == ("engine_died", "engine_silent_death")


def test_a_hint_explains_a_failure_that_gives_no_reason():
    log = (
        f"{BANNER}{STARTED}fastk failed: 3/930 ready, 0 measured\n"
        f"{ENGINE_ERROR}EngineCore failed to start.\n"
    )

    found = diagnose(log)

    assert (found.family, found.line) == ("compile_failed", "fastk failed: 3/930 ready, 0 measured")


@given(st.binary(max_size=400))
def test_arbitrary_bytes_never_raise(text):
    found = diagnose(text)

    assert json.loads(json.dumps(found.as_dict()))["outcome"] == found.outcome


_FRAGMENTS = st.sampled_from(
    [
        *READY.splitlines(),
        *death_under_load("RuntimeError: CUDA error: x").splitlines(),
        *engine_start_failure("ValueError: No available memory for the cache blocks").splitlines(),
        *(line for _, lines in ((f, ls) for ls, f in CONFIGURATION_FAILURES) for line in lines),
        "\x1b[31m", "\r", "", "{", '{"log": "x"}', "# GPU blocks: 99999999999", "KeyboardInterrupt",
        "Running: 0 reqs, Waiting: 1 reqs", "GPU KV cache size: , tokens", "Loading weights took . seconds",
    ]
)  # fmt: skip


@given(
    st.lists(_FRAGMENTS | st.text(max_size=20), max_size=25),
    st.none() | st.integers(min_value=-40, max_value=300),
    st.booleans(),
)
def test_any_mixture_of_lines_gives_a_consistent_diagnosis(lines, exit_code, stopped_by_us):
    found = diagnose("\n".join(lines), exit_code=exit_code, stopped_by_us=stopped_by_us)

    assert (found.family is None) == (found.outcome != "failed")
    assert found.family is None or found.family in FAMILIES
    assert (found.line is None) == (found.line_number is None)


def test_megabytes_of_progress_bars_and_requests_are_read():
    bars = "".join(
        f"\rLoading safetensors checkpoint shards:  1% Completed | {n}/90000 [00:05<00:07]"
        for n in range(20_000)
    )
    access = f'{API}INFO:     127.0.0.1:5 - "POST /v1/completions HTTP/1.1" 200 OK\n' * 30_000
    death = f"{ENGINE_ERROR}RuntimeError: CUDA error: an illegal memory access was encountered\n"

    found = diagnose(f"{BANNER}{STARTED}{bars}\n{READY}{access}{death}".encode())

    assert found.failure_class == "illegal_memory_access"
    assert found.line_number == 30_009
