"""Settings and knobs as messages show them."""

from collections.abc import Iterator, Sequence

from autotune.model.knob import Knob, Value, is_number
from autotune.model.serving_config import Setting
from autotune.space_file.problems import choose, listed, shortened


def shown(value: Setting) -> str:
    """Show a value the way the file writes it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else shortened(str(value))


def near(knob: Knob, value: Value) -> str:
    """Point at the values of a knob next to one that it does not take."""
    if isinstance(value, int | float) and is_number(value) and knob.kind != "categorical":
        neighbors = [shown(own) for own in _nearest(knob.values, value)]
        return f"the nearest {'are' if len(neighbors) > 1 else 'is'} {' and '.join(neighbors)}"
    if isinstance(value, str):
        return choose(value, [shown(own) for own in knob.values])
    return f"choose from: {values_of(knob)}"


def values_of(knob: Knob) -> str:
    return listed(shown(value) for value in knob.values)


def _nearest(values: Sequence[Value], wanted: float) -> Iterator[Value]:
    """Find the neighbors of a number among values, in their order."""
    numbers = [value for value in values if isinstance(value, int | float) and is_number(value)]
    below = max((number for number in numbers if number < wanted), default=None)
    above = min((number for number in numbers if number > wanted), default=None)
    yield from (number for number in (below, above) if number is not None)
