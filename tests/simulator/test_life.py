"""How the process comes up, misbehaves on demand, and goes."""

import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from autotune.system.processes import free_port
from tests.simulator.process import command, ended, events, simulated


def ask(running, **body):
    return running.client.post(
        "/v1/completions", json={"model": "m", "prompt": [1, 2, 3], "max_tokens": 4, **body}
    )


def test_a_start_takes_about_255_s_and_less_once_its_graphs_are_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    seconds = []
    log = ""
    for _ in range(2):
        with simulated("--max-num-seqs", "32", "--max-num-batched-tokens", "8192") as running:
            seconds.append(running.client.get("/simulation").json()["startup_s"])
            log = running.text()

    assert 240 < seconds[0] < 270
    assert seconds[1] < seconds[0] - 50
    assert "Directly load the compiled graph(s) for compile range (1, 8192) from the cache" in log


def test_a_taken_port_is_noticed():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        done = subprocess.run(
            command(port=holder.getsockname()[1]), capture_output=True, text=True, check=False
        )

    assert done.returncode == 1
    assert "OSError: [Errno 98] Address already in use" in done.stderr


def test_sigterm_ends_it_with_code_0_even_while_a_stream_is_open():
    with (
        simulated() as running,
        running.client.stream(
            "POST",
            "/v1/completions",
            json={
                "model": "m",
                "prompt": "a",
                "max_tokens": 200_000,
                "ignore_eos": True,
                "stream": True,
            },
        ) as response,
    ):
        next(response.iter_text())
        running.process.send_signal(signal.SIGTERM)

        assert running.process.wait(timeout=30) == 0


def test_it_can_ignore_sigterm_and_hang_while_it_looks_healthy():
    with simulated(switches={"ignores_term": True, "hang_at_request": 2}) as running:
        assert ask(running).status_code == 200
        with pytest.raises(httpx.ReadTimeout):
            running.client.post("/v1/completions", json={"model": "m", "prompt": "a"}, timeout=0.3)
        running.process.send_signal(signal.SIGTERM)

        assert running.client.get("/health").status_code == 200
        assert running.process.poll() is None


def test_it_can_stay_away_for_ever():
    process = subprocess.Popen(
        command(port=free_port(), switches={"never_ready": True}),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "Model loading took" in line:
            break
    time.sleep(0.05)

    assert process.poll() is None

    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
    process.stdout.close()


def test_a_start_can_fail_for_a_setting_or_by_chance():
    code, text = ended("--max-num-seqs", "8", switches={"fails_to_start": {"max_num_seqs": 8}})
    assert code == 1
    assert "RuntimeError: CUDA error: an illegal memory access was encountered" in text
    assert "Engine core initialization failed. See root cause above." in text

    code, text = ended(switches={"flaky_start": 1.0})
    assert code == 1
    assert "AssertionError: Error in memory profiling. Initial free memory" in text


def test_a_dead_engine_is_unhealthy_for_a_moment_and_ends_open_streams_with_done():
    body = {"model": "m", "prompt": "a", "max_tokens": 200_000, "ignore_eos": True, "stream": True}
    with simulated(switches={"dies_at_request": 2}) as running:
        with running.client.stream("POST", "/v1/completions", json=body) as response:
            chunks = response.iter_text()
            seen = next(chunks)
            with httpx.Client(base_url=running.client.base_url, trust_env=False) as other:
                failed = other.post("/v1/completions", json={"model": "m", "prompt": "b"})
                health = other.get("/health").status_code
            seen += "".join(chunks)
        code = running.process.wait(timeout=30)
        log = running.text()

    assert (failed.status_code, health, response.status_code, code) == (500, 503, 200, 0)
    assert '"error":{"message":"EngineCore encountered an issue.' in seen
    assert seen.rstrip().endswith("data: [DONE]")
    assert "EngineCore encountered a fatal error." in log


def test_a_key_is_asked_for_and_never_told():
    with simulated("--api-key", "secret-of-ours") as running:
        assert running.client.get("/health").status_code == 200
        refused = running.client.get("/v1/models")
        told = running.client.get("/simulation").text
        allowed = running.client.get(
            "/v1/models", headers={"Authorization": "Bearer secret-of-ours"}
        )
        log = running.text()

    assert (refused.status_code, refused.json()) == (401, {"error": "Unauthorized"})
    assert allowed.status_code == 200
    assert "secret-of-ours" not in log + told


def test_a_client_that_leaves_frees_its_place():
    body = {"model": "m", "prompt": "a", "max_tokens": 200_000, "ignore_eos": True, "stream": True}
    with simulated("--max-num-seqs", "1") as running:
        with running.client.stream("POST", "/v1/completions", json=body) as response:
            next(response.iter_text())

        assert ask(running).status_code == 200
        page = running.client.get("/metrics").text

    assert 'finished_reason="abort"} 1.0' in page


def test_timings_and_usage_are_told_where_they_are_asked_for():
    flags = ("--enable-per-request-metrics", "--enable-prompt-tokens-details")
    body = {"prompt": "one two three four " * 20, "temperature": 0}
    with simulated(*flags, switches={"jit_spike": {"seconds": 3, "requests": 1}}) as running:
        first = ask(running, **body).json()
        again = events(
            ask(
                running,
                **body,
                stream=True,
                stream_options={"include_usage": True, "continuous_usage_stats": True},
            )
        )
        log = running.text()

    assert first["metrics"]["time_to_first_token_ms"] > 3000
    assert "Triton kernel JIT compilation during inference" in log
    assert [chunk["usage"]["completion_tokens"] for chunk in again] == [1, 2, 3, 4, 4]
    cached = again[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert 0 < cached < again[-1]["usage"]["prompt_tokens"]
    assert again[-1]["metrics"]["queue_time_ms"] < 1000


def test_the_help_names_the_switches():
    done = subprocess.run(
        [sys.executable, "-m", "autotune.simulator", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "--time-scale" in done.stdout
    assert '"dies_at_request"' in done.stdout


def test_the_server_imports_nothing_heavy():
    code = (
        "import sys, autotune.simulator.__main__; "
        "print({'numpy', 'scipy', 'pandas', 'optuna', 'pydantic', 'httpx', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ},
    )

    assert done.stdout.strip() == "set()"
