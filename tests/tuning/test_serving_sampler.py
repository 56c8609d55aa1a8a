import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from autotune.model.objective import Objective, Quantity, natural_direction
from autotune.tuning.search import GridExhaustedError, ServingSampler
from autotune.tuning.search.distributions import distributions
from tests.fakes.bench import make_space


def make_study(space, *, seed=0, sampler=None):
    return optuna.create_study(
        directions=[objective.direction for objective in space.objectives],
        sampler=sampler or ServingSampler(space, seed=seed),
    )


def speed(params):
    """Drafts aside, what a host does: large batches are fast and slow to answer."""
    factor = {"marlin": 1.0, "cutlass": 1.3, "triton": 0.7}[params["moe_backend"]]
    batch = params["max_num_seqs"]
    return 30 * factor * batch**0.7, 200 / factor * batch**0.4


def tell(study, trial, *, fails=lambda params: False):
    if fails(trial.params):
        trial.set_constraint("startup", 1.0)
        trial.set_constraint("quality", -1.0)
        study.tell(trial, state=TrialState.PRUNED)
    else:
        trial.set_constraint("startup", -1.0)
        trial.set_constraint("quality", -1.0)
        study.tell(trial, speed(trial.params)[: len(study.directions)])


def run(study, trials, **how):
    for _ in range(trials):
        tell(study, study.ask(), **how)
    return [trial.params for trial in study.trials]


def test_the_baseline_comes_first_then_room_for_the_load_then_each_category():
    space = make_space()

    asked = run(make_study(space), 4)

    assert asked[0] == space.baseline
    # The load has 8 requests in flight, the baseline room for 4 of them.
    assert asked[1] == {**space.baseline, "max_num_seqs": 8}
    incumbent = max(asked[:2], key=lambda p: speed(p)[0] / speed(p)[1])
    assert asked[2:] == [{**incumbent, "moe_backend": name} for name in ("cutlass", "triton")]


def test_a_trial_is_complete_as_soon_as_it_is_asked_for_and_holds_physical_values():
    space = make_space()

    trial = make_study(space).ask()

    assert trial.params.keys() == {knob.name for knob in space.knobs}
    assert all(trial.params[knob.name] in knob.values for knob in space.knobs)
    assert trial.suggest_categorical("moe_backend", space.knob("moe_backend").values) == "marlin"


def test_nothing_is_proposed_twice_and_rules_hold_to_the_end_of_the_grid():
    space = make_space()
    study = make_study(space)

    with pytest.raises(GridExhaustedError):
        run(study, 500)

    asked = [trial.params for trial in study.trials if trial.params]
    assert len({space.key(params) for params in asked}) == len(asked) == 36 - 2 * 3
    assert not any(space.broken_rules(params) for params in asked)


def test_failures_teach_the_sampler_to_stay_away():
    space = make_space(knobs=wide_knobs(), baseline=WIDE_BASELINE)

    asked = run(make_study(space), 40, fails=lambda p: p["moe_backend"] != "marlin")

    assert sum(params["moe_backend"] != "marlin" for params in asked[10:]) <= 8


def test_a_resumed_study_goes_on_with_the_same_sweep():
    space = make_space()
    whole = run(make_study(space), 4)
    study = make_study(space)
    run(study, 2)
    study.sampler = ServingSampler(space, seed=9)

    assert run(study, 2) == whole


def test_what_others_are_trying_is_not_proposed_again():
    space = make_space()
    study = make_study(space)

    pending = [study.ask().params for _ in range(8)]

    assert len({space.key(params) for params in pending}) == 8


def test_an_enqueued_trial_keeps_its_values_and_the_rest_is_the_baseline():
    space = make_space()
    study = make_study(space)
    study.enqueue_trial({"moe_backend": "triton"})

    assert study.ask().params == {**space.baseline, "moe_backend": "triton"}


@pytest.mark.parametrize("count", [1, 3])
def test_one_and_three_objectives_work_too(count):
    quantities = ("output_tok_s", "ttft_ms.p50", "tpot_ms.p50")
    objectives = tuple(
        Objective(
            name=name,
            quantity=Quantity(metric=name, workload="agent", concurrency=8),
            direction=natural_direction(name),
        )
        for name in quantities[:count]
    )
    space = make_space(knobs=wide_knobs(), baseline=WIDE_BASELINE, objectives=objectives)
    study = make_study(space)

    for _ in range(14):
        trial = study.ask()
        throughput, ttft = speed(trial.params)
        study.tell(trial, [throughput, ttft, ttft / throughput][:count])

    best = max(study.trials, key=lambda trial: trial.values[0])
    assert best.params["moe_backend"] == "cutlass"
    assert best.params["max_num_seqs"] >= 48


def test_it_works_with_distributions_given_to_ask():
    space = make_space()

    trial = make_study(space).ask(fixed_distributions=distributions(space))

    assert trial.params == space.baseline


def test_trials_of_another_space_are_left_out():
    space = make_space()
    study = make_study(space)
    study.add_trial(
        optuna.trial.create_trial(
            values=[1.0, 2.0],
            params={"x": 0.5},
            distributions={"x": optuna.distributions.FloatDistribution(0, 1)},
        )
    )

    assert study.ask().params == space.baseline


def wide_knobs():
    from autotune.model.knob import Knob

    return (
        Knob(name="moe_backend", values=("marlin", "cutlass", "triton"), kind="categorical"),
        Knob(name="max_num_seqs", values=tuple(range(1, 65)), kind="log"),
        Knob(name="max_num_batched_tokens", values=tuple(range(512, 8193, 256)), kind="log"),
    )


WIDE_BASELINE = {"moe_backend": "marlin", "max_num_seqs": 4, "max_num_batched_tokens": 2048}


def test_larger_batches_are_found_by_the_model():
    space = make_space(knobs=wide_knobs(), baseline=WIDE_BASELINE)

    asked = run(make_study(space), 25)

    values = np.array([speed(params) for params in asked])
    assert values[:, 0].max() > 0.9 * speed({"moe_backend": "cutlass", "max_num_seqs": 64})[0]
