"""The life of one server process: intent, start, readiness, stop, verified gone.

Shared by the launchers that run a child of their own.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.errors import HostError, LaunchError
from autotune.launchers.intents import Intent
from autotune.launchers.readiness import Awaited, wait_until_ready
from autotune.protocols import Clock, Progress
from autotune.system import processes
from autotune.system.processes import Child

PORT_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to run. `argv` holds `{port}` and `{served_model}` as words of their own."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    port: int | None
    startup_timeout_s: float
    stop_grace_s: float
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A child that answers."""

    child: Child
    base_url: str
    served_model: str
    log: Path
    entry: Mapping[str, object]
    startup_s: float


@contextlib.contextmanager
def served(launch: Launch, *, clock: Clock, report: Progress) -> Iterator[Ready]:
    """Run a server for the length of a block.

    Raises:
        LaunchError: It did not become ready; whatever was started is gone again.
        HostError: The executable is missing or cannot be run, or the server cannot be killed.
    """
    child, intent, ready = _start_on_a_free_port(launch, clock, report)
    try:
        yield ready
    finally:
        _stop(child, intent, launch)


def _start_on_a_free_port(
    launch: Launch, clock: Clock, report: Progress
) -> tuple[Child, Intent, Ready]:
    """Start; where somebody else took the port in between, take another one."""
    for attempt in range(PORT_ATTEMPTS):
        port = launch.port or processes.free_port()
        if processes.port_answers(port):
            raise LaunchError(
                f"port {port} is already answered by another server",
                family="port_in_use",
                hint="Stop it, or leave `server.port` out so that a free one is taken.",
            )
        try:
            return _start(launch, port, clock, report)
        except LaunchError as error:
            last = launch.port is not None or attempt == PORT_ATTEMPTS - 1
            if error.family != "port_in_use" or last:
                raise
    raise AssertionError("unreachable")  # pragma: no cover


def _start(
    launch: Launch, port: int, clock: Clock, report: Progress
) -> tuple[Child, Intent, Ready]:
    intent = Intent.declare(launch.folder, port=port, argv=launch.argv)
    served_model = f"autotune-{intent.token[:12]}"
    words = {"{port}": str(port), "{served_model}": served_model}
    argv = tuple(words.get(word, word) for word in launch.argv)
    log = launch.folder / "server.log"
    began = clock.now()
    _set_aside(log)
    try:
        child = processes.start(argv, token=intent.token, log=log, environment=launch.environment)
    except OSError as error:
        intent.ended(None)
        raise HostError(
            f"{argv[0]}: cannot be started: {error.strerror or error}",
            hint="Install vLLM, or set `server.executable` to its `vllm` command or its Python.",
        ) from error
    try:
        intent.started(child, argv)
        awaited = Awaited(
            child=child,
            base_url=f"http://127.0.0.1:{port}",
            port=port,
            served_model=served_model,
            log=log,
            api_key=launch.api_key,
        )
        entry = wait_until_ready(
            awaited, timeout_s=launch.startup_timeout_s, clock=clock, report=report
        )
    except BaseException:
        # Somebody else may be on the port: that is then why it did not start.
        child.stop(grace_s=launch.stop_grace_s)
        intent.ended(child.exit_code())
        raise
    ready = Ready(
        child=child,
        base_url=awaited.base_url,
        served_model=served_model,
        log=log,
        entry=entry,
        startup_s=clock.now() - began,
    )
    return child, intent, ready


def _set_aside(log: Path) -> None:
    """Keep an earlier start's log apart, so that its last words do not explain this one."""
    if log.exists():
        earlier = len(list(log.parent.glob("server.earlier-*.log")))
        log.replace(log.with_name(f"server.earlier-{earlier}.log"))


def _stop(child: Child, intent: Intent, launch: Launch) -> None:
    child.stop(grace_s=launch.stop_grace_s)
    if processes.port_answers(intent.port):
        raise HostError(
            f"port {intent.port} still answers although the server of this trial is gone",
            hint="Another process listens there; stop it before the study goes on.",
        )
    intent.ended(child.exit_code())
