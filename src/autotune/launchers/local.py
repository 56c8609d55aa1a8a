"""vLLM from this host: a `vllm` executable, or a Python that can import it."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.errors import HostError
from autotune.launchers import intents
from autotune.launchers.served import Launch, served
from autotune.model.host import RunningServer
from autotune.model.serving_config import ServingConfig
from autotune.protocols import Clock, Progress
from autotune.system.clock import SystemClock

LOOPBACK = ("--host", "127.0.0.1", "--port", "{port}", "--served-model-name", "{served_model}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLauncher:
    """Runs `vllm serve` as a child in a process group of its own, on loopback.

    executable: a `vllm` command or a Python interpreter
    port: a fixed port; by default a free one is taken for each start
    startup_timeout_s: when a start is given up; stop_grace_s: from TERM to KILL
    """

    executable: str = "vllm"
    port: int | None = None
    startup_timeout_s: float = 1800.0
    stop_grace_s: float = 30.0
    clock: Clock = field(default_factory=SystemClock)

    def command(self, config: ServingConfig) -> tuple[str, ...]:
        return (*self._program(), "serve", *config.argv())

    @contextlib.contextmanager
    def launch(
        self, config: ServingConfig, *, folder: Path, progress: Progress
    ) -> Iterator[RunningServer]:
        self._require_executable()
        launch = Launch(
            argv=(*self.command(config), *LOOPBACK),
            environment={**QUIET, **config.environment()},
            folder=folder,
            port=self.port,
            startup_timeout_s=self.startup_timeout_s,
            stop_grace_s=self.stop_grace_s,
            api_key=api_key(config),
        )
        with served(launch, clock=self.clock, report=progress) as ready:
            yield RunningServer(
                base_url=ready.base_url,
                served_model=ready.served_model,
                log=str(ready.log),
                startup_s=ready.startup_s,
                api_key=api_key(config),
                max_model_len=_length(ready.entry),
                exit_code=ready.child.exit_code,
            )

    def reap(self, folder: Path) -> str | None:
        return intents.reap(folder)

    def _program(self) -> tuple[str, ...]:
        if Path(self.executable).name.startswith("python"):
            return (self.executable, "-m", "vllm.entrypoints.cli.main")
        return (self.executable,)

    def _require_executable(self) -> None:
        if shutil.which(self.executable) is None:
            raise HostError(
                f"there is no executable {self.executable!r}",
                hint="Install vLLM in an environment of its own, then set `server.executable` to "
                "its `bin/vllm` (or activate that environment).",
            )


QUIET: Mapping[str, str] = {
    # Plain text logs: colors and the logo only stand in the way of reading them back.
    "NO_COLOR": "1",
    "VLLM_LOGGING_COLOR": "0",
    "VLLM_DISABLE_LOG_LOGO": "1",
}


def api_key(config: ServingConfig) -> str | None:
    """Find the key that the server will ask for: vLLM takes it from the environment it inherits."""
    return {**os.environ, **config.environment()}.get("VLLM_API_KEY")


def _length(entry: Mapping[str, object]) -> int | None:
    value = entry.get("max_model_len")
    return value if isinstance(value, int) else None
