"""The next configuration: baseline, sweep, then the best of a random pool by the models."""

from collections.abc import Callable, Collection

import numpy as np

from autotune.errors import AutotuneError
from autotune.tuning.search.evidence import Evidence
from autotune.tuning.search.grid import Grid, Numbers, Rows
from autotune.tuning.search.improvement import non_dominated
from autotune.tuning.search.models import LEAST_POINTS, Fitter, Models, chance
from autotune.tuning.search.sweep import Known, next_step

RANDOM_POINTS = 800
MUTATIONS = 1000
SMALL_GRID = 3000
"""Grids up to this size are looked at as a whole."""
ATTEMPTS = 4


class GridExhaustedError(AutotuneError):
    """Every legal configuration of the grid was tried."""


def propose(grid: Grid, fitter: Fitter, evidence: Evidence, generator: np.random.Generator) -> Rows:
    """Decide what to try next.

    Raises:
        GridExhaustedError: Every configuration that the rules allow was tried.
    """
    taken = {
        key
        for rows in ([start.row for start in evidence.starts], evidence.pending)
        if rows
        for key in grid.keys(np.stack(rows))
    }
    if grid.keys(grid.baseline[None])[0] not in taken:
        return grid.baseline
    step = next_step(grid, known_steps(grid, evidence))
    if step is not None:
        return step
    feasible = evidence.feasible
    parents = np.stack([point.row for point in feasible]) if feasible else grid.baseline[None]
    if len(feasible) < LEAST_POINTS:
        rows = pool(grid, parents, taken, generator, near=True)
        labels = fitter.feasibility(evidence.starts, generator)
        merit = chance(labels, grid.features(rows))
        return np.asarray(rows[int(np.argmax(merit))])
    outcomes = np.stack([point.outcome for point in feasible])
    rows = pool(grid, parents[non_dominated(outcomes)], taken, generator)
    models = fitter.models(evidence, generator)
    return np.asarray(rows[int(np.argmax(acquisition(models, rows, generator)))])


def acquisition(models: Models, rows: Rows, generator: np.random.Generator) -> Numbers:
    result: Numbers = models.improvement(rows, generator) * models.chance(rows)
    return result


def pool(
    grid: Grid,
    parents: Rows,
    taken: Collection[bytes],
    generator: np.random.Generator,
    *,
    near: bool = False,
) -> Rows:
    """Collect legal new rows: all of a small grid, else mutations of the parents and random ones.

    near: mutations alone, where nothing is known yet of what lies further off

    Raises:
        GridExhaustedError: There seems to be none.
    """
    if grid.space.size <= SMALL_GRID:
        found = _fresh(grid, grid.every(), taken)
        if len(found):
            return found
        raise GridExhaustedError("every configuration of the grid that the rules allow was tried")
    for attempt in range(ATTEMPTS):
        mutated = grid.mutated(parents, generator, MUTATIONS)
        drawn = grid.random(generator, RANDOM_POINTS * (1 + 4 * attempt))
        rows = mutated if near and not attempt else np.concatenate([drawn, mutated])
        found = _fresh(grid, rows, taken)
        if len(found):
            return found
    raise GridExhaustedError("every configuration of the grid that the rules allow was tried")


def known_steps(grid: Grid, evidence: Evidence) -> Callable[[Rows], Known]:
    """Look steps of the sweep up in the evidence; a repeat that went well outweighs a failure."""
    known: dict[bytes, Known] = {}
    for row in evidence.pending:
        known[grid.keys(row[None])[0]] = Known(state="pending")
    for start in evidence.starts:
        if not start.good:
            known[grid.keys(start.row[None])[0]] = Known(state="failed")
    for point in evidence.feasible:
        # Equal weights: a step that gains a tenth of throughput for a tenth of TTFT is no step.
        score = float(point.outcome.sum())
        known[grid.keys(point.row[None])[0]] = Known(state="good", score=score)
    return lambda row: known.get(grid.keys(row[None])[0], Known(state="unknown"))


def _fresh(grid: Grid, rows: Rows, taken: Collection[bytes]) -> Rows:
    """Drop what is illegal, listed twice or taken."""
    canonical = grid.canonical(rows[grid.legal(rows)])
    keys = [row.tobytes() for row in canonical]
    kept = {key: place for place, key in enumerate(keys) if key not in taken}
    return canonical[sorted(kept.values())]
