"""Conditions of knobs (`when`): other settings that must hold for a knob to have an effect."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import get_args

from autotune.model.knob import Condition, Knob, Operator, Value, compare, is_number
from autotune.model.serving_config import Setting
from autotune.space_file.names import corrected
from autotune.space_file.place import UNREAD, Place
from autotune.space_file.problems import choose
from autotune.space_file.scalars import Trap, plain_value
from autotune.space_file.server import Fixed
from autotune.space_file.wording import near, shown, values_of

OPERATORS: tuple[Operator, ...] = get_args(Operator)

MOST_PATHS = 100

_LONGEST_FIRST = sorted(OPERATORS, key=len, reverse=True)


def with_conditions(
    knobs: Mapping[str, Knob], places: Mapping[str, Place], fixed: Fixed
) -> dict[str, Knob]:
    conditioned = dict(knobs)
    meant = {*places, *map(corrected, places)}
    for name, knob in knobs.items():
        when = places[name].table("").get("when")
        entries = when.table("settings and their values").items() if when else ()
        found = [
            _condition(name, other, spot, knobs=knobs, meant=meant, fixed=fixed)
            for other, spot in entries
        ]
        conditions = tuple(condition for condition in found if condition is not None)
        conditioned[name] = replace(knob, when=conditions)
    # Following conditions that run in circles, or branch without bound, might never end.
    return conditioned if _are_bounded(conditioned, places) else dict(knobs)


def _condition(
    name: str,
    other: str,
    place: Place,
    *,
    knobs: Mapping[str, Knob],
    meant: Collection[str],
    fixed: Fixed,
) -> Condition | None:
    known = fixed.known
    if other == name:
        place.fail("a knob cannot depend on itself")
        return None
    if fixed.is_unread(other):
        return None
    if other not in meant and other not in known:
        names = [*meant, *known]
        place.fail(f"{other} is neither a knob nor under server.args; {choose(other, names)}")
        return None
    condition = _read_condition(other, place)
    if condition is None or (other in meant and other not in knobs):
        return None
    if other in knobs:
        return condition if _is_possible(condition, knobs[other], place) else None
    if not condition.holds({other: _plain(known[other])}):
        place.fail(f"{other} is fixed at {shown(known[other])}, so this knob never has an effect")
        return None
    # The model knows fixed flags by name, but not the keys inside a fixed JSON flag.
    return condition if other in fixed.args else None


def _read_condition(other: str, place: Place) -> Condition | None:
    word = (place.word or "").strip()
    operator = next((own for own in _LONGEST_FIRST if word.startswith(own)), None)
    if operator is None:
        return _read_equality(other, place)
    try:
        operand = plain_value(word.removeprefix(operator).strip())
    except Trap as trap:
        place.fail(str(trap))
        return None
    if operator not in ("==", "!=") and not is_number(operand):
        place.fail(f"{operator} compares numbers, not {shown(operand)}")
        return None
    return Condition(name=other, operator=operator, operands=(operand,))


def _read_equality(other: str, place: Place) -> Condition | None:
    operands = [spot.value() for spot in place.one_or_more()]
    read = tuple(operand for operand in operands if operand is not UNREAD)
    if not operands:
        place.fail("is an empty list, which no value meets")
    if not read or len(read) < len(operands):
        return None
    return Condition(name=other, operator="==", operands=read)


def _is_possible(condition: Condition, knob: Knob, place: Place) -> bool:
    if condition.operator == "==":
        strange = [operand for operand in condition.operands if operand not in knob]
        for operand in strange:
            place.fail(f"{knob.name} is never {shown(operand)}; {near(knob, operand)}")
        return not strange
    (operand,) = condition.operands
    if any(compare(value, condition.operator, operand) for value in knob.values):
        return True
    place.fail(
        f"{knob.name} is never {condition.operator} {shown(operand)}; its values: {values_of(knob)}"
    )
    return False


def _are_bounded(knobs: Mapping[str, Knob], places: Mapping[str, Place]) -> bool:
    told: set[str] = set()
    for name in knobs:
        cycle = _cycle(name, knobs)
        if cycle and not told & set(cycle):
            told |= set(cycle)
            places[name].missing("when", f"the conditions run in a circle: {' -> '.join(cycle)}")
    tangled = [] if told else [name for name in knobs if _is_tangled(name, knobs)]
    for name in tangled:
        places[name].missing("when", f"depends on more than {MOST_PATHS} chains of conditions")
    return not told and not tangled


def _is_tangled(name: str, knobs: Mapping[str, Knob]) -> bool:
    """Tell whether following all conditions, as every trial does, would take too many steps."""
    paths = [name]
    steps = 0
    while paths and steps <= MOST_PATHS:
        steps += 1
        knob = knobs.get(paths.pop())
        paths += [condition.name for condition in knob.when] if knob else []
    return steps > MOST_PATHS


def _cycle(start: str, knobs: Mapping[str, Knob]) -> list[str]:
    """Follow the conditions from a knob until it turns up again."""
    paths = [[start]]
    seen = {start}
    while paths:
        path = paths.pop()
        for condition in knobs[path[-1]].when if path[-1] in knobs else ():
            if condition.name == start:
                return [*path, start]
            if condition.name not in seen:
                seen.add(condition.name)
                paths.append([*path, condition.name])
    return []


def _plain(value: Setting) -> Value:
    return value if isinstance(value, bool | int | float | str) else None
