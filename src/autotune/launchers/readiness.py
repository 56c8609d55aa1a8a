"""Waits until a server is ready, or knows why it never will be.

Ready means: the process lives, `/health` is 200, our served name is in `/v1/models`, the listening
socket belongs to a process that we started, and one real question was answered. `/health` alone is
green for an engine that dies on its first request.
"""

from dataclasses import dataclass, field
from pathlib import Path

from autotune.diagnosis import diagnose, message_of, progress
from autotune.errors import LaunchError
from autotune.protocols import Clock, Progress
from autotune.system.files import read_tail
from autotune.system.openai_client import probe_chat, probe_health, probe_models
from autotune.system.processes import Child

HEALTHY = 200
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A server that is coming up, and what is known about it."""

    child: Child
    base_url: str
    port: int
    served_model: str
    log: Path
    api_key: str | None = field(default=None, repr=False)


def wait_until_ready(
    server: Awaited, *, timeout_s: float, clock: Clock, report: Progress
) -> dict[str, object]:
    """Wait; return the server's entry in `/v1/models`.

    Raises:
        LaunchError: It ended, it did not answer, or something else answers on its port.
    """
    deadline = clock.now() + timeout_s
    pause = FIRST_PAUSE_S
    follow = _LogFollower(server.log, report)
    while True:
        exit_code = server.child.exit_code()
        if exit_code is not None:
            raise explain_exit(server.log, exit_code)
        if probe_health(server.base_url) == HEALTHY:
            return _identify(server)
        if clock.now() > deadline:
            raise _too_late(server.log, timeout_s)
        follow()
        clock.sleep(pause)
        pause = min(pause * 1.1, LONGEST_PAUSE_S)


def _identify(server: Awaited) -> dict[str, object]:
    """Make sure that the one who answers is ours, then ask it something real."""
    if not server.child.listens_on(server.port):
        raise LaunchError(
            f"port {server.port} is answered by a process that this trial did not start",
            family="port_in_use",
            hint="Stop the other server, or leave `server.port` out so that a free one is taken.",
        )
    models = probe_models(server.base_url, server.api_key) or ()
    entry = next((model for model in models if model.get("id") == server.served_model), None)
    if entry is None:
        names = [str(model.get("id")) for model in models]
        raise LaunchError(
            f"the server on port {server.port} serves {names}, not {server.served_model!r}",
            family="port_in_use",
            hint="Another server answers on this port.",
        )
    reply = probe_chat(server.base_url, server.served_model, server.api_key)
    if reply.status != HEALTHY or reply.problem is not None:
        raise _no_answer(server, reply.problem or f"HTTP {reply.status}")
    return dict(entry)


def _no_answer(server: Awaited, problem: str) -> LaunchError:
    """Explain a failed first question: the log knows more than the HTTP answer."""
    found = diagnose(read_tail(server.log), exit_code=server.child.exit_code())
    if found.outcome != "failed" or found.line is None:
        return LaunchError(
            f"the first request was not answered: {problem}",
            family=found.family or "engine_died",
            hint=found.remedy or f"Its log: {server.log}",
        )
    return LaunchError(
        message_of(found.line),
        family=found.family or "engine_died",
        hint=found.remedy,
        line=found.line,
    )


def explain_exit(log: Path, exit_code: int) -> LaunchError:
    """Turn an exit before readiness into its reason. Exit code 0 is no success here either."""
    found = diagnose(read_tail(log), exit_code=exit_code)
    if found.outcome == "failed":
        message = message_of(found.line or f"the server ended with exit code {exit_code}")
        family = found.family or "unknown"
        return LaunchError(message, family=family, hint=found.remedy, line=found.line)
    return LaunchError(
        f"the server ended with exit code {exit_code} before it was ready",
        family="engine_died",
        hint=f"Its log does not say why: {log}",
    )


def _too_late(log: Path, timeout_s: float) -> LaunchError:
    return LaunchError(
        f"not ready after {timeout_s:g} s",
        family="hang",
        hint=f"Raise `server.startup_timeout_s` if it was still loading; its log: {log}",
    )


class _LogFollower:
    """Reads what is new in the log and reports the phase that it shows."""

    def __init__(self, log: Path, report: Progress) -> None:
        self._log = log
        self._report = report
        self._offset = 0
        self._phase: str | None = None

    def __call__(self) -> None:
        try:
            with self._log.open("rb") as file:
                file.seek(self._offset)
                fresh = file.read(256_000)
        except OSError:
            return
        self._offset += len(fresh)
        for line in fresh.decode(errors="replace").replace("\r", "\n").splitlines():
            phase = progress(line)
            if phase is not None and phase != self._phase:
                self._phase = phase
                self._report.emit("starting", phase=phase)
