"""An Optuna study read as evidence, whoever told it."""

import math
from collections.abc import Mapping

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotune.tuning.search.evidence import (
    DEFAULT_NOISE,
    STARTUP,
    Evidence,
    Point,
    Start,
    gains,
)
from autotune.tuning.search.grid import Grid, Numbers

STANDARD_ERRORS = "standard_errors"
"""User attribute: relative standard error of each objective, where it is known."""


def read_evidence(study: Study, grid: Grid, *, asking: int | None = None) -> Evidence:
    """Collect what was tried. FAIL says nothing; a point off the grid counts as its nearest one."""
    states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
    evidence = Evidence()
    names = {knob.name for knob in grid.knobs}
    for trial in study.get_trials(deepcopy=False, states=states):
        if trial.number == asking or not trial.params.keys() >= names:
            continue
        try:
            row = grid.row(trial.params)
        except (ValueError, TypeError):
            # Imported from a space with other categories: nothing here stands for it.
            continue
        if trial.state == TrialState.RUNNING:
            evidence.pending.append(row)
            continue
        failures = _failures(trial)
        start = Start(row=row, failures=failures)
        evidence.starts.append(start)
        outcome = _outcome(trial, grid, good=start.good)
        if outcome is not None:
            evidence.points.append(
                Point(row=row, outcome=outcome, noise=_noise(trial, grid), feasible=start.good)
            )
    return evidence


def _failures(trial: FrozenTrial) -> Mapping[str, float]:
    """Read the constraints; those behind a failed start are unknown."""
    told = dict(trial.constraints)
    if trial.state == TrialState.PRUNED and not any(value > 0 for value in told.values()):
        # Somebody pruned it without saying why: it is a configuration to stay away from.
        return {STARTUP: 1.0}
    if told.get(STARTUP, 0.0) > 0:
        return {STARTUP: 1.0}
    return {STARTUP: 0.0} | {name: max(value, 0.0) for name, value in told.items()}


def _outcome(trial: FrozenTrial, grid: Grid, *, good: bool) -> Numbers | None:
    """Read the objectives. A missed SLO has numbers as well, in the attributes of a pruned trial."""
    objectives = grid.space.objectives
    if trial.state == TrialState.COMPLETE:
        values = list(trial.values)
    elif good or STARTUP not in trial.constraints or trial.constraints.get("quality", 0.0) > 0:
        return None
    else:
        found = [trial.user_attrs.get(objective.name) for objective in objectives]
        values = [value for value in found if isinstance(value, int | float)]
    finite = len(values) == len(objectives) and all(math.isfinite(value) for value in values)
    return gains(values, objectives) if finite else None


def _noise(trial: FrozenTrial, grid: Grid) -> Numbers:
    errors = trial.user_attrs.get(STANDARD_ERRORS)
    count = len(grid.space.objectives)
    if isinstance(errors, list) and len(errors) == count:
        return np.array([float(error) ** 2 for error in errors])
    return np.full(count, DEFAULT_NOISE**2)
