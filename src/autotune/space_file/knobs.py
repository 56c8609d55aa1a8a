"""The section `knobs`: what may turn, over which values, and when it has an effect."""

from decimal import Decimal

from autotune.model.knob import Kind, Knob, Value
from autotune.space_file.conditions import with_conditions
from autotune.space_file.grids import (
    MAX_VALUES,
    GridError,
    doubled,
    kind_of,
    logarithmic,
    stepped,
)
from autotune.space_file.names import Taken, corrected, name_problem
from autotune.space_file.place import UNREAD, Place
from autotune.space_file.problems import choose
from autotune.space_file.server import Fixed
from autotune.space_file.wording import shown

LARGEST = 2**53
"""Beyond it a float no longer holds every integer, and Optuna's storage is made of floats."""

MOST_KNOBS = 200

_SPACINGS = ("step", "log", "doubling")
_RANGE_KEYS = ("low", "high", *_SPACINGS)
_KEYS = ("choices", "type", *_RANGE_KEYS, "when", "sweep")
_MEANT_TYPES = {
    "bool": "flag",
    "boolean": "flag",
    "switch": "flag",
    "integer": "int",
    "number": "float",
    "categorical": "choices: [...] without a type",
    "choice": "choices: [...] without a type",
}


def read_knobs(place: Place | None, *, fixed: Fixed) -> tuple[dict[str, Knob], dict[str, Place]]:
    """Read every knob that can be read, and the places of all that were meant to be knobs."""
    places = place.table("names and what they may be") if place else {}
    if place is not None and len(places) > MOST_KNOBS:
        place.fail(f"has {len(places)} knobs; more than {MOST_KNOBS} cannot be searched")
        return {}, places
    knobs: dict[str, Knob] = {}
    turned = Taken()
    for name, spot in places.items():
        problem = name_problem(name) or _clash(name, turned, fixed)
        knob = _knob(name, spot)
        turned.add(name)
        if problem is not None:
            spot.fail(problem)
        elif knob is not None:
            knobs[name] = knob
    conditioned = with_conditions(knobs, places, fixed)
    # Whoever wrote max-num-seqs here means it by max_num_seqs elsewhere.
    return conditioned, {**{corrected(name): spot for name, spot in places.items()}, **places}


def _clash(name: str, turned: Taken, fixed: Fixed) -> str | None:
    held = fixed.taken.clash(name)
    if held is not None:
        section = "server.env" if held.startswith("env.") else "server.args"
        return f"is held fixed under {section} ({held}); keep it in one of the two"
    other = turned.clash(name)
    return None if other is None else f"sets the same flag as the knob {other}"


# --- values


def _knob(name: str, place: Place) -> Knob | None:
    if not place.is_table:
        place.fail("must be a mapping such as {choices: [1, 2, 4]}")
        return None
    fields = place.fields(_KEYS)
    sweep = fields["sweep"].boolean() if "sweep" in fields else None
    found = _values(place, fields)
    if found is None:
        return None
    values, kind = found
    return Knob(name=name, values=values, kind=kind, sweep=sweep)


def _values(place: Place, fields: dict[str, Place]) -> tuple[tuple[Value, ...], Kind] | None:
    if "choices" in fields:
        _refuse_keys(fields, ("type", *_RANGE_KEYS), "does not go with choices")
        return _choices(fields["choices"])
    if "type" not in fields:
        place.fail("needs choices: [...] or type: int, float or flag")
        return None
    kind = fields["type"].text("int, float or flag")
    if kind == "flag":
        _refuse_keys(fields, _RANGE_KEYS, "does not go with type: flag")
        return (False, True), "categorical"
    if kind in ("int", "float"):
        return _range(place, fields, whole=kind == "int")
    if kind is not None:
        meant = _MEANT_TYPES.get(kind.lower())
        hint = f"write {meant}" if meant else choose(kind, ("int", "float", "flag"))
        fields["type"].fail(f"there is no type {kind}; {hint}")
    return None


def _refuse_keys(fields: dict[str, Place], keys: tuple[str, ...], why: str) -> None:
    for key in keys:
        if key in fields:
            fields[key].fail(why)


def _choices(place: Place) -> tuple[tuple[Value, ...], Kind] | None:
    spots = place.items("values")
    if len(spots) > MAX_VALUES:
        place.fail(f"has {len(spots)} values, more than {MAX_VALUES}")
        return None
    found = [(spot, value) for spot in spots if (value := spot.value()) is not UNREAD]
    values: list[Value] = []
    for spot, value in found:
        # Python's own equality, on purpose: Optuna's storage takes 1, 1.0 and true for one choice.
        twin = next((own for own in values if own == value), UNREAD)
        if twin is UNREAD:
            values.append(value)
        elif type(twin) is type(value):
            spot.fail(f"{shown(value)} is listed twice")
        else:
            spot.fail(
                f"{shown(value)} and {shown(twin)} are one choice to Optuna; keep one of them"
            )
    if len(found) < len(spots) or not (place.is_list or place.blank):
        return None
    if len(spots) < 2:  # noqa: PLR2004 -- one value is no choice
        place.fail("needs at least two values; hold a single one fixed under server.args")
        return None
    return tuple(values), kind_of(values)


def _range(
    place: Place, fields: dict[str, Place], *, whole: bool
) -> tuple[tuple[Value, ...], Kind] | None:
    low, high = (_bound(place, fields, key, whole=whole) for key in ("low", "high"))
    spacing = _spacing(place, fields, whole=whole)
    if low is None or high is None or spacing is None:
        return None
    if low >= high:
        place.fail(f"low {low} is not below high {high}")
        return None
    step, log = spacing
    try:
        if step is not None:
            grid = stepped(low, high, step)
        else:
            grid = logarithmic(low, high, whole=whole) if log else doubled(low, high)
    except GridError as error:
        place.fail(str(error))
        return None
    values: tuple[Value, ...] = tuple(int(point) if whole else float(point) for point in grid)
    return values, "log" if step is None else kind_of(values)


def _bound(place: Place, fields: dict[str, Place], key: str, *, whole: bool) -> Decimal | None:
    if key not in fields:
        place.fail(f"needs {key}")
        return None
    if whole:
        number = fields[key].integer(low=-LARGEST, high=LARGEST)
        return None if number is None else Decimal(number)
    return fields[key].number()


def _spacing(
    place: Place, fields: dict[str, Place], *, whole: bool
) -> tuple[Decimal | None, bool] | None:
    """Read how a range is cut: (step, False), (None, True) for log, (None, False) for doubling."""
    log, doubling = (key in fields and fields[key].boolean() for key in ("log", "doubling"))
    given = [key for key in _SPACINGS if key in fields]
    if None in (log, doubling):
        return None
    if len(given) > 1:
        place.fail(f"takes one of step, log and doubling, not {' and '.join(given)}")
        return None
    if "step" in fields:
        step = _step(fields["step"], whole=whole)
        return None if step is None else (step, False)
    if log or doubling:
        return None, bool(log)
    if not whole:
        place.fail("a float needs step: NUMBER, log: true or doubling: true")
        return None
    return Decimal(1), False


def _step(place: Place, *, whole: bool) -> Decimal | None:
    if whole:
        number = place.integer(low=1, high=LARGEST)
        return None if number is None else Decimal(number)
    step = place.number()
    if step is not None and step <= 0:
        place.fail(f"must be above 0, not {step}")
        return None
    return step
