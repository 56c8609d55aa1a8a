"""What the evidence lets one expect: metrics and the chance to be feasible, for any row of the grid."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from autotune.tuning.search.evidence import DEFAULT_NOISE, Evidence, Point, Start
from autotune.tuning.search.gaussian import Process, condition, fit
from autotune.tuning.search.grid import Grid, Numbers, Rows
from autotune.tuning.search.improvement import expected_improvement, normal_cdf, reference

LEAST_POINTS = 3
"""Feasible points from which on metrics can be modeled."""
_LABEL_NOISE = 0.01
_LABEL_SLACK = 0.05
# Never quite zero: regions that nobody has looked at stay possible.
_LEAST_CHANCE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Fitted models. points: outcomes of what may stand on the front; bound: where volume begins."""

    grid: Grid
    metrics: tuple[Process, ...]
    feasibility: tuple[Process, ...]
    points: Numbers
    bound: Numbers

    def improvement(self, rows: Rows, generator: np.random.Generator) -> Numbers:
        features = self.grid.features(rows)
        predicted = [process.predict(features) for process in self.metrics]
        means = np.column_stack([mean for mean, _ in predicted])
        deviations = np.column_stack([deviation for _, deviation in predicted])
        return expected_improvement(means, deviations, self.points, self.bound, generator)

    def chance(self, rows: Rows) -> Numbers:
        return chance(self.feasibility, self.grid.features(rows))

    def with_point(self, point: Point) -> "Models":
        """Take in one more measurement; weights, standardization and bound stay."""
        features = self.grid.features(point.row[None])
        metrics = tuple(
            condition(
                np.concatenate([process.features, features]),
                process.owners,
                np.append(process.targets, point.outcome[column]),
                np.append(process.noise, point.noise[column]),
                weights=process.weights,
                offset=process.offset,
                spread=process.spread,
            )
            for column, process in enumerate(self.metrics)
        )
        return replace(self, metrics=metrics, points=np.vstack([self.points, point.outcome]))


@dataclass(slots=True, kw_only=True)
class Fitter:
    """Fits models. Earlier weights are kept only to save draws: without them the fit starts afresh."""

    grid: Grid
    weights: dict[str, Numbers] = field(default_factory=dict)

    def models(self, evidence: Evidence, generator: np.random.Generator) -> Models:
        feasible = evidence.feasible
        supposed = [self._supposed(row, feasible) for row in evidence.pending]
        points = [*evidence.points, *supposed]
        features = self.grid.features(np.stack([point.row for point in points]))
        outcomes = np.stack([point.outcome for point in points])
        noise = np.stack([point.noise for point in points])
        metrics = tuple(
            self._fit(
                f"metric {column}", features, outcomes[:, column], noise[:, column], generator
            )
            for column in range(outcomes.shape[1])
        )
        front = np.stack([point.outcome for point in [*feasible, *supposed]])
        return Models(
            grid=self.grid,
            metrics=metrics,
            feasibility=self.feasibility(evidence.starts, generator),
            points=front,
            bound=reference(front),
        )

    def feasibility(
        self, starts: Sequence[Start], generator: np.random.Generator
    ) -> tuple[Process, ...]:
        """Model each kind of failure that was seen, where it was also seen to be absent."""
        kinds = dict.fromkeys(kind for start in starts for kind in start.failures)
        found = []
        for kind in kinds:
            reached = [start for start in starts if kind in start.failures]
            labels = np.array([_label(start, kind) for start in reached])
            if np.ptp(labels) > 0:
                features = self.grid.features(np.stack([start.row for start in reached]))
                doubt = np.array([start.doubt for start in reached])
                noise = _LABEL_NOISE + 4.0 * doubt * (1.0 - doubt)
                found.append(
                    self._fit(kind, features, labels, noise, generator, standardized=False)
                )
        return tuple(found)

    def _fit(
        self,
        name: str,
        features: Numbers,
        targets: Numbers,
        noise: Numbers,
        generator: np.random.Generator,
        *,
        standardized: bool = True,
    ) -> Process:
        process = fit(
            features,
            self.grid.owners(),
            targets,
            noise,
            generator=generator,
            standardized=standardized,
            previous=self.weights.get(name),
        )
        self.weights[name] = process.weights
        return process

    def _supposed(self, row: Rows, feasible: Sequence[Point]) -> Point:
        """Suppose that what is running ends like the nearest thing that was measured."""
        features = self.grid.features(np.stack([row, *(point.row for point in feasible)]))
        distances = np.sum((features[1:] - features[0]) ** 2, axis=1)
        nearest = feasible[int(np.argmin(distances))]
        noise = np.full(len(nearest.outcome), DEFAULT_NOISE**2)
        return Point(row=row, outcome=nearest.outcome, noise=noise)


def chance(feasibility: Sequence[Process], features: Numbers) -> Numbers:
    """Multiply the chances to pass each kind of failure."""
    total = np.ones(len(features))
    for process in feasibility:
        mean, deviation = process.predict(features)
        passed = normal_cdf(mean / np.sqrt(deviation**2 + _LABEL_SLACK))
        total *= np.clip(passed, _LEAST_CHANCE, 1.0)
    return total


def _label(start: Start, kind: str) -> float:
    """Grade a failure: an answer that is nearly right says less against a configuration."""
    degree = start.failures[kind]
    if degree <= 0:
        return 1.0
    return start.doubt - (1.0 - start.doubt) * (0.5 + 0.5 * min(degree, 1.0))
