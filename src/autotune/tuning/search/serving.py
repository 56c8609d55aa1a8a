"""Our own sampler: it spends 20 to 60 trials better than a stock one, for it knows what they are.

Every trial restarts a server, a third of the configurations do not come up or answer wrongly, and most
of the gain lies in a few categories. It keeps no state that the study does not hold: a resumed study
goes on where it was.
"""

import random
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotune.model.search_space import SearchSpace
from autotune.tuning.search.distributions import distributions
from autotune.tuning.search.grid import Grid
from autotune.tuning.search.history import read_evidence
from autotune.tuning.search.models import Fitter
from autotune.tuning.search.proposal import propose


class ServingSampler(BaseSampler):
    """Baseline, greedy one-change sweep of the categories, then a Gaussian process on the logs.

    It works in any Optuna study with the space's objectives: ask gives a trial whose params are all
    set, and every outcome is used. Tell a configuration that failed as PRUNED with a constraint:
    `startup` where the server did not come up, `quality` where its answers are wrong, or any other
    name. FAIL means that nothing was learned.

    >>> import autotune, optuna, pathlib, tempfile
    >>> text = '''
    ... model: some/model
    ... knobs:
    ...   moe_backend: {choices: [marlin, cutlass]}
    ...   max_num_seqs: {type: int, low: 4, high: 64, doubling: true}
    ... baseline: {moe_backend: marlin, max_num_seqs: 4}
    ... workloads: {agent: {input_tokens: 500, output_tokens: 64, concurrency: [8]}}
    ... '''
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "space.yaml"
    >>> _ = path.write_text(text)
    >>> space = autotune.read_search_space(path)
    >>> study = optuna.create_study(
    ...     directions=["maximize", "minimize"], sampler=ServingSampler(space, seed=1)
    ... )
    >>> baseline = study.ask()
    >>> baseline.params
    {'moe_backend': 'marlin', 'max_num_seqs': 4}
    >>> _ = study.tell(baseline, [100.0, 2500.0])
    >>> changed = study.ask()
    >>> changed.params
    {'moe_backend': 'marlin', 'max_num_seqs': 8}
    >>> changed.set_constraint("startup", 1.0)
    >>> _ = study.tell(changed, state=optuna.trial.TrialState.PRUNED)
    >>> study.ask().params
    {'moe_backend': 'cutlass', 'max_num_seqs': 4}
    """

    def __init__(self, space: SearchSpace, *, seed: int | None = None) -> None:
        self._space = space
        self._seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        self._declared = distributions(space)
        self._grid = Grid(space)
        self._fitter = Fitter(grid=self._grid)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        del study, trial
        return dict(self._declared)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return what `before_trial` decided."""
        del study, search_space
        return dict(trial.params)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw a parameter that the space does not declare."""
        generator = optuna.samplers.RandomSampler(seed=self._seed + trial.number)
        return generator.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        self._seed = random.SystemRandom().getrandbits(32)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Decide on the whole configuration, so that a trial is complete as soon as it is asked for.

        Raises:
            GridExhaustedError: Every configuration that the rules allow was tried.
        """
        if trial.params:
            # A trial that is opened again, by another process say, keeps what it has.
            return
        values = self._values(study, trial)
        for name, declared in self._declared.items():
            study._storage.set_trial_param(  # noqa: SLF001  no public way to set a parameter
                trial._trial_id,  # noqa: SLF001
                name,
                declared.to_internal_repr(values[name]),
                declared,
            )
            trial.params[name] = values[name]
            trial.distributions[name] = declared

    def _values(self, study: Study, trial: FrozenTrial) -> dict[str, Any]:
        fixed = trial.system_attrs.get("fixed_params")
        if fixed:
            # Somebody enqueued it: what they left open is as in the baseline.
            return {**self._space.baseline, **fixed}
        evidence = read_evidence(study, self._grid, asking=trial.number)
        # The same seed draws other numbers for each trial, and the same ones after a resume.
        generator = np.random.default_rng([self._seed, trial.number])
        row = propose(self._grid, self._fitter, evidence, generator)
        return self._space.canonical(self._grid.values(row))
