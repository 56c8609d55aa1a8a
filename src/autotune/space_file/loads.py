"""The section `workloads`: lengths, levels of concurrency, requests."""

import re
from collections.abc import Mapping

from autotune.model.presets import PRESETS, Preset, default_requests
from autotune.model.search_space import WorkloadSpec
from autotune.space_file.place import Place
from autotune.space_file.problems import choose

DEFAULT_PRESET = "agent"
MOST_TOKENS = 10_000_000
MOST_CONCURRENCY = 4096
MOST_REQUESTS = 1_000_000

_KEYS = ("preset", "input_tokens", "output_tokens", "concurrency", "requests", "seed")
# "@" and ":" part a metric from its workload and level (ttft_ms.p95@agent:8).
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def read_workloads(place: Place | None) -> tuple[dict[str, WorkloadSpec], dict[str, Place]]:
    """Read every load that can be read, and the places of all that were meant to be loads."""
    if place is None or place.blank:
        default = _spec(DEFAULT_PRESET, PRESETS[DEFAULT_PRESET])
        return {DEFAULT_PRESET: default}, {}
    places = place.table("names and loads")
    if place.is_table and not places:
        place.fail("needs at least one workload; drop the key for the default (preset: agent)")
    specs = {}
    for name, spot in places.items():
        if not _NAME.fullmatch(name):
            spot.fail("a workload's name is made of letters, digits, - _ and .")
            continue
        spec = _workload(name, spot)
        if spec is not None:
            specs[name] = spec
    return specs, places


def _spec(name: str, preset: Preset) -> WorkloadSpec:
    return WorkloadSpec(
        name=name,
        input_tokens=preset.input_tokens,
        output_tokens=preset.output_tokens,
        concurrency=preset.concurrency,
        requests=tuple(default_requests(level) for level in preset.concurrency),
        preset=name,
    )


def _workload(name: str, place: Place) -> WorkloadSpec | None:
    if not place.is_table:
        place.fail(f"must be a mapping such as {{preset: {choose_preset(name)}}}")
        return None
    fields = place.fields(_KEYS)
    preset = _preset(fields.get("preset"))
    if preset is None and "preset" not in fields:
        _refuse_gaps(name, place, fields)
    base = preset or Preset(input_tokens=0, output_tokens=0, concurrency=())
    tokens = [
        fields[key].integer(low=1, high=MOST_TOKENS) if key in fields else inherited
        for key, inherited in (
            ("input_tokens", base.input_tokens),
            ("output_tokens", base.output_tokens),
        )
    ]
    levels = _levels(fields["concurrency"]) if "concurrency" in fields else base.concurrency
    requests = _requests(fields.get("requests"), levels)
    seed = fields["seed"].integer(low=0, high=2**32 - 1) if "seed" in fields else 0
    if not all(tokens) or not levels or not requests:
        return None
    return WorkloadSpec(
        name=name,
        input_tokens=tokens[0] or 0,
        output_tokens=tokens[1] or 0,
        concurrency=levels,
        requests=requests,
        preset=fields["preset"].word if preset else None,
        seed=seed or 0,
    )


def choose_preset(name: str) -> str:
    return name if name in PRESETS else DEFAULT_PRESET


def _preset(place: Place | None) -> Preset | None:
    name = place.text("the name of a preset") if place else None
    if place is not None and name is not None and name not in PRESETS:
        place.fail(f"there is no preset called '{name}'; {choose(name, list(PRESETS))}")
    return PRESETS.get(name) if name else None


def _refuse_gaps(name: str, place: Place, fields: Mapping[str, Place]) -> None:
    needed = ("input_tokens", "output_tokens", "concurrency")
    gaps = [key for key in needed if key not in fields]
    if gaps:
        place.fail(f"needs {', '.join(gaps)}, or a preset such as preset: {choose_preset(name)}")


def _levels(place: Place) -> tuple[int, ...]:
    spots = place.one_or_more()
    levels = [spot.integer(low=1, high=MOST_CONCURRENCY) for spot in spots]
    read = [level for level in levels if level is not None]
    if not levels:
        place.fail("needs at least one level")
    if len(set(read)) < len(read):
        place.fail("a level is listed twice")
        return ()
    return tuple(read) if len(read) == len(levels) else ()


def _requests(place: Place | None, levels: tuple[int, ...]) -> tuple[int, ...]:
    if place is None:
        return tuple(default_requests(level) for level in levels)
    spots = place.one_or_more()
    counts = [spot.integer(low=1, high=MOST_REQUESTS) for spot in spots]
    read = [count for count in counts if count is not None]
    if len(read) < len(counts) or not levels:
        return ()
    if place.is_list and len(read) != len(levels):
        place.fail(f"has {len(read)} counts for {len(levels)} levels of concurrency")
        return ()
    each = tuple(read) if place.is_list else tuple(read * len(levels))
    short = next(
        ((level, count) for level, count in zip(levels, each, strict=True) if count < level), None
    )
    if short is not None:
        place.fail(
            f"{short[1]} requests never reach concurrency {short[0]}; send at least {short[0]}"
        )
        return ()
    return each


def refuse_overlong(
    specs: Mapping[str, WorkloadSpec], places: Mapping[str, Place], *, limit: int, held: Place
) -> None:
    """Note the loads that the context length cannot hold.

    held: where the context length is set; told where the load itself is a default.
    """
    for name, spec in specs.items():
        needed = spec.input_tokens + spec.output_tokens
        if needed <= limit:
            continue
        sum_text = f"{spec.input_tokens} + {spec.output_tokens} tokens = {needed}"
        if name in places:
            places[name].fail(f"{sum_text} do not fit max_model_len {limit} ({held.where})")
        else:
            held.fail(f"{limit} is too short for the default workload {name}: {sum_text}")
