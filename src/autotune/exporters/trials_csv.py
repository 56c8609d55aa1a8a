"""`trials.csv`: one row a trial, for spreadsheets and pandas."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from autotune.model.measurement import Measurement
from autotune.model.objective import Quantity
from autotune.model.outcome import Failed, Interrupted, Measured, Rejected, Trial
from autotune.model.results import Member, Results

EXTRA_METRICS = ("acceptance_rate", "acceptance_length", "queue_ms.mean", "preemptions")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsCsv:
    """Configuration, outcome and objectives of every trial; knobs that had no effect are `-`."""

    filename: str = "trials.csv"

    def render(self, results: Results) -> str:
        members = {member.trial.number: member for member in results.members}
        rows = [_row(results, trial, members.get(trial.number)) for trial in results.trials]
        text: str = pd.DataFrame(rows).to_csv(index=False)
        return text


def _row(results: Results, trial: Trial, member: Member | None) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "outcome": type(trial.outcome).__name__.lower(),
        "class": None if member is None else member.standing,
        "family": trial.outcome.family if isinstance(trial.outcome, Failed) else None,
        "reason": reason(trial),
        **results.space.shown(trial.values),
        **_estimates(results, member),
        **_extras(results, trial),
        **{f"seconds.{phase}": seconds for phase, seconds in trial.seconds.items()},
    }


def reason(trial: Trial) -> str | None:
    """Say in one line why a trial is not usable; None when it is."""
    match trial.outcome:
        case Failed() as failed:
            return failed.message
        case Rejected() as rejected:
            return rejected.verdict.reason
        case Measured() as measured if measured.violations:
            return "misses " + ", ".join(measured.violations)
        case Interrupted() as interrupted:
            return interrupted.message
        case Measured():
            return None


def _estimates(results: Results, member: Member | None) -> dict[str, float | None]:
    columns: dict[str, float | None] = {}
    for objective in results.space.objectives:
        estimate = None if member is None else member.estimates[objective.name]
        columns[objective.name] = None if estimate is None else estimate.mean
        columns[f"{objective.name}.low"] = None if estimate is None else estimate.low
        columns[f"{objective.name}.high"] = None if estimate is None else estimate.high
        columns[f"{objective.name}.ratio"] = (
            None if member is None else results.ratio(member, objective.name)
        )
    return columns


def _extras(results: Results, trial: Trial) -> dict[str, float | None]:
    outcome = trial.outcome
    measurement = outcome.measurement if isinstance(outcome, Measured | Rejected) else None
    return {
        "startup_s": None if measurement is None else measurement.startup_s,
        **{name: mean_metric(results, measurement, name) for name in EXTRA_METRICS},
    }


def mean_metric(results: Results, measurement: Measurement | None, metric: str) -> float | None:
    """Average a metric at the first objective's workload and level."""
    if measurement is None:
        return None
    place = results.space.objectives[0].quantity
    quantity = Quantity(metric=metric, workload=place.workload, concurrency=place.concurrency)
    values = measurement.values(quantity)
    return sum(values) / len(values) if values else None
