"""The greedy one-change sweep: what each category does, one knob at a time, the best kept.

Nothing is remembered: what was measured so far says which step comes next. Numbers are not swept,
since a low and a high trial of each were found to cost more than they tell; they are the model's job.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from autotune.model.serving_config import DRAFT_LENGTH
from autotune.tuning.search.grid import Grid, Rows

MOST_STEPS = 15
"""Beyond this many steps only the knobs that matter most are swept, unless the file says otherwise."""

_IMPORTANT = (
    "moe_backend",
    "attention_backend",
    DRAFT_LENGTH,
    "speculative_config",
    "async_scheduling",
    "kv_cache_dtype",
    "cudagraph_mode",
)
_MOST_PARTNERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What history says of a step: its score where it is feasible."""

    state: Literal["unknown", "pending", "failed", "good"]
    score: float = 0.0


def next_step(
    grid: Grid, look_up: Callable[[Rows], Known], *, start: Rows | None = None
) -> Rows | None:
    """Find the first step of the sweep that nobody has tried; None once there is nothing to do.

    Steps of a knob that are still running hold the sweep up, as the best of them is not known.

    start: where it begins, unless at the baseline
    """
    incumbent = grid.baseline if start is None else start
    best = _score(look_up(incumbent))
    for position in (None, *order(grid)):
        tried: list[tuple[float, Rows]] = []
        waiting = False
        proposed = (
            load_steps(grid, incumbent) if position is None else steps(grid, incumbent, position)
        )
        for step in _legal(grid, proposed):
            known = look_up(step)
            if known.state == "unknown":
                return step
            waiting |= known.state == "pending"
            tried.append((_score(known), step))
        if waiting:
            return None
        # Equal scores keep the earlier one: a step that changes nothing is not worth adopting.
        for score, step in tried:
            if score > best:
                incumbent, best = step, score
    return None


def load_steps(grid: Grid, incumbent: Rows) -> Iterator[Rows]:
    """Make room for every request of the load, then for their prompts as well.

    What a baseline leaves too small hides what the categories do: a queue drowns every other effect.
    """
    names = [knob.name for knob in grid.knobs]
    changed = incumbent
    for name, need in (
        ("max_num_seqs", _offered(grid)),
        ("max_num_batched_tokens", _prompts(grid)),
    ):
        if name not in names:
            continue
        place = names.index(name)
        numbers = [value for value in grid.knobs[place].values if isinstance(value, int)]
        if len(numbers) < grid.sizes[place] or numbers[int(incumbent[place])] >= need:
            continue
        enough = [value for value in numbers if value >= need]
        changed = changed.copy()
        changed[place] = numbers.index(min(enough) if enough else max(numbers))
        yield changed


def _offered(grid: Grid) -> int:
    return max(max(workload.concurrency) for workload in grid.space.workloads)


def _prompts(grid: Grid) -> int:
    return max(2 * workload.input_tokens for workload in grid.space.workloads)


def order(grid: Grid) -> list[int]:
    """List the knobs to sweep, those expected to matter most first, as many as are worth it."""
    swept = [place for place in range(len(grid.knobs)) if _is_swept(grid, place)]
    swept.sort(key=lambda place: (_rank(grid.knobs[place].name), place))
    chosen: list[int] = []
    total = 0
    for place in swept:
        count = 1 if grid.ordinal[place] else int(grid.sizes[place]) - 1
        if grid.knobs[place].sweep or total + count <= MOST_STEPS:
            chosen.append(place)
            total += count
    return chosen


def steps(grid: Grid, incumbent: Rows, position: int) -> Iterator[Rows]:
    """Change one knob of the incumbent to each other value, with what this switches on."""
    if not grid.active(incumbent[None])[0, position]:
        return
    for value in _values(grid, incumbent, position):
        changed = incumbent.copy()
        changed[position] = value
        yield from _partners(grid, incumbent, changed)


def _values(grid: Grid, incumbent: Rows, position: int) -> list[int]:
    now = int(incumbent[position])
    every = [value for value in range(int(grid.sizes[position])) if value != now]
    if not grid.ordinal[position] or not _is_switch(grid, position):
        return every
    off = _off(grid, position)
    if now == off:
        return [(len(every) - 1) // 2 + (1 if off == 0 else 0)]
    return [off]


def _partners(grid: Grid, incumbent: Rows, changed: Rows) -> Iterator[Rows]:
    """Try each value of a category that the change switches on; a category tried here is not again."""
    before, after = grid.active(np.stack([incumbent, changed]))
    woken = [
        place
        for place in range(len(grid.knobs))
        if after[place] and not before[place] and not grid.ordinal[place]
    ]
    if len(woken) != 1 or grid.knobs[woken[0]].sweep is False:
        yield changed
        return
    for value in range(min(int(grid.sizes[woken[0]]), _MOST_PARTNERS)):
        step = changed.copy()
        step[woken[0]] = value
        yield step


def _is_swept(grid: Grid, position: int) -> bool:
    knob = grid.knobs[position]
    if knob.sweep is not None:
        return knob.sweep
    return not grid.ordinal[position] or _is_switch(grid, position)


def _is_switch(grid: Grid, position: int) -> bool:
    """Tell whether a number also switches something on: one of its values leaves other knobs idle."""
    knob = grid.knobs[position]
    if knob.name == DRAFT_LENGTH:
        return 0 in knob.values
    return any(
        condition.name == knob.name
        and not all(condition.holds({knob.name: v}) for v in knob.values)
        for other in grid.knobs
        for condition in other.when
    )


def _off(grid: Grid, position: int) -> int:
    """Find the value with which fewest knobs have an effect."""
    rows = np.repeat(grid.baseline[None], int(grid.sizes[position]), axis=0)
    rows[:, position] = np.arange(int(grid.sizes[position]))
    knob = grid.knobs[position]
    if knob.name == DRAFT_LENGTH:
        return knob.values.index(0)
    return int(np.argmin(grid.active(rows).sum(axis=1)))


def _rank(name: str) -> int:
    for rank, prefix in enumerate(_IMPORTANT):
        if name == prefix or name.startswith(prefix + ".") or name.endswith(prefix):
            # The draft's own backend comes after the switch that gives it an effect.
            return _IMPORTANT.index("speculative_config") if _is_draft_option(name) else rank
    return len(_IMPORTANT)


def _is_draft_option(name: str) -> bool:
    return name.startswith("speculative_config.") and name != DRAFT_LENGTH


def _legal(grid: Grid, candidates: Iterator[Rows]) -> list[Rows]:
    listed = list(candidates)
    if not listed:
        return []
    rows = np.stack(listed)
    kept = grid.legal(rows)
    return [row for row, legal in zip(listed, kept, strict=True) if legal]


def _score(known: Known) -> float:
    return known.score if known.state == "good" else -np.inf
