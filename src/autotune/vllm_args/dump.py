"""Prints, as one line of JSON, which arguments and values the `vllm serve` of this Python takes.

It runs under vLLM's own Python, where autotune is not installed: standard library only, as a script.
It builds the parser and parses nothing, so no model and no GPU is touched. Where an import fails,
what it would have told is left out; without a parser `arguments` is null.

    PYTHON dump.py                         one line, for a program
    PYTHON dump.py "how it was made"       the form of the shipped lists, one argument a line
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import sys
import typing
from dataclasses import fields, is_dataclass

SCHEMA_VERSION = 1

# Where the parser is built: 0.33, 0.32, older ones; the command itself, which imports the most.
_PARSER_MODULES = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
    "vllm.entrypoints.cli.serve",
)
_PARSER_CLASSES = ("vllm.utils.argparse_utils", "vllm.utils")

_KINDS_BY_FUNCTION = {
    "human_readable_int": "human_integer",
    "human_readable_int_or_auto": "human_integer_or_auto",
    "loads": "json",
    "parse_dataclass": "json",
    "union_dict_and_str": "text_or_json",
}
_KINDS_BY_TYPE = {int: "integer", float: "number", str: "text"}
# argparse's own classes are private; any other class may read a value in its own way.
_SWITCHES = {"_StoreTrueAction", "_StoreFalseAction", "_StoreConstAction"}
_PLAIN = {"_StoreAction", "_AppendAction"}
_PROBE = "Ab-C"


def main() -> None:
    # vLLM logs to stdout while it is imported; only the answer may stand there.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR")
    with answer:
        described = describe()
        text = _shipped_form(described, *sys.argv[1:]) if sys.argv[1:] else json.dumps(described)
        print(text, file=answer)


def _shipped_form(described: dict[str, typing.Any], source: str) -> str:
    parts = [
        f'"{key}": [\n{_rows(value)}\n]' if key == "arguments" else f'"{key}": {json.dumps(value)}'
        for key, value in {"source": source, **described}.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}"


def _rows(arguments: list[dict[str, typing.Any]]) -> str:
    return ",\n".join(json.dumps(argument) for argument in arguments)


def describe() -> dict[str, typing.Any]:
    answer: dict[str, typing.Any] = {
        "schema_version": SCHEMA_VERSION,
        "version": _version(),
        "arguments": None,
    }
    try:
        parser = _parser()
    except (ImportError, AttributeError, RuntimeError, OSError, ValueError) as error:
        # A build for GPUs may refuse a machine without one; the version is still worth telling.
        return {**answer, "error": f"{type(error).__name__}: {error}"}
    return {
        **answer,
        "arguments": _arguments(parser),
        "speculative_keys": _speculative_keys(),
        "variables": _variables(),
    }


def _version() -> str | None:
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return None


def _parser() -> argparse.ArgumentParser:
    make = _first(_PARSER_MODULES, "make_arg_parser")
    parser: argparse.ArgumentParser = make(_first(_PARSER_CLASSES, "FlexibleArgumentParser")())
    return parser


def _first(modules: tuple[str, ...], name: str) -> typing.Any:
    *attempts, last = modules
    for module in attempts:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return getattr(importlib.import_module(last), name)


# --- arguments


def _arguments(parser: argparse.ArgumentParser) -> list[dict[str, typing.Any]]:
    flags: dict[int, list[str]] = {}
    actions: dict[int, argparse.Action] = {}
    # The parser's own table also holds flags that its help does not show.
    table = parser._option_string_actions  # noqa: SLF001 -- argparse has no public way
    for flag, action in table.items():
        flags.setdefault(id(action), []).append(flag)
        actions[id(action)] = action
    late = _late_choices()
    return [
        _argument(action, flags[key], late)
        for key, action in actions.items()
        if action.dest != "help"
    ]


def _argument(
    action: argparse.Action, flags: list[str], late: dict[str, dict[str, typing.Any]]
) -> dict[str, typing.Any]:
    entry: dict[str, typing.Any] = {"flags": flags, "kind": _kind(action)}
    if action.nargs in ("+", "*") or (isinstance(action.nargs, int) and action.nargs > 1):
        entry["many"] = True
    if action.choices is not None:
        entry["choices"] = [str(choice) for choice in action.choices]
        folding = _folding(action)
        if folding:
            entry["folding"] = folding
    else:
        entry.update(late.get(action.dest, {}))
    if isinstance(action.default, bool | int | float | str) and action.default != argparse.SUPPRESS:
        entry["default"] = action.default
    return entry


def _kind(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "switch" if _name(action) in _SWITCHES else "pair"
    return _kind_of_type(action.type) or "text" if _name(action) in _PLAIN else "any"


def _name(action: argparse.Action) -> str:
    return type(action).__name__


def _kind_of_type(converter: typing.Any) -> str | None:
    """Look through the closures in which vLLM wraps its converters (`optional_type(int)`)."""
    if converter is None or converter in _KINDS_BY_TYPE:
        return _KINDS_BY_TYPE.get(converter)
    name = getattr(converter, "__name__", "")
    if name in _KINDS_BY_FUNCTION:
        return _KINDS_BY_FUNCTION[name]
    for cell in getattr(converter, "__closure__", None) or ():
        kind = _kind_of_type(cell.cell_contents) if callable(cell.cell_contents) else None
        if kind is not None:
            return kind
    return None


def _folding(action: argparse.Action) -> str | None:
    """Find out by trying how the parser normalizes a word before it looks among the choices."""
    if not callable(action.type):
        return None
    try:
        word = action.type(_PROBE)
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        return None
    return {"ab-c": "lower", "ab_c": "lower_underscore"}.get(str(word))


# --- values that the parser takes and the configuration refuses afterwards


# dest: module, attribute, how the words come out of it, how a word is spelled before
_LATE: dict[
    str, tuple[str, str, typing.Callable[[typing.Any], typing.Iterable[str]], str | None]
] = {
    "attention_backend": (
        "vllm.v1.attention.backends.registry",
        "AttentionBackendEnum",
        lambda enum: ["auto", *enum.__members__],
        "lower",
    ),
    "kv_cache_dtype": ("vllm.config.cache", "CacheDType", typing.get_args, None),
    "quantization": (
        "vllm.model_executor.layers.quantization",
        "QUANTIZATION_METHODS",
        list,
        None,
    ),
    "load_format": (
        "vllm.model_executor.model_loader",
        "_LOAD_FORMAT_TO_MODEL_LOADER",
        list,
        None,
    ),
    "tool_call_parser": (
        "vllm.tool_parsers",
        "ToolParserManager",
        lambda manager: manager.list_registered(),
        None,
    ),
    "reasoning_parser": (
        "vllm.reasoning",
        "ReasoningParserManager",
        lambda manager: manager.list_registered(),
        None,
    ),
}


def _late_choices() -> dict[str, dict[str, typing.Any]]:
    _load_plugins()
    found: dict[str, dict[str, typing.Any]] = {}
    for name, (module, attribute, words, folding) in _LATE.items():
        try:
            choices = words(getattr(importlib.import_module(module), attribute))
        except (ImportError, AttributeError):
            continue
        found[name] = {"choices": [str(choice) for choice in choices], "late": True}
        if folding:
            found[name]["folding"] = folding
    return found


def _load_plugins() -> None:
    """Let installed plug-ins add their loaders and quantizations, as a server would."""
    try:
        importlib.import_module("vllm.plugins").load_general_plugins()
    except (ImportError, AttributeError):
        return


def _speculative_keys() -> dict[str, list[str]] | None:
    """Name the keys of `--speculative-config`, each with its choices where it has some."""
    try:
        module = importlib.import_module("vllm.config.speculative")
        config = module.SpeculativeConfig
        hints = typing.get_type_hints(config)
    except (ImportError, AttributeError, NameError):
        return None
    if not is_dataclass(config):
        return None
    return {field.name: _literals(hints.get(field.name)) for field in fields(config) if field.init}


def _literals(hint: typing.Any) -> list[str]:
    """List the words of a `Literal`, also inside of `X | None`; none where other text is taken."""
    if typing.get_origin(hint) is typing.Literal:
        return [word for word in typing.get_args(hint) if isinstance(word, str)]
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    if not parts or not all(_literals(part) for part in parts):
        return []
    return [word for part in parts for word in _literals(part)]


def _variables() -> list[str] | None:
    try:
        return sorted(importlib.import_module("vllm.envs").environment_variables)
    except (ImportError, AttributeError):
        return None


if __name__ == "__main__":
    main()
