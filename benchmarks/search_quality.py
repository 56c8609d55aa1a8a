"""Prints how good a search is: ours against stock samplers on imaginary hosts with a known true front.

Usage: python benchmarks/search_quality.py [--instances 20] [--first 1000] [--workers 2] [--gp]

Score: hypervolume of the noise-free values of the measured front as a share of the true front's;
reference point 0.8 x the baseline's throughput and 1.5 x its TTFT. Every attempt counts as one trial,
failures too; noise 3 %. Paired over instances, +- one standard error. At equal time a crash costs 120
s, a failed gate 285 s, a measured trial 405 s, a further load of a start 81 s.
"""

import argparse
import functools
import importlib.util
import math
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# One thread a worker: the matrices are small, and two workers share two cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import optuna
from benchmarks.serving_instances import (
    CRASHED,
    STARTED,
    USERS,
    Instance,
    pareto,
    volume,
)

from autotune.tuning.search import Failure, ServingSampler, run_search
from autotune.tuning.search.distributions import distributions, snap

TRIALS = 40
HOURS = 4.5
SECONDS = {STARTED: 405.0, CRASHED: 120.0}
GATE_S, FURTHER_S = 285.0, 81.0
NOISE = 0.03
MARKS = (10, 20, 30, 40)
MOST_TRIALS = 140
SETS = ((7, False), (11, False), (11, True))


@dataclass(slots=True)
class Run:
    """One search on one instance, attempt by attempt."""

    instance: Instance
    best: float
    rng: np.random.Generator
    points: list[tuple[tuple[float, float], tuple[float, float]]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    curve: list[float] = field(default_factory=list)
    failed: int = 0

    @property
    def done(self) -> bool:
        return len(self.curve) >= MOST_TRIALS or (
            len(self.curve) >= TRIALS and sum(self.seconds) >= HOURS * 3600
        )

    def attempt(self, row: np.ndarray) -> tuple[int, tuple[float, float]]:
        state, throughput, ttft = self.instance.truth(row[None])
        kind = int(state[0])
        self.seconds.append(SECONDS.get(kind, GATE_S))
        self.failed += kind != STARTED and len(self.curve) < TRIALS
        seen = (0.0, 0.0)
        if kind == STARTED:
            seen = self.measure((float(throughput[0]), float(ttft[0])))
        self.score()
        return kind, seen

    def measure(self, true: tuple[float, float], tilt: Sequence[float] = (0.0, 0.0)) -> Any:
        noisy = np.array(true) * np.exp(self.rng.normal(0.0, NOISE, 2) + tilt)
        seen = (float(noisy[0]), float(noisy[1]))
        self.points.append((seen, true))
        return seen

    def score(self) -> None:
        reported = set(pareto([seen for seen, _ in self.points]))
        true = [true for seen, true in self.points if seen in reported]
        self.curve.append(volume(true, self.instance.reference) / self.best)

    def figures(self) -> dict[str, Any]:
        spent = np.cumsum(self.seconds)
        within = [value for value, s in zip(self.curve, spent, strict=True) if s <= HOURS * 3600]
        curve = [*self.curve, *[self.curve[-1]] * TRIALS][:TRIALS]
        return {
            "curve": curve,
            "hours": within[-1] if within else 0.0,
            "failed": self.failed / TRIALS,
        }


# --- strategies


def ask_and_tell(run: Run, sampler: Any, *, told: bool = True, baseline: bool = True) -> None:
    """Drive any Optuna sampler; it draws physical values, which are moved onto the grid."""
    space = run.instance.space
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    declared = distributions(space)
    if baseline:
        study.enqueue_trial(dict(space.baseline))
    while not run.done:
        trial = study.ask(fixed_distributions=declared)
        values = {knob.name: snap(knob, trial.params[knob.name]) for knob in space.knobs}
        kind, seen = run.attempt(run.instance.grid.row(values))
        if not told and kind != STARTED:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        trial.set_constraint("startup", 1.0 if kind == CRASHED else -1.0)
        trial.set_constraint("quality", 1.0 if kind not in (CRASHED, STARTED) else -1.0)
        if kind == STARTED:
            study.tell(trial, list(seen))
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)


def ours(run: Run, seed: int) -> None:
    ask_and_tell(run, ServingSampler(run.instance.space, seed=seed))


def at_random(run: Run, seed: int) -> None:
    ask_and_tell(run, optuna.samplers.RandomSampler(seed=seed), baseline=False)


def optuna_default(run: Run, seed: int) -> None:
    sampler = optuna.samplers.TPESampler(seed=seed)
    ask_and_tell(run, sampler, told=False, baseline=False)


def tpe_told(run: Run, seed: int) -> None:
    ask_and_tell(run, optuna.samplers.TPESampler(seed=seed))


def nsga2(run: Run, seed: int) -> None:
    ask_and_tell(run, optuna.samplers.NSGAIISampler(seed=seed, population_size=8))


def gp(run: Run, seed: int) -> None:
    ask_and_tell(run, optuna.samplers.GPSampler(seed=seed))


def several_loads(run: Run, seed: int, *, wrong: float = 0.0, flaky: float = 0.0) -> None:
    """Several loads a start. wrong: the stand-in's error a halving, in units of 2 % and 6 %."""
    grid = run.instance.grid
    tilt = run.rng.normal(0.0, [0.02, 0.06]) * wrong
    column = grid.position("max_num_seqs")
    caps = run.instance.space.knob("max_num_seqs").values

    def start(values: Any) -> Any:
        if run.seconds:
            run.score()
        row = grid.row(values)
        state = int(run.instance.truth(row[None])[0][0])
        if run.rng.random() < flaky:
            state = CRASHED
        run.seconds.append(SECONDS.get(state, GATE_S))
        if state != STARTED:
            run.failed += 1
            return Failure("startup" if state == CRASHED else "quality")
        first = [True]

        def measure(in_flight: int) -> tuple[float, float]:
            if not first.pop():
                run.seconds[-1] += FURTHER_S
            first.append(False)
            capped = row.copy()
            capped[column] = caps.index(in_flight)
            _, throughput, ttft = run.instance.truth(capped[None])
            halvings = math.log2(USERS / in_flight)
            seen: tuple[float, float] = run.measure(
                (float(throughput[0]), float(ttft[0])), (tilt * halvings).tolist()
            )
            return seen

        return measure

    run_search(run.instance.space, start, starts=TRIALS, seed=seed)
    run.score()


STRATEGIES: dict[str, Callable[[Run, int], None]] = {
    "ours, several loads a start": several_loads,
    "... stand-in wrong by 2 % / 6 %": functools.partial(several_loads, wrong=1.0),
    "... 30 % of the starts flaky": functools.partial(several_loads, flaky=0.3),
    "ours": ours,
    "TPE told failures, baseline": tpe_told,
    "NSGA-II told failures, baseline": nsga2,
    "Optuna default, failures FAIL": optuna_default,
    "random": at_random,
}
GP_INSTANCES = 5


# --- running


def job(task: tuple[int, int, bool, str]) -> dict[str, Any]:
    seed, knobs, poor, name = task
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    instance = Instance(seed, knobs=knobs, poor=poor)
    best = volume(true_front(seed, knobs), instance.reference)
    began = time.perf_counter()
    run = Run(instance=instance, best=best, rng=np.random.default_rng([seed, knobs, poor]))
    strategy = gp if name == "GPSampler" else STRATEGIES[name]
    strategy(run, seed)
    return {**run.figures(), "task": task, "cpu": time.perf_counter() - began}


@functools.lru_cache(maxsize=4)
def true_front(seed: int, knobs: int) -> list[tuple[float, float]]:
    return Instance(seed, knobs=knobs).front()


def jobs_of(tasks: list[tuple[int, int, bool, str]]) -> list[dict[str, Any]]:
    """Do all jobs of an instance in one process: they share its true front."""
    return [job(task) for task in tasks]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--first", type=int, default=1000, help="number of the first instance")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gp", action="store_true", help="also Optuna's GPSampler, where torch is")
    options = parser.parse_args()
    began = time.perf_counter()
    seeds = range(options.first, options.first + options.instances)
    names = list(STRATEGIES)
    bundles = [
        [(seed, knobs, poor, name) for poor in poors for name in names]
        for knobs, poors in ((11, (False, True)), (7, (False,)))
        for seed in seeds
    ]
    if options.gp and importlib.util.find_spec("torch"):
        bundles += [[(seed, 11, False, "GPSampler")] for seed in seeds[:GP_INSTANCES]]
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        results = [r for found in pool.imap_unordered(jobs_of, bundles) for r in found]
    for knobs, poor in SETS:
        show(knobs, poor, [r for r in results if r["task"][1:3] == (knobs, poor)])
    print(f"\n{options.instances} instances a table, {time.perf_counter() - began:.0f} s")


# --- tables


def show(knobs: int, poor: bool, results: list[dict[str, Any]]) -> None:
    print(f"\n{knobs} knobs, {'poor' if poor else 'good'} baseline")
    print(f"{'':34}" + "".join(f"  HV@{mark}" for mark in MARKS) + "      +-  at 4.5 h  failed")
    by_name: dict[str, list[dict[str, Any]]] = {}
    for result in sorted(results, key=lambda r: r["task"][0]):
        by_name.setdefault(result["task"][3], []).append(result)
    for name in [*STRATEGIES, "GPSampler"]:
        if name in by_name:
            print(f"{name:34}" + line(by_name[name]))
    curves = {name: np.array([r["curve"] for r in found]) for name, found in by_name.items()}
    for better, worse in PAIRS:
        mean, error, wins = paired(curves[better][:, -1], curves[worse][:, -1])
        print(f"  {better} - {worse}: {mean:+.3f} +- {error:.3f} ({wins} of {len(curves[worse])})")
    times = {name: np.array([r["hours"] for r in found]) for name, found in by_name.items()}
    for worse in ("random", "TPE told failures, baseline"):
        mean, error, wins = paired(times["ours"], times[worse])
        print(f"  at equal time, ours - {worse}: {mean:+.3f} +- {error:.3f} ({wins})")
    for name in ("Optuna default, failures FAIL", "random"):
        target = curves[name][:, -1].mean()
        for own in ("ours", "ours, several loads a start"):
            reached = np.argmax(curves[own].mean(axis=0) >= target) + 1
            print(f"  {own}: reaches the {TRIALS}-trial value of {name} at trial {reached}")


PAIRS = (
    ("ours", "Optuna default, failures FAIL"),
    ("ours", "TPE told failures, baseline"),
    ("ours", "random"),
    ("ours, several loads a start", "ours"),
    ("... stand-in wrong by 2 % / 6 %", "ours"),
    ("... 30 % of the starts flaky", "ours, several loads a start"),
)


def line(found: list[dict[str, Any]]) -> str:
    curves = np.array([result["curve"] for result in found])
    means = "".join(f"{curves[:, mark - 1].mean():7.3f}" for mark in MARKS)
    error = curves[:, -1].std(ddof=1) / math.sqrt(len(found)) if len(found) > 1 else 0.0
    hours = np.mean([result["hours"] for result in found])
    failed = np.mean([result["failed"] for result in found])
    return f"{means} {error:7.3f} {hours:9.3f} {failed:6.0%}"


def paired(better: np.ndarray, worse: np.ndarray) -> tuple[float, float, int]:
    gaps = better - worse
    error = gaps.std(ddof=1) / math.sqrt(len(gaps)) if len(gaps) > 1 else 0.0
    return float(gaps.mean()), float(error), int(np.sum(gaps > 0))


if __name__ == "__main__":
    main()
