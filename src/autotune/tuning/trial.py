"""One trial: serve a configuration, ask whether it still answers right, then time it."""

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import uvloop

from autotune.diagnosis import diagnose, message_of, unheeded
from autotune.errors import HostError, MeasurementError, ServerExitedError, TrialError
from autotune.model.diagnosis import FAMILIES
from autotune.model.host import RunningServer
from autotune.model.knob import Value
from autotune.model.measurement import (
    CLIENT_BOTTLENECK,
    LevelRun,
    Measurement,
    geometric_mean,
)
from autotune.model.outcome import (
    Failed,
    Measured,
    Outcome,
    Reference,
    Rejected,
    Trial,
    Verdict,
)
from autotune.model.search_space import SearchSpace
from autotune.protocols import Clock, Connector, Gate, Launcher, Progress, Workload
from autotune.system.files import read_tail
from autotune.system.openai_client import probe_health
from autotune.tuning.finalists import is_finalist
from autotune.tuning.interview import Interview

PASS_ATTEMPTS = 3
OTHER_PROMPTS = 1000
CLIENT_HINT = (
    "Something else used this host's processors in three passes: stop it, or leave the load client a "
    "core of its own (fewer threads for the server)."
)
DYING_S = 5.0
"""A server whose engine died answers 503 for a few seconds before its process ends."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything a trial needs but the configuration.

    reference: what the gates found of the baseline; None until that is known
    rivals: what is measured already, and may be on the front
    """

    space: SearchSpace
    launcher: Launcher
    connect: Connector
    gates: tuple[Gate, ...]
    workloads: tuple[Workload, ...]
    clock: Clock
    progress: Progress
    reference: Reference | None = None
    rivals: tuple[Measurement, ...] = ()


@dataclass(slots=True)
class Stopwatch:
    """Seconds by phase, of the clock on the wall."""

    clock: Clock
    seconds: dict[str, float] = field(default_factory=dict)
    _phase: str = ""
    _since: float = 0.0

    def enter(self, phase: str) -> None:
        now = self.clock.now()
        if self._phase:
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = phase, now


def run_trial(number: int, values: Mapping[str, Value], bench: Bench, folder: Path) -> Trial:
    """Try one configuration; a failure that is not its fault is tried once more.

    Raises:
        HostError: No configuration can be served on this host.
        KeyboardInterrupt: Somebody stopped it; the server is gone.
    """
    trial = _attempt(number, values, bench, folder)
    if isinstance(trial.outcome, Failed) and FAMILIES[trial.outcome.family].retry:
        bench.progress.emit("retrying", trial=number, family=trial.outcome.family)
        _keep_log(folder)
        trial = _attempt(number, values, bench, folder)
    return trial


def _keep_log(folder: Path) -> None:
    log = folder / "server.log"
    if log.exists():
        log.replace(folder / "server.first-attempt.log")


def _attempt(number: int, values: Mapping[str, Value], bench: Bench, folder: Path) -> Trial:
    config = bench.space.config(values)
    watch = Stopwatch(bench.clock)
    began = bench.clock.wall()
    watch.enter("start")
    try:
        with bench.launcher.launch(config, folder=folder, progress=bench.progress) as server:
            outcome = _run(_examine(server, values, bench, watch, folder))
            watch.enter("stop")
    except TrialError as error:
        outcome = _failure(error, folder)
    watch.enter("")
    return Trial(
        number=number,
        values=dict(values),
        outcome=outcome,
        argv=bench.launcher.command(config),
        environment=config.shown_environment(),
        started_at=began,
        ended_at=bench.clock.wall(),
        seconds={phase: round(seconds, 4) for phase, seconds in watch.seconds.items()},
    )


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run one trial's whole asynchronous part: one event loop, so that no HTTP pool outlives it."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_interruptible(work))


async def _interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Let a Ctrl-C win over whatever failure came of it or beside it."""
    try:
        return await work
    except TrialError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from None
        raise


def _failure(error: TrialError, folder: Path) -> Failed:
    log = folder / "server.log"
    family = error.family if error.family in FAMILIES else "unknown"
    return Failed(
        family=family,
        message=error.message,
        line=error.line or error.message,
        remedy=error.hint,
        log=str(log) if log.exists() else None,
        facts=diagnose(read_tail(log)).facts if log.exists() else None,
    )


async def _examine(
    server: RunningServer,
    values: Mapping[str, Value],
    bench: Bench,
    watch: Stopwatch,
    folder: Path,
) -> Outcome:
    examination = _Examination(server=server, bench=bench, watch=watch, folder=folder)
    outcome = await examination.outcome()
    if isinstance(outcome, Measured):
        asked = bench.space.config(values).settings
        warnings = (*unheeded(asked, outcome.facts), *outcome.warnings)
        return replace(outcome, warnings=tuple(dict.fromkeys(warnings)))
    return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examination:
    """What happens between ready and stop."""

    server: RunningServer
    bench: Bench
    watch: Stopwatch
    folder: Path

    async def outcome(self) -> Outcome:
        facts = diagnose(read_tail(Path(self.server.log))).facts
        interview = self._interview()
        rejecting, measurement = await self._question_and_measure(interview)
        if rejecting is not None:
            return Rejected(
                verdict=rejecting,
                facts=facts,
                verdicts=tuple(interview.verdicts),
                measurement=measurement,
            )
        if measurement is None:
            raise AssertionError("unreachable")  # pragma: no cover
        warnings = tuple(warning for run in measurement.runs for warning in run.warnings)
        return Measured(
            measurement=measurement,
            facts=facts,
            verdicts=tuple(interview.verdicts),
            violations=violations(self.bench.space, measurement),
            warnings=(*interview.notes(), *warnings),
        )

    def _interview(self) -> Interview:
        bench = self.bench
        return Interview(
            server=self.server,
            gates=bench.gates,
            workloads=bench.workloads,
            connect=bench.connect,
            reference=bench.reference,
            enter=lambda moment: self._enter("gates", moment=moment),
            require_alive=self._require_alive,
        )

    async def _question_and_measure(
        self, interview: Interview
    ) -> tuple[Verdict | None, Measurement | None]:
        rejecting = await interview.ask("cold")
        if rejecting is not None:
            return rejecting, None
        for workload in self.bench.workloads[:1]:
            await self._warm_up(workload)
        rejecting = await interview.ask("warm")
        if rejecting is not None:
            return rejecting, None
        measurement = await self._measure()
        rejecting = await interview.ask_under_load() or await interview.ask("after")
        if rejecting is None and self._enters_the_front(measurement):
            rejecting = await interview.ask("final")
        return rejecting, measurement

    def _enters_the_front(self, measurement: Measurement) -> bool:
        space = self.bench.space
        return not violations(space, measurement) and is_finalist(
            measurement, self.bench.rivals, space.objectives
        )

    async def _warm_up(self, workload: Workload) -> None:
        self._enter("warm_up", workload=workload.name)
        await self._guarded(workload.warm_up(self.server))

    async def _measure(self) -> Measurement:
        runs: list[LevelRun] = []
        for number, workload in enumerate(self.bench.workloads):
            if number:
                await self._warm_up(workload)
            for repeat in range(self.bench.space.repeats):
                for concurrency in workload.levels:
                    self._enter(
                        "measure", workload=workload.name, concurrency=concurrency, repeat=repeat
                    )
                    runs.append(await self._pass(workload, concurrency, repeat))
        return Measurement(startup_s=self.server.startup_s, runs=tuple(runs))

    async def _pass(self, workload: Workload, concurrency: int, repeat: int) -> LevelRun:
        """Load the server once; a pass that the client spoiled is no news of the server: once more."""
        for attempt in range(PASS_ATTEMPTS):
            # Other prompts than the spoiled pass had: the prefix cache knows those.
            fresh = repeat + attempt * OTHER_PROMPTS
            run: LevelRun = await self._guarded(
                workload.run(self.server, concurrency=concurrency, repeat=fresh)
            )
            if run.problem is None:
                return replace(run, repeat=repeat)
            if not run.client_was_the_bottleneck or attempt == PASS_ATTEMPTS - 1:
                self._explain(run.problem)
            self.bench.progress.emit("pass_repeated", reason=run.problem)
        raise AssertionError("unreachable")  # pragma: no cover

    async def _guarded(self, work: Awaitable[T]) -> T:
        """Let a load that breaks be explained by the server's log, which knows more."""
        try:
            return await work
        except MeasurementError as error:
            self._explain(error.message)

    def _enter(self, phase: str, **fields: Any) -> None:
        self.watch.enter(phase)
        self.bench.progress.emit("phase", phase=phase, **fields)

    def _require_alive(self, *, doubtful: bool = False) -> None:
        """Raise what became of a server that died: its requests failed, its answers were not wrong."""
        exit_code = self._exit_code_of_the_dying() if doubtful else self.server.exit_code()
        if exit_code is not None:
            self._explain("the server ended")

    def _explain(self, problem: str) -> NoReturn:
        """Raise what really happened when a load broke."""
        exit_code = self._exit_code_of_the_dying()
        found = diagnose(read_tail(Path(self.server.log)), exit_code=exit_code)
        if found.outcome == "failed" and found.family is not None:
            raise ServerExitedError(
                message_of(found.line or problem),
                exit_code=exit_code,
                family=found.family,
                hint=found.remedy,
                line=found.line,
            )
        if exit_code is not None:
            raise ServerExitedError(
                f"the server ended with exit code {exit_code} under load ({problem})",
                exit_code=exit_code,
            )
        family = "hang" if "hang: " in problem else "unknown"
        hint = CLIENT_HINT if problem.startswith(CLIENT_BOTTLENECK) else None
        raise MeasurementError(problem, family=family, hint=hint)

    def _exit_code_of_the_dying(self) -> int | None:
        """Give a server that is going down the moment it needs to end."""
        clock = self.bench.clock
        deadline = clock.now() + DYING_S
        while self.server.exit_code() is None and clock.now() < deadline:
            if probe_health(self.server.base_url) == HEALTHY:
                return None
            clock.sleep(0.05)
        return self.server.exit_code()


HEALTHY = 200


def violations(space: SearchSpace, measurement: Measurement) -> dict[str, float]:
    """Name the SLO constraints that a measurement misses, each with its excess.

    A quantity that is not known (too few requests for its percentile) counts as missed: nobody can
    say that it holds.
    """
    missed: dict[str, float] = {}
    for constraint in space.constraints:
        values = measurement.values(constraint.quantity)
        excess = constraint.excess(geometric_mean(values)) if values else 1.0
        if excess > 0:
            missed[constraint.label] = excess
    return missed


def host_trouble(trial: Trial) -> HostError | None:
    """Say why no further trial can succeed, where the failure is not the configuration's."""
    if not isinstance(trial.outcome, Failed):
        return None
    family = FAMILIES[trial.outcome.family]
    if family.infeasible and not family.stops_study:
        return None
    hint = trial.outcome.remedy or family.meaning
    return HostError(f"trial {trial.number}: {trial.outcome.message}", hint=hint)
