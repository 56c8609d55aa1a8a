"""The simulated server as a process of its own, for the length of a block."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from autotune.system.processes import free_port, port_answers

MODEL = "nvidia/Qwen3.6-35B-A3B-NVFP4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    process: "subprocess.Popen[bytes]"
    client: httpx.Client
    log: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")


def command(*flags: str, port: int, switches: dict[str, Any] | None = None) -> list[str]:
    return [
        *(sys.executable, "-m", "autotune.simulator"),
        *("--time-scale", "200", "--startup-scale", "1000000", "--seed", "5"),
        *("--switches", json.dumps({"noise": 0, **(switches or {})})),
        *("--", MODEL, "--port", str(port), "--host", "127.0.0.1", "--served-model-name", "m"),
        *flags,
    ]


@contextlib.contextmanager
def simulated(*flags: str, switches: dict[str, Any] | None = None) -> Iterator[Running]:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command(*flags, port=port, switches=switches), stdout=output, stderr=output
            )
        try:
            deadline = time.monotonic() + 60
            while not port_answers(port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.01)
            url = f"http://127.0.0.1:{port}"
            with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
                yield Running(process=process, client=client, log=log)
        finally:
            process.kill()
            process.wait()


def ended(*flags: str, switches: dict[str, Any] | None = None) -> tuple[int, str]:
    """Start a configuration that does not come up; its exit code and what it said."""
    done = subprocess.run(
        command(*flags, port=free_port(), switches=switches),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """Read the events of a stream; the last line must be [DONE]."""
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]
