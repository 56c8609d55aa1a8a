"""Noise and trouble that can be switched on, and their JSON form."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

SWITCHES_HELP = """\
switches (one JSON object; MATCH is {"setting": value or [values], ...}, all of which must hold):
  A setting is a vllm serve argument with underscores (moe_backend, max_num_seqs, attention_backend,
  ...), a path into a JSON argument (speculative_config.num_speculative_tokens), or `speculation`
  (true/false). Backends match what the engine really uses, not `auto`. {} matches everything.

  "noise": 1.0               run noise 1.5 %, start effect 0.8 %, step jitter, acceptance +-1 point;
                             a factor, 0 turns all of it off
  "outliers": 0.0            share of the noise periods that are 5 to 12 % slow
  "drift_per_hour": 0.0      change of speed in an hour, for example -0.02
  "heat": 0.0                loss of speed when hot, for example 0.06 (12 min to heat, 6 to cool)
  "acceptance": [0.8, 0.6]   chance that draft token i and all before it are accepted
  "jit_spike": 0             seconds that each of the first two requests takes longer, or
                             {"seconds": 4, "requests": 2}
  "fast": {"moe_backend": {"cutlass": 1.25}}        speed factors by setting and value
  "breaks_tools": MATCH      garbled tool arguments; MATCH may hold "only": "speculation" |
                             "streaming" | "concurrency>=4", and "probability": 0.2
  "breaks_json": MATCH       invalid structured output; same extras
  "breaks_text": MATCH       garbled plain text; same extras
  "fails_to_start": MATCH    dies while it warms up; MATCH may hold "message": "RuntimeError: ..."
  "flaky_start": 0.1         chance that a start fails in memory profiling; differs by port
  "dies_at_request": N       the engine dies at the Nth generation request; exit code 0, as vLLM's
  "hang_at_request": N       the engine stops answering at the Nth; /health stays 200
                             (both also as {"request": N, ...MATCH})
  "ignores_term": true       SIGTERM has no effect
  "never_ready": true        loads the weights and then waits for ever
                             (both also as MATCH)
"""

_EXTRAS = {"only", "probability", "message", "request"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """When a switch applies.

    settings: setting -> accepted values; only: a condition on the moment; request: a request's number
    """

    settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    only: str | None = None
    probability: float = 1.0
    message: str | None = None
    request: int = 0

    def matches(self, effective: Mapping[str, Any]) -> bool:
        return all(
            any(_same(lookup(effective, name), value) for value in values)
            for name, values in self.settings.items()
        )

    def holds(self, *, speculation: bool, streaming: bool, concurrency: int) -> bool:
        """Whether `only` is true at this moment."""
        if self.only is None:
            return True
        if self.only == "speculation":
            return speculation
        if self.only == "streaming":
            return streaming
        return concurrency >= int(self.only.rpartition(">=")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class JitSpike:
    """The first requests of a start wait for kernels to be compiled."""

    seconds: float = 0.0
    requests: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Switches:
    """All switches; the defaults are an honest, slightly noisy server."""

    noise: float = 1.0
    outliers: float = 0.0
    drift_per_hour: float = 0.0
    heat: float = 0.0
    acceptance: tuple[float, ...] | None = None
    jit_spike: JitSpike = JitSpike()
    fast: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    breaks_tools: Condition | None = None
    breaks_json: Condition | None = None
    breaks_text: Condition | None = None
    fails_to_start: Condition | None = None
    flaky_start: float = 0.0
    dies_at_request: Condition | None = None
    hang_at_request: Condition | None = None
    ignores_term: Condition | None = None
    never_ready: Condition | None = None


def lookup(effective: Mapping[str, Any], name: str) -> Any:
    """Find a setting; a dot leads into a JSON argument."""
    value: Any = effective
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return None
        value = value[part]
    return value


def _same(actual: Any, wanted: Any) -> bool:
    if isinstance(actual, str) and isinstance(wanted, str):
        return actual.lower() == wanted.lower()
    return bool(actual == wanted)


def speed_factor(switches: Switches, effective: Mapping[str, Any]) -> float:
    """Multiply the factors of `fast` that apply."""
    factor = 1.0
    for name, table in switches.fast.items():
        actual = lookup(effective, name)
        for value, speed in table.items():
            if str(actual).lower() == value.lower():
                factor *= speed
    return factor


class SwitchError(ValueError):
    """The JSON of the switches is wrong."""


def read_switches(written: Any) -> Switches:
    """Read the JSON object.

    Raises:
        SwitchError: A switch is unknown or has the wrong form.
    """
    if not isinstance(written, dict):
        raise SwitchError(f"switches are a JSON object, not {type(written).__name__}")
    known = [item.name for item in fields(Switches)]
    for name in written:
        if name not in known:
            raise SwitchError(f"unknown switch {name!r}; there are {', '.join(known)}")
    return Switches(**{name: _READERS[name](name, value) for name, value in written.items()})


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SwitchError(f"{name} is a number, not {value!r}")
    return float(value)


def _acceptance(name: str, value: Any) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(_number(name, item) for item in values)


def _jit_spike(name: str, value: Any) -> JitSpike:
    if isinstance(value, dict):
        return JitSpike(**value)
    return JitSpike(seconds=_number(name, value))


def _fast(name: str, value: Any) -> Mapping[str, Mapping[str, float]]:
    if not isinstance(value, dict) or not all(isinstance(item, dict) for item in value.values()):
        raise SwitchError(f'{name} looks like {{"moe_backend": {{"cutlass": 1.25}}}}')
    return {
        setting: {str(key): _number(name, factor) for key, factor in table.items()}
        for setting, table in value.items()
    }


def _condition(name: str, value: Any) -> Condition | None:
    if isinstance(value, bool):
        return Condition() if value else None
    if isinstance(value, int):
        return Condition(request=value)
    if not isinstance(value, dict):
        raise SwitchError(f"{name} is an object of settings, not {value!r}")
    extras = {key: item for key, item in value.items() if key in _EXTRAS}
    only = extras.get("only")
    if only not in {None, "speculation", "streaming"} and not re.fullmatch(
        r"concurrency>=\d+", str(only)
    ):
        raise SwitchError(
            f"{name}: `only` is speculation, streaming or concurrency>=N, not {only!r}"
        )
    settings = {
        key: tuple(item) if isinstance(item, list) else (item,)
        for key, item in value.items()
        if key not in _EXTRAS
    }
    return Condition(settings=settings, **extras)


_READERS: Mapping[str, Any] = {
    "noise": _number,
    "outliers": _number,
    "drift_per_hour": _number,
    "heat": _number,
    "acceptance": _acceptance,
    "jit_spike": _jit_spike,
    "fast": _fast,
    "breaks_tools": _condition,
    "breaks_json": _condition,
    "breaks_text": _condition,
    "fails_to_start": _condition,
    "flaky_start": _number,
    "dies_at_request": _condition,
    "hang_at_request": _condition,
    "ignores_term": _condition,
    "never_ready": _condition,
}
