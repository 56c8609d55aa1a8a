"""Plug-ins as the file names them: launcher, gates, sampler; and when the study ends."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from autotune.model.search_space import Limits, Part
from autotune.space_file.paths import as_path, is_file
from autotune.space_file.place import UNREAD, Place
from autotune.space_file.problems import choose, closest, listed, shortened

DEFAULT_GATES = ("json_schema", "tool_calls")
THOROUGH: Mapping[str, Mapping[str, object]] = {
    "json_schema": {"finalist_calls": 6},
    "equivalence": {},
    "tool_calls": {"finalist_calls": 3},
}
"""`gates: thorough`: some 48 questions of each kind before a configuration enters the front."""
DEFAULT_SAMPLER = "serving"
_TIME_OF_DAY = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


def read_part(
    noun: str,
    place: Place | None,
    *,
    options: Mapping[str, Place],
    known: Mapping[str, frozenset[str]],
    default: str,
    own_keys: Collection[str] = (),
) -> Part:
    """Read a plug-in whose options stand beside its name."""
    kind = place.text(f"the name of a {noun}") if place else default
    if place is not None and kind is not None and known and kind not in known:
        place.fail(f"there is no {noun} called '{kind}'; {choose(kind, known)}")
        kind = None
    values = _options(noun, kind, options, known, own_keys)
    return Part(kind=kind or default, options=values, where=place.where if place else "")


def _options(
    noun: str,
    kind: str | None,
    options: Mapping[str, Place],
    known: Mapping[str, frozenset[str]],
    own_keys: Collection[str] = (),
) -> dict[str, object]:
    """Read options as they stand; what a plug-in's fields accept is checked where it is made."""
    values: dict[str, object] = {}
    for key, place in options.items():
        allowed = known.get(kind) if kind else None
        if allowed is not None and key not in allowed:
            choices = sorted({*allowed, *own_keys})
            place.fail(f"the {noun} {kind} has no such option; {choose(key, choices)}")
            continue
        if not known and (meant := closest(key, own_keys, cutoff=0.85)):
            place.fail(f"there is no such key; did you mean {meant}?")
            continue
        value = place.setting()
        if value is not UNREAD:
            values[key] = value
    return values


def read_gates(
    place: Place | None,
    *,
    folder: Path,
    known: Mapping[str, frozenset[str]],
    must_exist: bool = True,
) -> tuple[Part, ...]:
    """Read the gates. No such key means the default ones; a mapping lists all there are.

    Two words stand for themselves: `none`, and `thorough` for the defaults with longer questioning
    of what would enter the front.
    """
    if place is None:
        return tuple(Part(kind=name) for name in DEFAULT_GATES)
    if place.word == "none":
        return ()
    if place.word == "thorough":
        return tuple(Part(kind=name, options=dict(options)) for name, options in THOROUGH.items())
    if place.blank:
        defaults = listed(DEFAULT_GATES)
        place.fail(
            f"is empty; write none for no gates, or drop the key for the default: {defaults}"
        )
        return ()
    entries = place.table("gates and their options").items()
    gates = (
        _gate(name, spot, folder=folder, known=known, must_exist=must_exist)
        for name, spot in entries
    )
    return tuple(gate for gate in gates if gate is not None)


def _gate(
    name: str,
    place: Place,
    *,
    folder: Path,
    known: Mapping[str, frozenset[str]],
    must_exist: bool,
) -> Part | None:
    if known and name not in known:
        place.fail(f"there is no gate called '{name}'; {choose(name, known)}")
        return None
    if place.word is not None and not place.blank:
        switched_on = place.boolean()
        return Part(kind=name, where=place.where) if switched_on else None
    fields = place.table("options")
    options = _options("gate", name, fields, known)
    if isinstance(options.get("file"), str):
        path = as_path(str(options["file"]), folder)
        if must_exist and not is_file(path):
            fields["file"].fail(f"there is no file {path}")
        options["file"] = path
    return Part(kind=name, options=options, where=place.where)


def read_sampler(place: Place | None, *, known: Mapping[str, frozenset[str]]) -> Part:
    entries = place.table("the sampler and its options") if place else {}
    return read_part(
        "sampler",
        entries.pop("sampler", None),
        options=entries,
        known=known,
        default=DEFAULT_SAMPLER,
        own_keys=("sampler",),
    )


def read_limits(place: Place | None) -> Limits:
    fields = place.fields(("trials", "hours", "until")) if place else {}
    trials, hours, until = (fields.get(key) for key in ("trials", "hours", "until"))
    return Limits(
        trials=trials.integer(low=1, high=1_000_000) if trials else None,
        hours=hours.positive("hours") if hours else None,
        until=_time_of_day(until) if until else None,
    )


def _time_of_day(place: Place) -> str | None:
    """Read `7:00`, a base-60 number to YAML 1.1, as the time of day that it evidently is."""
    text = place.raw()
    match = _TIME_OF_DAY.fullmatch(text.strip()) if text is not None else None
    if match is not None:
        return f"{int(match.group(1)):02d}:{match.group(2)}"
    if text is not None:
        place.fail(f'must be a time of day such as "07:00", not {shortened(text)}')
    return None
