"""A bench whose servers are imaginary: each configuration does what a function says."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.errors import LaunchError
from autotune.model.host import HostFacts, RunningServer
from autotune.model.knob import Knob, Value
from autotune.model.measurement import CLIENT_BOTTLENECK, LevelRun
from autotune.model.objective import Objective, Quantity, Rule
from autotune.model.outcome import CaseResult, Verdict
from autotune.model.search_space import Part, SearchSpace, ServerSettings, WorkloadSpec
from autotune.model.serving_config import ServingConfig
from autotune.tuning.trial import Bench

HOST = HostFacts(hostname="here", machine="x86_64", cpu_count=2, memory_gib=8.0)


def make_space(**changes: Any) -> SearchSpace:
    quantity: dict[str, Any] = {"workload": "agent", "concurrency": 8}
    defaults: dict[str, Any] = {
        "name": "fake",
        "model": "some/model",
        "server": ServerSettings(launcher=Part(kind="simulated")),
        "knobs": (
            Knob(name="max_num_seqs", values=(4, 8, 16, 32), kind="log"),
            Knob(name="moe_backend", values=("marlin", "cutlass", "triton"), kind="categorical"),
            Knob(name="max_num_batched_tokens", values=(8, 2048, 8192), kind="log"),
        ),
        "baseline": {"max_num_seqs": 4, "moe_backend": "marlin", "max_num_batched_tokens": 2048},
        "workloads": (
            WorkloadSpec(
                name="agent", input_tokens=10, output_tokens=5, concurrency=(8,), requests=(16,)
            ),
        ),
        "objectives": (
            Objective(
                name="output_tok_s",
                quantity=Quantity(metric="output_tok_s", **quantity),
                direction="maximize",
            ),
            Objective(
                name="ttft_ms.p50",
                quantity=Quantity(metric="ttft_ms.p50", **quantity),
                direction="minimize",
            ),
        ),
        "rules": (Rule(left="max_num_batched_tokens", operator=">=", right="max_num_seqs"),),
    }
    return SearchSpace(**{**defaults, **changes})


@dataclass
class FakeClock:
    time: float = 1000.0

    def now(self) -> float:
        self.time += 0.001
        return self.time

    def wall(self) -> float:
        return self.now()

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclass
class Recorder:
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def emit(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def named(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == event]


@dataclass
class World:
    """What the imaginary servers do.

    fails: family of the start's failure; speed: tok/s and TTFT in ms; broken: fails its gate
    """

    fails: Callable[[Mapping[str, Any]], str | None] = lambda config: None
    speed: Callable[[Mapping[str, Any]], tuple[float, float]] = lambda config: (100.0, 50.0)
    broken: Callable[[Mapping[str, Any]], bool] = lambda config: False
    launched: list[dict[str, Any]] = field(default_factory=list)
    running: int = 0
    interrupt_at: int | None = None
    lagging_passes: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class FakeLauncher:
    world: World

    def command(self, config: ServingConfig) -> tuple[str, ...]:
        return ("vllm", "serve", *config.argv())

    @contextlib.contextmanager
    def launch(
        self, config: ServingConfig, *, folder: Path, progress: Any
    ) -> Iterator[RunningServer]:
        del progress
        world = self.world
        world.launched.append(dict(config.settings))
        if world.interrupt_at == len(world.launched):
            raise KeyboardInterrupt
        (folder / "server.log").write_text("INFO:     Application startup complete.\n")
        family = world.fails(config.settings)
        if family is not None:
            raise LaunchError(f"it is {family}", family=family, hint="do something else")
        world.config = config.settings
        world.running += 1
        try:
            yield RunningServer(
                base_url="http://127.0.0.1:9",
                served_model="m",
                log=str(folder / "server.log"),
                startup_s=10.0,
            )
        finally:
            world.running -= 1

    def reap(self, folder: Path) -> str | None:
        del folder
        return None


@dataclass
class FakeGate:
    world: World
    name: str = "json_schema"

    strict_cold: bool = False
    moments: frozenset[str] = frozenset(("cold", "warm", "load", "after"))

    async def check(self, client: Any, *, moment: str, reference: Any = None) -> Verdict:
        del client, reference
        bad = self.world.broken(self.world.config)
        case = CaseResult(
            id="one", verdict="fail" if bad else "pass", why="it is garbled" if bad else ""
        )
        return Verdict(
            gate=self.name,
            moment=moment,
            passed=not bad,
            score=0.0 if bad else 1.0,
            threshold=1.0,
            cases=(case,),
        )


@dataclass
class FakeWorkload:
    world: World
    name: str = "agent"
    levels: tuple[int, ...] = (8,)

    async def warm_up(self, server: RunningServer) -> list[LevelRun]:
        del server
        return []

    @contextlib.asynccontextmanager
    async def pressed(self, server: RunningServer) -> Any:
        del server
        yield

    async def run(self, server: RunningServer, *, concurrency: int, repeat: int) -> LevelRun:
        del server
        problem = None
        if self.world.lagging_passes > 0:
            self.world.lagging_passes -= 1
            problem = f"{CLIENT_BOTTLENECK}: its event loop was late"
        tok_s, ttft = self.world.speed(self.world.config)
        wobble = 1.0 + 0.004 * (repeat - 1)
        return LevelRun(
            workload=self.name,
            concurrency=concurrency,
            repeat=repeat,
            requests=(),
            metrics={"output_tok_s": tok_s * wobble, "ttft_ms.p50": ttft / wobble},
            window_s=1.0,
            problem=problem,
        )


@contextlib.asynccontextmanager
async def no_client(server: RunningServer) -> Any:
    del server
    yield None


def make_bench(world: World, space: SearchSpace | None = None, **changes: Any) -> Bench:
    return Bench(
        **{
            "space": space or make_space(),
            "launcher": FakeLauncher(world),
            "connect": no_client,
            "gates": (FakeGate(world),),
            "workloads": (FakeWorkload(world),),
            "clock": FakeClock(),
            "progress": Recorder(),
            **changes,
        }
    )


def varied_speed(config: Mapping[str, Value]) -> tuple[float, float]:
    """More slots are faster and slower to the first token; one backend is better."""
    slots = config["max_num_seqs"]
    assert isinstance(slots, int)
    factor = 1.2 if config["moe_backend"] == "cutlass" else 1.0
    return 50.0 * slots**0.6 * factor, 400.0 / slots + 10 * slots**0.5
