"""A simulated vLLM: a real HTTP server process whose time comes from a performance model."""

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.launchers import intents
from autotune.launchers.local import LOOPBACK
from autotune.launchers.served import Launch, Ready, served
from autotune.model.host import RunningServer
from autotune.model.serving_config import ServingConfig
from autotune.protocols import Clock, Progress
from autotune.system.clock import SystemClock
from autotune.system.openai_client import get_json


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLauncher:
    """Runs the simulator as a child, exactly as a real server would be run.

    hardware: profile of the performance model
    time_scale: seconds of simulated serving in one real second; startup_scale: the same while the
    server comes up
    seed: of its noise; switches: trouble on demand (see `python -m autotune.simulator --help`)
    """

    hardware: str = "dgx-spark"
    time_scale: float = 1.0
    startup_scale: float = 1.0
    seed: int = 0
    switches: Mapping[str, Any] = field(default_factory=dict)
    port: int | None = None
    startup_timeout_s: float = 120.0
    stop_grace_s: float = 5.0
    clock: Clock = field(default_factory=SystemClock)

    def command(self, config: ServingConfig) -> tuple[str, ...]:
        options = (
            *("--hardware", self.hardware),
            *("--time-scale", f"{self.time_scale:g}"),
            *("--startup-scale", f"{self.startup_scale:g}"),
            *("--seed", str(self.seed)),
            *(("--switches", json.dumps(self.switches)) if self.switches else ()),
        )
        return (sys.executable, "-m", "autotune.simulator", *options, "--", *config.argv())

    @contextlib.contextmanager
    def launch(
        self, config: ServingConfig, *, folder: Path, progress: Progress
    ) -> Iterator[RunningServer]:
        launch = Launch(
            argv=(*self.command(config), *LOOPBACK),
            environment=config.environment(),
            folder=folder,
            port=self.port,
            startup_timeout_s=self.startup_timeout_s,
            stop_grace_s=self.stop_grace_s,
        )
        with served(launch, clock=self.clock, report=progress) as ready:
            yield self._describe(ready)

    def reap(self, folder: Path) -> str | None:
        return intents.reap(folder)

    def _describe(self, ready: Ready) -> RunningServer:
        simulation = get_json(f"{ready.base_url}/simulation") or {}
        length = ready.entry.get("max_model_len")
        return RunningServer(
            base_url=ready.base_url,
            served_model=ready.served_model,
            log=str(ready.log),
            startup_s=float(simulation.get("startup_s", ready.startup_s)),
            time_scale=self.time_scale,
            max_model_len=length if isinstance(length, int) else None,
            exit_code=ready.child.exit_code,
        )
