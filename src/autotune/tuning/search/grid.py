"""The declared grid as arrays: one row of value positions a configuration.

Positions live here and nowhere else; Optuna and vLLM only ever see the values. Which knobs have an
effect, and which rows break a rule, is asked of the search space once for each combination that
matters, so that thousands of rows cost next to nothing.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.model.knob import Knob, Value
from autotune.model.search_space import SearchSpace
from autotune.model.serving_config import DRAFT_LENGTH, SPECULATIVE
from autotune.tuning.search.distributions import snap

Rows = NDArray[np.int64]
Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]

# A categorical difference counts 1, active against inactive 0.5, as squared distances of features.
_CATEGORY = math.sqrt(0.5)
# Together with the mean squared distance of a coordinate from the middle (1/12) this makes 0.5.
_ACTIVITY = math.sqrt(0.5 - 1 / 12)


class Grid:
    """Rows of positions for one search space."""

    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        self.knobs = space.knobs
        self.sizes = np.array([len(knob.values) for knob in space.knobs], dtype=np.int64)
        self.ordinal = np.array([knob.kind != "categorical" for knob in space.knobs])
        self._coordinates = [_coordinates(knob) for knob in space.knobs]
        self._activity = [self._activity_table(position) for position in range(len(self.knobs))]
        self._rules = [self._rule_table(number) for number in range(len(space.rules))]
        self.baseline = self.row(space.baseline)

    def position(self, name: str) -> int:
        return next(place for place, knob in enumerate(self.knobs) if knob.name == name)

    def row(self, values: Mapping[str, Value]) -> Rows:
        """Find the nearest row; what is no number must be on the grid."""
        positions = [knob.index(snap(knob, values[knob.name])) for knob in self.knobs]
        return np.array(positions, dtype=np.int64)

    def values(self, row: Rows) -> dict[str, Value]:
        return {
            knob.name: knob.values[int(place)] for knob, place in zip(self.knobs, row, strict=True)
        }

    def active(self, rows: Rows) -> Flags:
        """Tell which knobs have an effect, a column each."""
        return np.column_stack([table(rows) for table in self._activity])

    def canonical(self, rows: Rows) -> Rows:
        """Set knobs without effect to their first value: equal servers become equal rows."""
        return np.where(self.active(rows), rows, 0)

    def keys(self, rows: Rows) -> list[bytes]:
        return [row.tobytes() for row in self.canonical(rows)]

    def legal(self, rows: Rows) -> Flags:
        """Tell which rows keep every declared rule."""
        kept = np.ones(len(rows), dtype=bool)
        for broken in self._rules:
            kept &= ~broken(rows)
        return kept

    def random(self, generator: np.random.Generator, count: int) -> Rows:
        return generator.integers(0, self.sizes, size=(count, len(self.sizes)))

    def every(self) -> Rows:
        """List all rows; for grids that are small."""
        return np.stack(
            [axis.ravel() for axis in np.meshgrid(*map(np.arange, self.sizes), indexing="ij")],
            axis=1,
        )

    def mutated(self, parents: Rows, generator: np.random.Generator, count: int) -> Rows:
        """Change one to three knobs of random parents: a category at will, a number by two steps."""
        children = parents[generator.integers(0, len(parents), count)]
        chance = generator.integers(1, 4, count) / len(self.sizes)
        changed = generator.random(children.shape) < chance[:, None]
        steps = generator.choice(np.array([-2, -1, 1, 2]), size=children.shape)
        stepped = np.clip(children + steps, 0, self.sizes - 1)
        fresh = self.random(generator, count)
        return np.where(changed, np.where(self.ordinal, stepped, fresh), children)

    def features(self, rows: Rows) -> Numbers:
        """Give coordinates whose squared distances are those of the knobs (see `owners`)."""
        active = self.active(rows)
        columns: list[Numbers] = []
        for place, coordinates in enumerate(self._coordinates):
            on = active[:, place]
            if coordinates is None:
                hot = np.eye(self.sizes[place])[rows[:, place]] * _CATEGORY
                columns.append(np.where(on[:, None], hot, 0.0))
                continue
            scaled = np.where(on, coordinates[rows[:, place]], 0.5)
            columns.append(np.column_stack([scaled, on * _ACTIVITY]))
        return np.concatenate(columns, axis=1)

    def owners(self) -> Rows:
        """Say to which knob each feature belongs."""
        widths = [
            size if coordinates is None else 2
            for size, coordinates in zip(self.sizes, self._coordinates, strict=True)
        ]
        return np.repeat(np.arange(len(self.sizes)), widths)

    # --- what depends on few knobs is looked up

    def _activity_table(self, position: int) -> Callable[[Rows], Flags]:
        knob = self.knobs[position]
        names = self._governors(knob)

        def holds(values: Mapping[str, Value]) -> bool:
            return knob.name in self.space.active(values)

        return self._lookup(names, holds)

    def _rule_table(self, number: int) -> Callable[[Rows], Flags]:
        rule = self.space.rules[number]
        named = [knob for knob in self.knobs if knob.name in rule.names()]
        names = {knob.name for knob in named}.union(*(self._governors(knob) for knob in named))

        def broken(values: Mapping[str, Value]) -> bool:
            return rule.broken_by(self.space.config(values).settings)

        return self._lookup(names, broken)

    def _governors(self, knob: Knob) -> set[str]:
        """Name every knob on which the activity of this one depends."""
        own = {name: other for other in self.knobs if (name := other.name)}
        found: set[str] = set()
        waiting = [knob]
        while waiting:
            asking = waiting.pop()
            names = {condition.name for condition in asking.when}
            if asking.name.startswith(SPECULATIVE + ".") and asking.name != DRAFT_LENGTH:
                names.add(DRAFT_LENGTH)
            fresh = {name for name in names if name in own} - found
            found |= fresh
            waiting += [own[name] for name in fresh]
        return found

    def _lookup(
        self, names: Iterable[str], holds: Callable[[Mapping[str, Value]], bool]
    ) -> Callable[[Rows], Flags]:
        wanted = set(names)
        places = [place for place, knob in enumerate(self.knobs) if knob.name in wanted]
        if not places:
            constant = holds(self.space.baseline)
            return lambda rows: np.full(len(rows), constant)
        known: dict[int, bool] = {}
        sizes = self.sizes[places]
        weights = np.concatenate([[1], np.cumprod(sizes[:-1])]).astype(np.int64)

        def look(rows: Rows) -> Flags:
            codes = rows[:, places] @ weights
            different, back = np.unique(codes, return_inverse=True)
            answers = np.empty(len(different), dtype=bool)
            for number, code in enumerate(different.tolist()):
                if code not in known:
                    changed = {
                        self.knobs[place].name: self.knobs[place].values[code // weight % size]
                        for place, weight, size in zip(
                            places, weights.tolist(), sizes.tolist(), strict=True
                        )
                    }
                    known[code] = holds({**self.space.baseline, **changed})
                answers[number] = known[code]
            return np.asarray(answers[back.ravel()], dtype=bool)

        return look


def _coordinates(knob: Knob) -> Numbers | None:
    """Place an ordinal's values in [0, 1]: by their position, or by their logarithm."""
    if knob.kind == "categorical":
        return None
    if knob.kind == "log":
        return _scaled(
            [
                math.log(value)
                for value in knob.values
                if isinstance(value, int | float) and value > 0
            ],
            knob,
        )
    return _scaled(list(range(len(knob.values))), knob)


def _scaled(places: Sequence[float], knob: Knob) -> Numbers:
    # A list that mixes in a zero or a word has no logarithms for all: then only the order counts.
    array = np.array(places if len(places) == len(knob.values) else range(len(knob.values)), float)
    spread = np.ptp(array) or 1.0
    return np.asarray((array - array.min()) / spread)
