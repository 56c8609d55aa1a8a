"""Holds a search space against what the vLLM that will run takes, so that no trial is spent on it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from autotune.model.search_space import SearchSpace
from autotune.model.serving_config import (
    DRAFT_LENGTH,
    ENVIRONMENT_PREFIX,
    SPECULATIVE,
    Setting,
)
from autotune.vllm_args.arguments import Argument, VllmArguments
from autotune.vllm_args.gone import GONE_FLAGS, GONE_VARIABLES, INTERNAL_VARIABLES
from autotune.vllm_args.moe import quantization_of, refusal
from autotune.vllm_args.values import value_problem
from autotune.vllm_args.wording import closest, did_you_mean, shown

MOE_BACKEND = "moe_backend"

PLUGINS: Mapping[str, str] = {
    "tool_call_parser": "tool_parser_plugin",
    "reasoning_parser": "reasoning_parser_plugin",
}
"""Arguments whose choices a plug-in of the user may add to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One setting that vLLM will not take, or will not heed.

    name: the setting as the file names it; `env.VAR` for a variable, also under `server.env`
    value: the value at fault, None where it is the name
    kind: an `error` ends a start for sure; a `warning` is ignored by vLLM or may end it
    """

    name: str
    message: str
    value: Setting = None
    kind: Literal["error", "warning"] = "error"


def problems(space: SearchSpace, arguments: VllmArguments) -> tuple[Problem, ...]:
    """Find everything that is wrong, in the order of the file: what is held, then the knobs."""
    return tuple(_problems(space, arguments))


def _problems(space: SearchSpace, arguments: VllmArguments) -> Iterator[Problem]:
    for name, values in _settings(space).items():
        if name.startswith(ENVIRONMENT_PREFIX):
            yield from _of_variable(name, space, arguments)
            continue
        yield from _of_setting(name, values, space, arguments)
        if name == MOE_BACKEND:
            known = arguments.by_name.get(MOE_BACKEND)
            real = tuple(value for value in values if known is None or known.knows(str(value)))
            yield from _of_moe_backend(real, space)


def _settings(space: SearchSpace) -> dict[str, tuple[Setting, ...]]:
    held = {name: (value,) for name, value in space.server.args.items()}
    variables = {ENVIRONMENT_PREFIX + name: (text,) for name, text in space.server.env.items()}
    return {**held, **variables, **{knob.name: knob.values for knob in space.knobs}}


# --- flags and keys of JSON flags


def _of_setting(
    name: str, values: tuple[Setting, ...], space: SearchSpace, arguments: VllmArguments
) -> Iterator[Problem]:
    flag, _, path = name.partition(".")
    argument = arguments.by_name.get(flag)
    if argument is None:
        yield Problem(name=name, message=_unknown_flag(flag, arguments))
    elif path and not argument.takes_json:
        yield Problem(name=name, message=f"{flag} takes no JSON, so it has no key {path}")
    elif flag == SPECULATIVE:
        for key, value in _speculative(path, values):
            yield from _of_speculative_key(name, key, value, arguments)
    elif not path and not _may_be_a_plugin(flag, space):
        for value in values:
            message = value_problem(flag, argument, value)
            if message is not None:
                yield Problem(name=name, message=message, value=value)


def _unknown_flag(flag: str, arguments: VllmArguments) -> str:
    said = f"{arguments.label} has no such flag"
    if flag in GONE_FLAGS:
        return f"{said}; it is gone: {GONE_FLAGS[flag]}"
    near = closest(flag, arguments.by_name)
    return f"{said}; did you mean {near}?" if near else said


def _may_be_a_plugin(flag: str, space: SearchSpace) -> bool:
    return flag in PLUGINS and space.server.args.get(PLUGINS[flag]) is not None


def _speculative(path: str, values: tuple[Setting, ...]) -> Iterator[tuple[str, Setting]]:
    """Spread `speculative_config` and `speculative_config.KEY` alike; an empty key is the flag."""
    for value in values:
        if path:
            yield path.partition(".")[0], None if "." in path else value
        elif isinstance(value, Mapping):
            yield from value.items()
        else:
            yield "", value


def _of_speculative_key(
    name: str, key: str, value: Setting, arguments: VllmArguments
) -> Iterator[Problem]:
    if not key:
        message = value_problem(name, arguments.by_name[SPECULATIVE], value)
    elif arguments.speculative_keys and key not in arguments.speculative_keys:
        message = f"{arguments.label} knows no key {key} of {SPECULATIVE}; "
        message += did_you_mean(key, arguments.speculative_keys)
        value = None
    else:
        message = _speculative_value(key, value, arguments)
        message = f"{key} {message}" if message and name == SPECULATIVE else message
    if message is not None:
        yield Problem(name=name, message=message, value=value)


def _speculative_value(key: str, value: Setting, arguments: VllmArguments) -> str | None:
    if key == DRAFT_LENGTH.partition(".")[2]:
        problem = value_problem(key, _COUNT, value)
        return problem or (f"must not be below 0, not {shown(value)}" if _below_0(value) else None)
    # The draft's backends have the names of the target's; its other choices have none elsewhere.
    twin = arguments.by_name.get(key) if key.endswith("_backend") else None
    choices = arguments.speculative_keys.get(key, ())
    if twin is None and not choices:
        return None
    return value_problem(key, twin or Argument(flags=(), kind="text", choices=choices), value)


_COUNT = Argument(flags=(), kind="integer")


def _below_0(value: Setting) -> bool:
    return value is not None and int(value) < 0


# --- values of which only the engine says what it makes of them


def _of_variable(name: str, space: SearchSpace, arguments: VllmArguments) -> Iterator[Problem]:
    variable = name.removeprefix(ENVIRONMENT_PREFIX)
    if variable in INTERNAL_VARIABLES:
        message = f"do not set it: {INTERNAL_VARIABLES[variable]}"
        yield Problem(name=name, message=message, kind="warning")
        return
    known = arguments.variables
    if not variable.startswith("VLLM_") or (known is not None and variable in known):
        return
    gone = GONE_VARIABLES.get(variable)
    if gone is None and known is None:
        return
    near = None if gone or known is None else closest(variable, known)
    hint = f": {gone}" if gone else (f"; did you mean {near}?" if near else "")
    refuses = space.server.args.get("fail_on_environ_validation") is True
    yield Problem(
        name=name,
        message=f"{arguments.label} {'refuses' if refuses else 'ignores'} this variable{hint}",
        kind="error" if refuses else "warning",
    )


def _of_moe_backend(values: tuple[Setting, ...], space: SearchSpace) -> Iterator[Problem]:
    quantization = quantization_of(space.model, space.server.args.get("quantization"))
    if quantization is None or any(knob.name == "quantization" for knob in space.knobs):
        return
    for value in values:
        message = refusal(quantization, value)
        if message is not None:
            yield Problem(name=MOE_BACKEND, message=message, value=value, kind="warning")
