"""Whether an argument takes a value, judged by the words that the value becomes on a command line."""

import json
import re
from collections.abc import Mapping
from typing import Any

from autotune.model.knob import Value, is_number
from autotune.model.serving_config import Setting
from autotune.vllm_args.arguments import Argument
from autotune.vllm_args.wording import did_you_mean, shown

_HUMAN_INTEGER = re.compile(r"\d+[kKmMgGtT]|\d+\.\d+[kmgt]|[-+]?\d+")
_WANTED = {
    "integer": "a whole number",
    "human_integer": "a whole number such as 8192 or 8k",
    "human_integer_or_auto": "a whole number such as 65536 or 64k, or auto",
    "number": "a number",
    "json": "a mapping of JSON keys",
}

_AT_LEAST_ONE = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "tensor_parallel_size",
    "pipeline_parallel_size",
)


def value_problem(name: str, argument: Argument, value: Setting) -> str | None:
    """Say why an argument refuses a value; None where it takes it, or leaves it out (`null`)."""
    if value is None:
        return None
    if argument.is_boolean:
        return _boolean_problem(argument, value)
    if isinstance(value, bool):
        return f"takes {_WANTED.get(argument.kind, 'a value')}, not {shown(value)}"
    if isinstance(value, list | tuple):
        return _list_problem(name, argument, value)
    if isinstance(value, Mapping):
        return None if argument.takes_json else f"takes {_wanted(argument)}, not JSON"
    return _word_problem(argument, value) or _range_problem(name, value)


def _boolean_problem(argument: Argument, value: Setting) -> str | None:
    if not isinstance(value, bool):
        return f"is a switch: write true or false, not {shown(value)}"
    if value is False and argument.kind == "switch":
        return "can only be switched on; write null or leave it out to have it off"
    return None


def _list_problem(name: str, argument: Argument, values: list[Any] | tuple[Any, ...]) -> str | None:
    if not argument.many and argument.kind != "any":
        return f"takes one value, not a list of {len(values)}"
    return next(
        (problem for own in values if (problem := value_problem(name, argument, own))), None
    )


def _word_problem(argument: Argument, value: Value) -> str | None:
    word = str(value)
    if not _is_of_kind(argument.kind, word):
        return f"takes {_wanted(argument)}, not {shown(value)}"
    if argument.knows(word):
        return None
    folded = {argument.folded(choice): choice for choice in argument.choices}
    return f"does not take {shown(value)}; {did_you_mean(argument.folded(word), folded, shown_as=folded)}"


def _wanted(argument: Argument) -> str:
    return _WANTED.get(argument.kind, "plain text")


def _is_of_kind(kind: str, word: str) -> bool:
    if kind in ("integer", "number"):
        return _converts(int if kind == "integer" else float, word)
    if kind.startswith("human_integer"):
        is_auto = kind.endswith("auto") and word.strip().lower() == "auto"
        return is_auto or _HUMAN_INTEGER.fullmatch(word.strip()) is not None
    if kind == "json":
        return _converts(json.loads, word)
    return True


def _converts(converter: Any, word: str) -> bool:
    try:
        converter(word)
    except ValueError:
        return False
    return True


def _range_problem(name: str, value: Value) -> str | None:
    if not is_number(value) or not isinstance(value, int | float):
        return None
    if name == "gpu_memory_utilization":
        return None if 0 < value <= 1 else f"must be above 0 and at most 1, not {shown(value)}"
    if name in _AT_LEAST_ONE and value < 1:
        return f"must be at least 1, not {shown(value)}"
    return None
