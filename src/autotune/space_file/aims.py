"""The sections `objectives` and `constraints`: which measured quantities count, and how."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

from autotune.model.objective import (
    UNITS,
    Constraint,
    Direction,
    Objective,
    Quantity,
    natural_direction,
)
from autotune.model.search_space import WorkloadSpec
from autotune.space_file.place import Place
from autotune.space_file.problems import choose, closest, listed, shortened
from autotune.space_file.scalars import Trap, exact_number

DEFAULT_OBJECTIVES = ("output_tok_s", "ttft_ms.p50")
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
ENOUGH_REQUESTS: Mapping[str, int] = {"p95": 59, "p99": 299}
"""Fewest requests of which the largest lies above the percentile with 95 % certainty."""

_KEYS = ("metric", "workload", "concurrency", "direction")
_QUANTITY = re.compile(r"([^\s@:<>=]+)(?:@([^\s@:<>=]+)(?::([0-9]{1,9}))?)?")
_CONSTRAINT = re.compile(r"\s*([^\s<>=!]+)\s*(>=|<=|==|!=|=|>|<)\s*([^\s<>=!]+)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """What quantities may refer to. `meant` names the workloads that could not be read, too."""

    specs: Mapping[str, WorkloadSpec]
    meant: Mapping[str, Place]
    repeats: int

    @property
    def first(self) -> str | None:
        """The workload that stands first in the file, readable or not."""
        return next(iter(self.meant or self.specs), None)

    def quantity(
        self, metric: str | None, workload: str | None, level: int | None, place: Place
    ) -> Quantity | None:
        """Fill in what is left out: the first workload, its highest level."""
        if metric is None or not self.is_metric(metric, place):
            return None
        name = workload or self.first
        if name is None or (name not in self.specs and name in self.meant):
            return None
        if name not in self.specs:
            place.fail(f"there is no workload called '{name}'; {choose(name, list(self.specs))}")
            return None
        spec = self.specs[name]
        concurrency = max(spec.concurrency) if level is None else level
        if concurrency not in spec.concurrency:
            place.fail(
                f"{name} has no level {concurrency}; choose from: {listed(spec.concurrency)}"
            )
            return None
        quantity = Quantity(metric=metric, workload=name, concurrency=concurrency)
        return quantity if self._has_enough_requests(quantity, spec, place) else None

    def is_metric(self, metric: str, place: Place) -> bool:
        if metric in UNITS:
            return True
        place.fail(f"there is no metric called '{metric}'; {_metric_hint(metric)}")
        return False

    def _has_enough_requests(self, quantity: Quantity, spec: WorkloadSpec, place: Place) -> bool:
        percentile = quantity.metric.rpartition(".")[2]
        needed = ENOUGH_REQUESTS.get(percentile, 0)
        requests = spec.requests[spec.concurrency.index(quantity.concurrency)]
        if requests * self.repeats >= needed:
            return True
        each = -(-needed // self.repeats)
        place.fail(
            f"{percentile} needs at least {needed} requests at that level, but {requests} requests x "
            f"{self.repeats} repeats = {requests * self.repeats}; set requests of workload {spec.name} "
            f"to {each} or more at concurrency {quantity.concurrency}"
        )
        return False


def _metric_hint(metric: str) -> str:
    statistics = [known for known in UNITS if known.startswith(f"{metric}.")]
    meant = closest(metric, list(UNITS))
    if statistics:
        return f"choose from: {listed(statistics)}"
    if meant:
        return f"did you mean {meant}?"
    names = dict.fromkeys(known.partition(".")[0] for known in UNITS)
    return f"choose from: {listed(names)} (latencies with .mean, .p50, .p95 or .p99)"


# --- objectives


def read_objectives(place: Place | None, loads: Loads) -> tuple[Objective, ...]:
    if place is None or place.blank:
        return _named([_default(metric, loads) for metric in DEFAULT_OBJECTIVES])
    spots = place.items("metrics")
    if place.is_list and not spots:
        place.fail(
            f"needs at least one; drop the key for the default: {listed(DEFAULT_OBJECTIVES)}"
        )
    found: list[Objective] = []
    for spot in spots:
        objective = _objective(spot, loads)
        if objective is None:
            continue
        if any(objective.quantity.label == other.quantity.label for other in found):
            spot.fail(f"{objective.quantity.label} is listed twice")
            continue
        found.append(objective)
    return _named(found)


def _default(metric: str, loads: Loads) -> Objective | None:
    spec = loads.specs.get(loads.first or "")
    if spec is None:
        return None
    quantity = Quantity(metric=metric, workload=spec.name, concurrency=max(spec.concurrency))
    return Objective(name=metric, quantity=quantity, direction=natural_direction(metric))


def _named(objectives: list[Objective | None] | list[Objective]) -> tuple[Objective, ...]:
    found = [objective for objective in objectives if objective is not None]
    times = Counter(objective.quantity.metric for objective in found)
    return tuple(
        objective
        if times[objective.quantity.metric] == 1
        else replace(objective, name=objective.quantity.label)
        for objective in found
    )


def _objective(place: Place, loads: Loads) -> Objective | None:
    if not place.is_table:
        text = place.text("a metric or a mapping with the key metric")
        quantity = _parsed(text, place, loads) if text else None
        direction = None
    else:
        fields = place.fields(_KEYS)
        quantity = _from_fields(place, fields, loads)
        direction = _direction(fields.get("direction"))
    if quantity is None:
        return None
    return Objective(
        name=quantity.metric,
        quantity=quantity,
        direction=direction or natural_direction(quantity.metric),
    )


def _from_fields(place: Place, fields: Mapping[str, Place], loads: Loads) -> Quantity | None:
    if "metric" not in fields:
        place.fail("needs metric")
    metric, workload = (
        fields[key].text() if key in fields else None for key in ("metric", "workload")
    )
    level = fields["concurrency"].integer(low=1, high=2**31) if "concurrency" in fields else None
    unread = ("workload" in fields and workload is None) or (
        "concurrency" in fields and level is None
    )
    if metric is None or not loads.is_metric(metric, fields["metric"]) or unread:
        return None
    return loads.quantity(metric, workload, level, place)


def _direction(place: Place | None) -> Direction | None:
    text = place.text("maximize or minimize") if place else None
    if place is None or text is None:
        return None
    if text not in DIRECTIONS:
        place.fail(f"there is no direction '{text}'; {choose(text, DIRECTIONS)}")
    return next((direction for direction in DIRECTIONS if direction == text), None)


def _parsed(text: str, place: Place, loads: Loads) -> Quantity | None:
    """Read `ttft_ms.p95@agent:8`."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        place.fail(f'"{shortened(text)}" is not a metric: METRIC[@WORKLOAD[:CONCURRENCY]]')
        return None
    metric, workload, level = match.groups()
    return loads.quantity(metric, workload, int(level) if level else None, place)


# --- constraints


def read_constraints(place: Place | None, loads: Loads) -> tuple[Constraint, ...]:
    found: list[Constraint] = []
    for spot in place.items('limits such as "ttft_ms.p95@agent:8 <= 500"') if place else ():
        text = spot.text("a limit")
        constraint = _constraint(text, spot, loads) if text else None
        if constraint is None:
            continue
        if any(constraint.label == other.label for other in found):
            spot.fail(f"{constraint.label} is listed twice")
            continue
        found.append(constraint)
    return tuple(found)


def _constraint(text: str, place: Place, loads: Loads) -> Constraint | None:
    match = _CONSTRAINT.fullmatch(text)
    if match is None:
        place.fail(f'"{shortened(text)}" is not a limit: METRIC[@WORKLOAD[:CONCURRENCY]] <= NUMBER')
        return None
    bound = _bound(match.group(3), place)
    quantity = _parsed(match.group(1), place, loads)
    operator = match.group(2)
    if operator not in ("<=", ">=", "<", ">"):
        place.fail(f"{operator} is no limit on a measured quantity; use <= or >=")
        return None
    if quantity is None or bound is None:
        return None
    if operator == "<=":
        return Constraint(quantity=quantity, operator="<=", bound=bound)
    if operator == ">=":
        return Constraint(quantity=quantity, operator=">=", bound=bound)
    return Constraint(quantity=quantity, operator="<" if operator == "<" else ">", bound=bound)


def _bound(word: str, place: Place) -> float | None:
    try:
        number = exact_number(word)
    except Trap as trap:
        place.fail(str(trap))
        return None
    if number is None:
        place.fail(f"the bound must be a plain number, not {shortened(word)}")
        return None
    return float(number)
