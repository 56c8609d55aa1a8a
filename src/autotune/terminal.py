"""What a person sees meanwhile (stderr) and at the end (stdout); and events for programs (JSONL)."""

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autotune.exporters.report import verdict
from autotune.exporters.text import change, interval, number, settings
from autotune.exporters.trials_csv import mean_metric
from autotune.model.outcome import Failed, Measured, Rejected, Verdict
from autotune.model.results import Member, Results
from autotune.protocols import Clock, Progress

MOST_POSSIBLE = 5
"""Rows of configurations that are within the noise of the front."""


@dataclass(slots=True)
class Fanout:
    """Passes every event on to several listeners."""

    listeners: Sequence[Progress]

    def emit(self, event: str, **fields: Any) -> None:
        for listener in self.listeners:
            listener.emit(event, **fields)


@dataclass(slots=True)
class EventLog:
    """Writes one JSON object an event, each line flushed, for programs that look on."""

    stream: TextIO
    clock: Clock

    def emit(self, event: str, **fields: Any) -> None:
        line = {"schema_version": 1, "event": event, "at": round(self.clock.wall(), 3), **fields}
        self.stream.write(json.dumps(line, default=str) + "\n")
        self.stream.flush()


@dataclass(slots=True)
class State:
    """What is known of the study from its events."""

    study: str = ""
    folder: str = ""
    wanted: int = 0
    done: int = 0
    objectives: list[str] = field(default_factory=list)
    units: dict[str, str] = field(default_factory=dict)
    directions: dict[str, str] = field(default_factory=dict)
    best: dict[str, tuple[float, int]] = field(default_factory=dict)
    troubles: Counter[str] = field(default_factory=Counter)
    trial: int | None = None
    config: str = ""
    phase: str = ""
    note: str = ""
    began: float = 0.0
    trial_began: float = 0.0

    def take(self, event: str, fields: dict[str, Any], now: float) -> None:
        handler = _HANDLERS.get(event)
        if handler is not None:
            handler(self, fields, now)

    def started(self, fields: dict[str, Any], now: float) -> None:
        self.study, self.folder = fields["study"], fields["folder"]
        self.wanted = fields["trials"]
        self.objectives = fields["objectives"]
        self.units, self.directions = fields["units"], fields["directions"]
        self.began = now

    def trial_started(self, fields: dict[str, Any], now: float) -> None:
        self.trial, self.trial_began = fields["trial"], now
        self.config, self.phase = settings(fields["config"]), "starting"

    def phase_changed(self, fields: dict[str, Any], now: float) -> None:
        del now
        details = [str(fields[key]) for key in ("moment", "workload") if key in fields]
        if "concurrency" in fields:
            details.append(f"{fields['concurrency']} in flight, repeat {fields['repeat'] + 1}")
        self.phase = " ".join([fields["phase"].replace("_", "-"), *details])

    def trial_ended(self, fields: dict[str, Any], now: float) -> None:
        del now
        self.done += 1
        self.trial, self.phase = None, ""
        outcome = fields["outcome"]
        if outcome == "measured" and not fields.get("violations"):
            self._compare(fields["trial"], fields.get("values", {}))
        else:
            self.troubles[fields.get("family") or _TROUBLES[outcome]] += 1

    def noted(self, fields: dict[str, Any], now: float) -> None:
        del now
        self.note = str(fields.get("what") or fields.get("reason") or fields.get("family") or "")

    def _compare(self, trial: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            known = self.best.get(name)
            sign = 1 if self.directions.get(name) == "maximize" else -1
            if known is None or sign * value > sign * known[0]:
                self.best[name] = (value, trial)


_TROUBLES = {"measured": "misses an SLO", "rejected": "gate", "interrupted": "interrupted"}
_HANDLERS: dict[str, Callable[[State, dict[str, Any], float], None]] = {
    "study_started": State.started,
    "trial_started": State.trial_started,
    "trial_known": State.trial_ended,
    "trial_ended": State.trial_ended,
    "phase": State.phase_changed,
    "starting": lambda state, fields, _: setattr(state, "phase", f"starting: {fields['phase']}"),
    "reaped": State.noted,
    "retrying": State.noted,
    "pass_repeated": State.noted,
    "exhausted": State.noted,
}


class LiveView:
    """The running study on a terminal: what runs, for how long, the best so far, what failed."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._state = State()
        self._console = console
        self._clock = clock

    def emit(self, event: str, **fields: Any) -> None:
        self._state.take(event, fields, self._clock.now())

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        with Live(
            get_renderable=self._render, console=self._console, refresh_per_second=4, transient=True
        ):
            yield

    def _render(self) -> RenderableType:
        state, now = self._state, self._clock.now()
        if not state.study:
            return Text("")
        elapsed = _duration(now - state.began)
        lines = [Text(f"{state.study}: {state.done}/{state.wanted} configurations, {elapsed}")]
        if state.trial is not None:
            since = _duration(now - state.trial_began)
            lines.append(Text(f"trial {state.trial} ({since}) {state.phase}", style="cyan"))
            lines.append(Text(f"  {state.config}", style="dim", overflow="ellipsis", no_wrap=True))
        for name, (value, trial) in state.best.items():
            unit = state.units.get(name, "")
            lines.append(
                Text(f"best {name}: {number(value)} {unit} (trial {trial})", style="green")
            )
        if state.troubles:
            counts = ", ".join(f"{n} {kind}" for kind, n in state.troubles.most_common())
            lines.append(Text(f"not usable: {counts}", style="yellow"))
        if state.note:
            lines.append(Text(state.note, style="yellow"))
        return Group(*lines)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def print_results(results: Results, console: Console, folder: Path | None = None) -> None:
    """Print the front as a table, what was not usable, and the verdict."""
    members, left_out = _worth_showing(results)
    if members:
        console.print(_front_table(results, members))
    lines = [
        *(_configuration(results, member) for member in members),
        f"{left_out} more within the noise of the front: see report.md" if left_out else "",
        f"not usable: {troubles}" if (troubles := _troubles(results)) else "",
        verdict(results),
        _files(folder),
    ]
    for line in filter(None, lines):
        console.print(line, markup=False, highlight=False)


def _files(folder: Path | None) -> str:
    names = ("report.md", "front.json", "trials.csv", "recipe.yaml", "study.db")
    found = [] if folder is None else [name for name in names if (folder / name).exists()]
    return f"{', '.join(found)} in {folder}" if found else ""


def _configuration(results: Results, member: Member) -> str:
    own, reference = results.differences(member)
    if results.is_baseline(member):
        return f"trial {member.trial.number}, the baseline: {settings(own)}"
    return f"trial {member.trial.number}: {settings(own, reference)}"


def print_verdicts(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print what the gates found: a line each, and every question that did not come out right."""
    for found in verdicts:
        passed = "passed" if found.passed else "failed"
        lines = [
            f"{found.gate}: {passed}, {found.score:.0%} of the questions ({found.threshold:.0%} due)"
        ]
        lines += [
            f"  {case.id}: {case.verdict}: {case.reason}: {case.why}"
            for case in found.cases
            if case.verdict != "pass" or case.reason
        ]
        lines += [f"  hint: {found.remedy}"] if found.remedy else []
        lines += [f"  {found.note}"] if found.note else []
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _worth_showing(results: Results) -> tuple[list[Member], int]:
    """Choose the front, the best of what is within its noise, and the baseline."""
    front = [member for member in results.members if member.standing == "front"]
    possible = [member for member in results.members if member.standing == "possible"]
    shown = [*front, *possible[:MOST_POSSIBLE]]
    if results.baseline is not None and not any(map(results.is_baseline, shown)):
        shown.append(results.baseline)
    return shown, max(len(possible) - MOST_POSSIBLE, 0)


def _front_table(results: Results, members: Sequence[Member]) -> Table:
    table = Table(title=f"Pareto front of {results.study}", title_justify="left")
    table.add_column("trial", justify="right")
    table.add_column("class")
    for objective in results.space.objectives:
        table.add_column(f"{objective.name} ({objective.unit})", justify="right")
        table.add_column("vs baseline", justify="right")
    table.add_column("acceptance", justify="right")
    for member in members:
        table.add_row(*_cells(results, member))
    return table


def _cells(results: Results, member: Member) -> list[Text]:
    outcome = member.trial.outcome
    measurement = outcome.measurement if isinstance(outcome, Measured) else None
    acceptance = mean_metric(results, measurement, "acceptance_rate")
    baseline = results.is_baseline(member)
    cells = [str(member.trial.number), f"{member.standing}{' (baseline)' if baseline else ''}"]
    for objective in results.space.objectives:
        cells += [
            interval(member.estimates[objective.name]),
            "" if baseline else change(results.ratio(member, objective.name)),
        ]
    cells.append("-" if acceptance is None else f"{acceptance:.0%}")
    return [Text(cell) for cell in cells]


def _troubles(results: Results) -> str:
    counts: Counter[str] = Counter()
    for trial in results.trials:
        match trial.outcome:
            case Failed() as failed:
                counts[failed.family] += 1
            case Rejected() as rejected:
                counts[f"gate {rejected.verdict.gate}"] += 1
            case Measured() as measured if measured.violations:
                counts["misses an SLO"] += 1
            case _:
                pass
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
