"""A small search space on the simulated server, and autotune as a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SPACE = """
name: small
model: nvidia/Qwen3.6-35B-A3B-NVFP4
server:
  launcher: simulated
  time_scale: {time_scale}
  startup_scale: {startup_scale}
  seed: 3
  switches: {switches}
  args:
    max_model_len: 32768
    kv_cache_dtype: fp8
    enable_auto_tool_choice: true
    tool_call_parser: qwen3_coder
    speculative_config: {{method: mtp}}
knobs:
  speculative_config.num_speculative_tokens: {{choices: [0, 1, 2, 3]}}
  moe_backend: {{choices: [marlin, cutlass, triton]}}
  max_num_seqs: {{type: int, low: 4, high: 32, doubling: true}}
  max_num_batched_tokens: {{type: int, low: 2048, high: 16384, doubling: true}}
baseline:
  speculative_config.num_speculative_tokens: 1
workloads:
  small: {{input_tokens: 200, output_tokens: 40, concurrency: [8], requests: 24}}
repeats: 2
"""


def write_space(
    folder: Path,
    *,
    time_scale: float = 100,
    startup_scale: float = 50_000,
    switches: dict[str, Any] | None = None,
) -> Path:
    path = folder / "small.yaml"
    path.write_text(
        SPACE.format(
            time_scale=time_scale,
            startup_scale=startup_scale,
            switches=json.dumps(switches or {"breaks_tools": {"moe_backend": ["cutlass"]}}),
        )
    )
    return path


def autotune(*arguments: str, cwd: Path, seconds: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "autotune", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env=environment(),
    )


def start_autotune(*arguments: str, cwd: Path) -> "subprocess.Popen[bytes]":
    """Start it in the background; what it says on stderr is in the file of that name."""
    with (cwd / "stderr").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "autotune", *arguments],
            cwd=cwd,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            env=environment(),
        )


def environment() -> dict[str, str]:
    return {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}


def wait_for(condition: Callable[[], Any], *, seconds: float = 120.0) -> Any:
    """Wait until something is true and return it; the bound is for a broken test only."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"nothing happened within {seconds} s")


def events(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
