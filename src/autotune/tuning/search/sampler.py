"""A sampler that proposes only what may be served and was not served before.

It wraps any Optuna sampler. The whole declared space goes into every trial; a proposal that breaks a
rule, or starts a server that was measured already, is drawn again before Optuna stores anything, so
that the study is not littered with trials that never ran.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from autotune.errors import UsageError
from autotune.model.knob import Value
from autotune.model.search_space import SearchSpace
from autotune.tuning.search.distributions import distributions, neighbor, random_values, snap
from autotune.tuning.search.experimental import knowingly
from autotune.tuning.search.proposal import GridExhaustedError
from autotune.tuning.search.serving import ServingSampler

PROPOSALS = 6
RANDOM_POINTS = 4000
KNOWN_STATES = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)


class LegalSampler(BaseSampler):
    """Proposes grid points that are legal and new, whatever the inner sampler prefers."""

    def __init__(self, space: SearchSpace, inner: BaseSampler, *, seed: int) -> None:
        self._space = space
        self._inner = inner
        self._generator = random.Random(seed)  # noqa: S311  a search, not a secret
        self._declared = distributions(space)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del study, trial
        return dict(self._declared)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        del search_space
        fixed = trial.system_attrs.get("fixed_params")
        if fixed:
            # An enqueued trial overrides whatever is proposed: no model needs to be fitted.
            return dict(fixed)
        known = self._known(study, trial)
        inner_space = self._inner.infer_relative_search_space(study, trial)
        for _ in range(PROPOSALS):
            proposal = self._inner.sample_relative(study, trial, inner_space)
            values = self._complete(study, trial, proposal)
            if self._acceptable(values, known):
                return dict(self._space.canonical(values))
        return dict(self._space.canonical(self._any_new(study, known)))

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        del study, trial, param_distribution
        return self._generator.choice(self._space.knob(param_name).values)

    def reseed_rng(self) -> None:
        self._inner.reseed_rng()
        self._generator.seed()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._inner.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        self._inner.after_trial(study, trial, state, values)

    def _complete(
        self, study: Study, trial: FrozenTrial, proposal: Mapping[str, Any]
    ) -> dict[str, Value]:
        """Snap a proposal to the grid and draw what the inner sampler left open."""
        del study, trial
        drawn = random_values(self._space, self._generator)
        return {
            knob.name: snap(knob, proposal[knob.name])
            if knob.name in proposal
            else drawn[knob.name]
            for knob in self._space.knobs
        }

    def _acceptable(self, values: Mapping[str, Value], known: set[str]) -> bool:
        return self._space.key(values) not in known and not self._space.broken_rules(values)

    def _any_new(self, study: Study, known: set[str]) -> dict[str, Value]:
        """Find a legal new point near the best ones, or anywhere.

        Raises:
            GridExhaustedError: There seems to be none.
        """
        best = [trial.params for trial in study.best_trials]
        for _ in range(RANDOM_POINTS):
            if best and self._generator.random() < 0.5:  # noqa: PLR2004  half near the front
                values = neighbor(self._space, self._generator.choice(best), self._generator)
            else:
                values = random_values(self._space, self._generator)
            if self._acceptable(values, known):
                return values
        raise GridExhaustedError("every configuration of the grid that the rules allow was tried")

    def _known(self, study: Study, asking: FrozenTrial) -> set[str]:
        trials = study.get_trials(deepcopy=False, states=KNOWN_STATES)
        return {
            self._space.key(trial.params)
            for trial in trials
            if trial.number != asking.number and trial.params.keys() >= self._declared.keys()
        }


def _tpe(seed: int) -> BaseSampler:
    with knowingly():
        return optuna.samplers.TPESampler(
            seed=seed, multivariate=True, group=True, n_startup_trials=8
        )


def _random(seed: int) -> BaseSampler:
    return optuna.samplers.RandomSampler(seed=seed)


def _nsga2(seed: int) -> BaseSampler:
    return optuna.samplers.NSGAIISampler(seed=seed, population_size=8)


def _qmc(seed: int) -> BaseSampler:
    with knowingly():
        return optuna.samplers.QMCSampler(seed=seed)


def _gp(seed: int) -> BaseSampler:
    try:
        with knowingly():
            return optuna.samplers.GPSampler(seed=seed, n_startup_trials=8)
    except ImportError as error:
        raise UsageError(
            f"the sampler gp cannot be used here: {error}",
            hint="Install torch, or choose `search: {sampler: serving}`, which needs neither.",
        ) from error


STOCK = {"tpe": _tpe, "random": _random, "nsga2": _nsga2, "qmc": _qmc, "gp": _gp}
SAMPLERS = ("serving", *STOCK)


def build_sampler(space: SearchSpace, *, seed: int) -> BaseSampler:
    """Make the sampler that the space names."""
    kind = space.sampler.kind
    if kind in STOCK:
        return LegalSampler(space, STOCK[kind](seed), seed=seed)
    return ServingSampler(space, seed=seed)
