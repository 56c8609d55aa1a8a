"""Which measurements would enter the front: those are asked longer before they do."""

from collections.abc import Iterable, Sequence

from autotune.model.measurement import Measurement, geometric_mean
from autotune.model.objective import Objective


def is_finalist(
    measurement: Measurement, rivals: Iterable[Measurement], objectives: Sequence[Objective]
) -> bool:
    """Tell whether no rival is at least as good in every objective.

    Noise is not looked at: who is on the edge is asked longer once too often.
    """
    own = _signed(measurement, objectives)
    if own is None:
        return False
    known = (_signed(rival, objectives) for rival in rivals)
    return not any(
        other is not None and all(theirs >= ours for theirs, ours in zip(other, own, strict=True))
        for other in known
    )


def _signed(measurement: Measurement, objectives: Sequence[Objective]) -> list[float] | None:
    """Average each objective, larger is better; None where one is not known."""
    found: list[float] = []
    for objective in objectives:
        values = measurement.values(objective.quantity)
        if not values:
            return None
        sign = 1.0 if objective.direction == "maximize" else -1.0
        found.append(sign * geometric_mean(values))
    return found
