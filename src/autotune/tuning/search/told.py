"""How an outcome is told to Optuna: the only place that decides it.

Failed, rejected and SLO-missing configurations end PRUNED with their constraints set. FAIL would be
ignored by every sampler, which then walks back into the crash; COMPLETE would put them on the front
of a dashboard that does not know constraints. FAIL is for an interruption, which says nothing.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

from optuna.trial import TrialState

from autotune.model.measurement import geometric_mean
from autotune.model.objective import Objective
from autotune.model.outcome import Failed, Interrupted, Measured, Rejected, Trial
from autotune.model.search_space import SearchSpace
from autotune.tuning.records import as_json

RECORD_ATTRIBUTE = "record"
GOOD, BAD = -1.0, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The end of a trial in Optuna's terms. Constraints keep their order: samplers match by it."""

    state: TrialState
    values: tuple[float, ...] | None
    constraints: dict[str, float]
    attributes: dict[str, Any]


def told(trial: Trial, space: SearchSpace) -> Told:
    values = objective_values(trial, space.objectives)
    match trial.outcome:
        case Interrupted():
            state, numbers = TrialState.FAIL, None
        case Measured() if values is not None and not trial.outcome.violations:
            state, numbers = TrialState.COMPLETE, values
        case _:
            state, numbers = TrialState.PRUNED, None
    return Told(
        state=state,
        values=numbers,
        constraints=_constraints(trial, values),
        attributes=_attributes(trial, space, values),
    )


def objective_values(trial: Trial, objectives: tuple[Objective, ...]) -> tuple[float, ...] | None:
    """Average the objectives over the repeats; None unless all are known and finite."""
    outcome = trial.outcome
    if not isinstance(outcome, Measured):
        return None
    samples = [outcome.measurement.values(objective.quantity) for objective in objectives]
    if not all(samples):
        return None
    means = tuple(geometric_mean(values) for values in samples)
    return means if all(math.isfinite(mean) for mean in means) else None


def _constraints(trial: Trial, values: tuple[float, ...] | None) -> dict[str, float]:
    """Set all of them on every trial: one without constraints would count as feasible."""
    outcome = trial.outcome
    unknown_numbers = isinstance(outcome, Measured) and values is None
    startup = BAD if isinstance(outcome, Failed) or unknown_numbers else GOOD
    quality = GOOD
    if isinstance(outcome, Rejected):
        quality = max(1.0 - outcome.verdict.score, 0.01)
    slo = max(outcome.violations.values(), default=GOOD) if isinstance(outcome, Measured) else GOOD
    return {"startup": startup, "quality": quality, "slo": slo}


def _attributes(
    trial: Trial, space: SearchSpace, values: tuple[float, ...] | None
) -> dict[str, Any]:
    """Columns for the dashboard, and the record for those who cannot see the trial folder."""
    # One text for the configuration: every attribute costs a commit.
    config = ", ".join(f"{name}={value}" for name, value in space.shown(trial.values).items())
    shown: dict[str, Any] = {"config": config}
    if values is not None:
        shown |= {
            objective.name: value for objective, value in zip(space.objectives, values, strict=True)
        }
    return {
        "outcome": type(trial.outcome).__name__.lower(),
        **_reason(trial),
        "server_seconds": round(sum(trial.seconds.values()), 3),
        **shown,
        RECORD_ATTRIBUTE: json.dumps(as_json(trial)),
    }


def _reason(trial: Trial) -> dict[str, Any]:
    match trial.outcome:
        case Failed() as failed:
            return {"family": failed.family, "reason": failed.message, "remedy": failed.remedy}
        case Rejected() as rejected:
            return {"reason": rejected.verdict.reason}
        case Measured() as measured if measured.violations:
            return {"reason": "misses " + ", ".join(measured.violations)}
        case Measured() | Interrupted():
            return {}
