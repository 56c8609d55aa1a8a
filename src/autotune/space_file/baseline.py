"""The sections `baseline` and `rules`: where the search starts, and what must hold between settings."""

import re
from collections.abc import Mapping, Sequence

from autotune.model.knob import Knob, Operator, Value, is_number
from autotune.model.objective import Rule
from autotune.model.search_space import SearchSpace
from autotune.model.serving_config import Setting
from autotune.space_file.conditions import OPERATORS
from autotune.space_file.place import UNREAD, Place
from autotune.space_file.problems import choose, closest, shortened
from autotune.space_file.scalars import Trap, exact_number
from autotune.space_file.server import Fixed
from autotune.space_file.wording import near, shown

ORDERED = (">=", "<=", ">", "<")
_RULE = re.compile(r"\s*([^\s<>=!]+)\s*(>=|<=|==|!=|>|<)\s*([^\s<>=!]+)\s*")


def read_baseline(
    place: Place | None,
    *,
    knobs: Mapping[str, Knob],
    meant: Mapping[str, Place],
    fixed: Fixed,
) -> dict[str, Value]:
    """Read where every knob starts: the first value of its grid unless the file says otherwise.

    A knob whose start is wrong is left out, so that nothing is concluded from it.
    """
    baseline: dict[str, Value] = {name: knob.values[0] for name, knob in knobs.items()}
    for name, spot in (place.table("knobs and their values") if place else {}).items():
        value = spot.value()
        if name not in meant and not fixed.is_unread(name):
            held = "is held fixed under server.args; only knobs start somewhere"
            strange = f"is not a knob; {choose(name, list(meant))}"
            spot.fail(held if name in fixed.known else strange)
            baseline.pop(closest(name, list(meant)) or name, None)
        if name not in knobs or value is UNREAD:
            baseline.pop(name, None)
        elif value not in knobs[name]:
            spot.fail(f"{shown(value)} is not on the knob's grid; {near(knobs[name], value)}")
            del baseline[name]
        else:
            baseline[name] = knobs[name].values[knobs[name].index(value)]
    return baseline


def read_rules(
    place: Place | None,
    *,
    knobs: Mapping[str, Knob],
    meant: Mapping[str, Place],
    fixed: Fixed,
) -> list[tuple[Rule, Place]]:
    rules = []
    for spot in (
        place.items('comparisons such as "max_num_batched_tokens >= max_num_seqs"') if place else ()
    ):
        text = spot.text("a comparison")
        rule = _rule(text, spot, knobs=knobs, meant=meant, fixed=fixed) if text else None
        if rule is not None:
            rules.append((rule, spot))
    return rules


def _rule(
    text: str,
    place: Place,
    *,
    knobs: Mapping[str, Knob],
    meant: Mapping[str, Place],
    fixed: Fixed,
) -> Rule | None:
    match = _RULE.fullmatch(text)
    if match is None:
        place.fail(
            f'"{shortened(text)}" is not a comparison: NAME OPERATOR NAME-or-number, with {" ".join(OPERATORS)}'
        )
        return None
    operator = next(own for own in OPERATORS if own == match.group(2))
    words = (match.group(1), match.group(3))
    sides = [_side(word, operator, place, knobs=knobs, meant=meant, fixed=fixed) for word in words]
    left, right = sides
    if left is None or right is None:
        return None
    if not any(word in meant for word in words):
        place.fail("names no knob, so it holds always or never")
        return None
    return Rule(left=left, operator=operator, right=right)


def _side(
    word: str,
    operator: Operator,
    place: Place,
    *,
    knobs: Mapping[str, Knob],
    meant: Mapping[str, Place],
    fixed: Fixed,
) -> str | float | None:
    known = fixed.known
    number = _number(word)
    if number is not None:
        return number
    if fixed.is_unread(word):
        return None
    if word not in meant and word not in known:
        names = [*meant, *known]
        place.fail(f"{word} is neither a knob nor under server.args; {choose(word, names)}")
        return None
    values: Sequence[Setting] = (known[word],) if word in known else ()
    values = knobs[word].values if word in knobs else values
    if operator in ORDERED and values and not any(is_number(value) for value in values):
        place.fail(f"{word} holds no numbers ({shown(values[0])}), so {operator} means nothing")
        return None
    if word in known and word not in fixed.args and is_number(known[word]):
        # The model knows fixed flags by name, but not the keys inside a fixed JSON flag.
        return float(known[word])
    return word


def _number(word: str) -> float | None:
    try:
        number = exact_number(word)
    except Trap:
        return None
    return None if number is None else float(number)


def refuse_broken_baseline(space: SearchSpace, rules: Sequence[tuple[Rule, Place]]) -> None:
    """Note every rule that the baseline breaks: it would end the study before it starts."""
    settings = space.config(space.baseline).settings
    for rule, place in rules:
        if rule.broken_by(settings):
            held = ", ".join(f"{name} is {shown(settings[name])}" for name in rule.names())
            place.fail(f"the baseline breaks {rule.text}: {held}")
