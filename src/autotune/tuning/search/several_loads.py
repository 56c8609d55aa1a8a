"""The search where one server start yields several points: its client admits fewer requests at once.

A server with room for S sequences whose client holds s of them in flight behaves like one with
`max_num_seqs` = s, the queue moved to the client. A start costs minutes and a further point seconds,
so each start shows a piece of the curve between throughput and TTFT instead of one point of it.
Checking this stand-in on a real server, and confirming what is reported, is the caller's job.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from autotune.model.knob import Value
from autotune.model.search_space import SearchSpace
from autotune.tuning.search.evidence import DEFAULT_NOISE, STARTUP, Evidence, Point
from autotune.tuning.search.flakiness import Attempts
from autotune.tuning.search.grid import Grid, Numbers, Rows
from autotune.tuning.search.improvement import non_dominated
from autotune.tuning.search.models import LEAST_POINTS, Fitter, Models, chance
from autotune.tuning.search.proposal import GridExhaustedError, acquisition, pool
from autotune.tuning.search.sweep import Known, next_step

SEQUENCES = "max_num_seqs"
QUALITY = "quality"
MOST_POINTS = 4
BASELINE_ATTEMPTS = 2
LADDER = (1.0, 3 / 8, 1 / 8)
"""Shares of the offered load that every start of the sweep measures."""
_SHORTLIST = 80
# Neighboring points of a start overlap in what they add.
_FURTHER = 0.35
_WORTH = 0.3


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a start yields no points.

    family: `startup` where the server did not come up, `quality` where its answers are wrong
    """

    family: str = STARTUP
    message: str = ""


Measure: TypeAlias = Callable[[int], tuple[float, float]]
"""Take the number of requests in flight, give output tokens a second and TTFT in milliseconds.

TTFT counts from when a request was due: the wait in the client is part of it.
"""

StartServer: TypeAlias = Callable[[Mapping[str, Value]], Failure | Measure]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """One measured point.

    start: number of the server start, from 0; order: which point of the start it was, from 0
    values: the configuration that it stands for, `max_num_seqs` being the requests in flight
    """

    start: int
    order: int
    values: Mapping[str, Value]
    in_flight: int
    output_tok_s: float
    ttft_ms: float


def run_search(
    space: SearchSpace, start: StartServer, starts: int = 40, seed: int = 0
) -> tuple[LoadPoint, ...]:
    """Search with a budget of server starts; `start` brings one up, its answer measures a load.

    A space without `max_num_seqs` gives one point a start, at the offered load. Failed starts count.
    """
    search = _Search(space=space, start=start, seed=seed)
    for number in range(starts):
        try:
            search.one(number)
        except GridExhaustedError:
            break
    return tuple(search.found)


@dataclass(slots=True)
class _Search:
    space: SearchSpace
    start: StartServer
    seed: int
    grid: Grid = field(init=False)
    fitter: Fitter = field(init=False)
    evidence: Evidence = field(default_factory=Evidence)
    attempts: Attempts = field(default_factory=Attempts)
    found: list[LoadPoint] = field(default_factory=list)
    loads: "_Loads" = field(init=False)

    def __post_init__(self) -> None:
        self.grid = Grid(self.space)
        self.fitter = Fitter(grid=self.grid)
        self.loads = _Loads(self.grid)

    def one(self, number: int) -> None:
        """Start one server and measure what it is worth."""
        generator = np.random.default_rng([self.seed, number])
        server, models = self._next(generator)
        outcome = self.start(self.grid.values(server))
        self.attempts.add(server, _failures(outcome))
        self.evidence.starts = self.attempts.starts()
        if not callable(outcome):
            return
        if models is None:
            for order, row in enumerate(self.loads.ladder(server)):
                self._measure(number, order, row, outcome)
        else:
            self._climb(number, server, outcome, models, generator)

    # --- which server

    def _next(self, generator: np.random.Generator) -> tuple[Rows, Models | None]:
        """Choose a server: baseline, sweep, then what promises most; the models choose its points."""
        baseline = self._baseline()
        if baseline is not None:
            return baseline, None
        step = next_step(self.grid, self._known(), start=self.loads.server(self.grid.baseline))
        if step is not None:
            return self.grid.canonical(step[None])[0], None
        taken = self.attempts.settled()
        feasible = self.evidence.feasible
        if len(feasible) < LEAST_POINTS:
            parents = self.grid.baseline[None]
            rows = self._servers(pool(self.grid, parents, (), generator, near=True), taken)
            labels = self.fitter.feasibility(self.evidence.starts, generator)
            return rows[int(np.argmax(chance(labels, self.grid.features(rows))))], None
        outcomes = np.stack([point.outcome for point in feasible])
        parents = np.stack([point.row for point in feasible])[non_dominated(outcomes)]
        models = self.fitter.models(self.evidence, generator)
        return self._best_server(models, parents, taken, generator), models

    def _baseline(self) -> Rows | None:
        """Start the baseline with room for the whole load, else as it was declared."""
        server = self._declared_baseline()
        failed = self.attempts.failed(server)
        if not len(self.attempts):
            return server
        if not failed or len(self.attempts) > 1 + (not self.loads.widened):
            return None
        # Once more, since it may have been chance: all points of the study depend on it.
        if failed < BASELINE_ATTEMPTS:
            return server
        if not self.loads.widened:
            return None
        self.loads.narrow()
        return self._declared_baseline()

    def _declared_baseline(self) -> Rows:
        server = self.loads.server(self.grid.baseline)
        return np.asarray(self.grid.canonical(server[None])[0])

    def _servers(self, rows: Rows, taken: set[bytes]) -> Rows:
        """Turn points into the servers that would measure them, each once."""
        servers = self.grid.canonical(self.loads.server(rows))
        servers = servers[self.grid.legal(servers)]
        keys = [row.tobytes() for row in servers]
        kept = {key: place for place, key in enumerate(keys) if key not in taken}
        if not kept:
            raise GridExhaustedError("every server of the grid that the rules allow was tried")
        return servers[sorted(kept.values())]

    def _best_server(
        self, models: Models, parents: Rows, taken: set[bytes], generator: np.random.Generator
    ) -> Rows:
        rows = pool(self.grid, parents, (), generator)
        merit = acquisition(models, rows, generator)
        fresh = [key not in taken for key in self.grid.keys(self.loads.server(rows))]
        rows, merit = rows[fresh], merit[fresh]
        shortlist = rows[np.argsort(-merit)[:_SHORTLIST]]
        if not len(shortlist):
            raise GridExhaustedError("every server of the grid that the rules allow was tried")
        servers = self._servers(shortlist, taken)
        points = np.concatenate([self.loads.points(server) for server in servers])
        gain = models.improvement(points, generator).reshape(len(servers), -1)
        ordered = -np.sort(-gain, axis=1)
        total = ordered[:, 0] + _FURTHER * ordered[:, 1:MOST_POINTS].sum(axis=1)
        return np.asarray(servers[int(np.argmax(total * models.chance(servers)))])

    def _known(self) -> Callable[[Rows], Known]:
        """Score a server by the mean over its ladder."""
        grid = self.grid
        scores: dict[bytes, list[float]] = {}
        for point in self.evidence.points:
            key = grid.keys(self.loads.server(point.row)[None])[0]
            scores.setdefault(key, []).append(float(point.outcome.sum()))
        states = {grid.keys(start.row[None])[0] for start in self.evidence.starts}

        def look_up(row: Rows) -> Known:
            key = grid.keys(row[None])[0]
            if key in scores:
                return Known(state="good", score=float(np.mean(scores[key])))
            if key not in states or self.attempts.deserves_another(grid.canonical(row[None])[0]):
                return Known(state="unknown")
            return Known(state="failed")

        return look_up

    # --- which points

    def _climb(
        self,
        number: int,
        server: Rows,
        measure: Measure,
        models: Models,
        generator: np.random.Generator,
    ) -> None:
        """Measure the load that promises most, learn from it, and go on while it pays."""
        rows = self.loads.points(server)
        first = 0.0
        for order in range(MOST_POINTS):
            if not len(rows):
                return
            gain = models.improvement(rows, generator)
            best = int(np.argmax(gain))
            if order == 0:
                first = float(gain[best])
            elif gain[best] < _WORTH * first:
                return
            point = self._measure(number, order, rows[best], measure)
            models = models.with_point(point)
            rows = np.delete(rows, best, axis=0)

    def _measure(self, number: int, order: int, row: Rows, measure: Measure) -> Point:
        values = self.grid.values(row)
        in_flight = self.loads.in_flight(row)
        throughput, ttft = measure(in_flight)
        self.found.append(
            LoadPoint(
                start=number,
                order=order,
                values=values,
                in_flight=in_flight,
                output_tok_s=throughput,
                ttft_ms=ttft,
            )
        )
        outcome: Numbers = np.array([np.log(throughput), -np.log(ttft)])
        point = Point(row=row, outcome=outcome, noise=np.full(2, DEFAULT_NOISE**2))
        self.evidence.points.append(point)
        return point


def _failures(outcome: Failure | Measure) -> dict[str, float]:
    if callable(outcome):
        return {STARTUP: 0.0, QUALITY: 0.0}
    return {STARTUP: float(outcome.family == STARTUP)} | (
        {} if outcome.family == STARTUP else {outcome.family: 1.0}
    )


class _Loads:
    """Which part of a row is the server and which is the load; S stands for the offered load."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.offered = max(max(workload.concurrency) for workload in grid.space.workloads)
        names = [knob.name for knob in grid.knobs]
        self._column = names.index(SEQUENCES) if SEQUENCES in names else None
        self.widened = self._column is not None
        self._caps: list[int] = []
        self._room = 0
        if self._column is not None:
            caps = [int(str(value)) for value in grid.knobs[self._column].values]
            self._caps = caps
            enough = [place for place, cap in enumerate(caps) if cap >= self.offered]
            self._room = min(enough, key=caps.__getitem__) if enough else int(np.argmax(caps))

    def narrow(self) -> None:
        """Give up on room for the whole load: the baseline does not start with it."""
        self.widened = False
        if self._column is not None:
            self._room = int(self._grid.baseline[self._column])

    def server(self, rows: Rows) -> Rows:
        if self._column is None:
            return rows
        servers = rows.copy()
        servers[..., self._column] = self._room
        return servers

    def points(self, server: Rows) -> Rows:
        """List every load that a server with this much room can be measured at."""
        if self._column is None:
            return server[None]
        places = [p for p, cap in enumerate(self._caps) if cap <= self._caps[self._room]]
        rows = np.repeat(server[None], len(places), axis=0)
        rows[:, self._column] = places
        return rows

    def ladder(self, server: Rows) -> Rows:
        """List the loads nearest to the steps of the ladder, by ratio, each once."""
        rows = self.points(server)
        if self._column is None:
            return rows
        caps = np.array([self._caps[place] for place in rows[:, self._column]], dtype=float)
        top = min(self.offered, caps.max())
        nearest = [int(np.argmin(np.abs(np.log(caps / (top * share))))) for share in LADDER]
        return rows[list(dict.fromkeys(nearest))]

    def in_flight(self, row: Rows) -> int:
        if self._column is None:
            return self.offered
        return min(self._caps[int(row[self._column])], self.offered)
