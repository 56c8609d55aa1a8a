"""A knob: one vLLM setting and the finite list of values it may take."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Value: TypeAlias = bool | int | float | str | None
"""What a knob may hold: the very value vLLM gets. `None` leaves the flag out (vLLM's own default)."""

Kind: TypeAlias = Literal["categorical", "linear", "log"]
Operator: TypeAlias = Literal["==", "!=", ">=", "<=", ">", "<"]


def is_number(value: object) -> bool:
    """Tell numbers from booleans, which Python counts among the integers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(left: Value, right: Value) -> bool:
    """Compare two values; `True` and `1` are different settings although Python calls them equal."""
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def compare(left: Value, operator: Operator, right: Value) -> bool:
    """Hold `left` against `right`; an order between values that have none (text, flags) is false.

    >>> compare(4, ">=", 2), compare("auto", ">=", 2)
    (True, False)
    """
    if operator == "==":
        return same(left, right)
    if operator == "!=":
        return not same(left, right)
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return False
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    return {">=": left >= right, "<=": left <= right, ">": left > right, "<": left < right}[
        operator
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Another setting that must hold for a knob to have any effect.

    name: the setting that is looked at; operator and operands: true when any operand compares true.
    """

    name: str
    operator: Operator
    operands: tuple[Value, ...]

    def holds(self, settings: Mapping[str, Value]) -> bool:
        value = settings.get(self.name)
        return any(compare(value, self.operator, operand) for operand in self.operands)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One vLLM setting that the search may turn.

    name: `max_num_seqs`, a key of a JSON flag (`speculative_config.method`) or `env.VAR`
    values: every value it may take, in order; the first one stands for "inactive"
    kind: how far two values are apart: not at all (categorical), evenly, or by their ratio
    when: conditions that all must hold, else the knob is inactive
    sweep: whether the one-change sweep tries each value; None lets the search decide
    """

    name: str
    values: tuple[Value, ...]
    kind: Kind
    when: tuple[Condition, ...] = ()
    sweep: bool | None = None

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"{self.name}: a knob needs at least one value")

    def __contains__(self, value: Value) -> bool:
        return any(same(value, own) for own in self.values)

    def index(self, value: Value) -> int:
        """Find the position of a value on the grid.

        Raises:
            ValueError: The value is not one of the knob's.
        """
        for position, own in enumerate(self.values):
            if same(value, own):
                return position
        raise ValueError(f"{self.name}: {value!r} is not among {list(self.values)}")
