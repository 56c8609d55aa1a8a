"""The seams of autotune on one page: whoever reads it knows the program."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from autotune.model.chat import ChatReply, ChatRequest
from autotune.model.host import RunningServer
from autotune.model.knob import Value
from autotune.model.measurement import LevelRun
from autotune.model.outcome import Reference, Trial, Verdict
from autotune.model.results import Results
from autotune.model.serving_config import ServingConfig


class Clock(Protocol):
    """Time, so that nothing else asks the machine for it."""

    def now(self) -> float:
        """Seconds of a clock that never goes back."""

    def wall(self) -> float:
        """Seconds since the epoch."""

    def sleep(self, seconds: float) -> None: ...


class Launcher(Protocol):
    """How vLLM comes up and goes away."""

    def launch(
        self, config: ServingConfig, *, folder: Path, progress: "Progress"
    ) -> AbstractContextManager[RunningServer]:
        """Serve the configuration: ready on entry, gone on exit. The log is `folder/server.log`.

        Raises:
            LaunchError: This configuration cannot be served.
            HostError: No configuration can be served on this host.
        """

    def reap(self, folder: Path) -> str | None:
        """Stop what an earlier, killed run left behind in this trial folder; say what it was."""

    def command(self, config: ServingConfig) -> tuple[str, ...]:
        """Name the argv that starts the configuration, host and port aside."""


class Client(Protocol):
    """A connection to one server."""

    @property
    def server(self) -> RunningServer: ...

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Ask once. Never raises for what the server does: the reply says what broke."""


class Connector(Protocol):
    """Opens a client for a running server."""

    def __call__(self, server: RunningServer) -> AbstractAsyncContextManager[Client]: ...


class Gate(Protocol):
    """A question about the answers of a configuration."""

    @property
    def name(self) -> str: ...

    @property
    def moments(self) -> frozenset[str]:
        """When it is asked: `cold`, `warm`, `load`, `after`, and `final` for what enters the front."""

    @property
    def strict_cold(self) -> bool:
        """Whether wrong answers to the first requests reject, although later ones are right."""

    async def check(
        self, client: Client, *, moment: str, reference: Reference | None = None
    ) -> Verdict:
        """Judge the server at one moment of its life.

        reference: what was found of the baseline; None where this is the baseline, or no study
        """


class Workload(Protocol):
    """A load, the same for every configuration."""

    @property
    def name(self) -> str: ...

    @property
    def levels(self) -> tuple[int, ...]:
        """Requests in flight, one level each."""

    async def warm_up(self, server: RunningServer) -> Sequence[LevelRun]:
        """Bring the server to its steady state; the passes are kept, never reported.

        Raises:
            MeasurementError: The server does not serve the load.
        """

    def pressed(self, server: RunningServer) -> AbstractAsyncContextManager[None]:
        """Keep the busiest level's requests in flight for the length of a block; nothing is measured."""

    async def run(self, server: RunningServer, *, concurrency: int, repeat: int) -> LevelRun:
        """Load the server once at one level. Fresh prompts each repeat, equal for every server.

        A pass with failed requests comes back with `problem` set and no throughput.
        """


class Exporter(Protocol):
    """One file of results."""

    @property
    def filename(self) -> str: ...

    def render(self, results: Results) -> str: ...


class Search(Protocol):
    """What to try next; owns the storage of the study."""

    def ask(self) -> tuple[int, dict[str, Value]]:
        """Open a trial: its number and a value for every knob."""

    def tell(self, trial: Trial) -> None: ...


class Progress(Protocol):
    """What a person or a program sees while the study runs."""

    def emit(self, event: str, **fields: Any) -> None: ...


class Telemetry(Protocol):
    """Readings of the device while a load runs."""

    def read(self) -> Mapping[str, float | None]: ...
