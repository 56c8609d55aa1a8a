"""Reads the command line: the simulator's own options, `--`, and what `vllm serve` would get.

The second half follows vLLM 0.33: the same flags, the same way to write integers, booleans and JSON,
the same messages and exit codes. Most flags are read and have no effect.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from autotune.simulator.hardware_profiles import HARDWARE
from autotune.simulator.switches import SWITCHES_HELP, Switches, read_switches

_FLAGS_FILE = Path(__file__).with_name("serve_arguments.json")
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """How to simulate, as against what is served."""

    hardware: str
    time_scale: float
    startup_scale: float
    seed: int
    switches: Switches


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeArguments:
    """What was written after `--`: only the arguments that were given, by their long name."""

    model: str
    given: Mapping[str, Any]


def read_command_line(argv: Sequence[str]) -> tuple[SimulationOptions, ServeArguments]:
    own, serve = _split(argv)
    options = _read_own(own)
    return options, read_serve_arguments(serve)


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    arguments = list(argv)
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _read_own(argv: Sequence[str]) -> SimulationOptions:
    parser = argparse.ArgumentParser(
        prog="python -m autotune.simulator",
        usage="%(prog)s [options] -- MODEL [vllm serve flags]",
        description=(
            "A server that behaves like `vllm serve MODEL ...` on a chosen machine: same flags, log "
            "lines, HTTP and metrics, with the speed of a performance model. No GPU is needed. It "
            "listens on loopback only, whatever --host says."
        ),
        epilog=SWITCHES_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--hardware",
        choices=sorted(HARDWARE),
        default="dgx-spark",
        help="the machine to imitate (default: dgx-spark, the only one that is fitted)",
    )
    parser.add_argument(
        "--time-scale",
        type=_positive,
        default=1.0,
        metavar="N",
        help="seconds of the server's time in one real second (default: 1)",
    )
    parser.add_argument(
        "--startup-scale",
        type=_positive,
        default=None,
        metavar="N",
        help="the same for the start-up of about 255 s (default: the time scale)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the noise; together with the served configuration"
    )
    parser.add_argument(
        "--switches",
        type=_switches,
        default=Switches(),
        metavar="JSON",
        help="noise and trouble, a JSON object; see below",
    )
    read = parser.parse_args(argv)
    return SimulationOptions(
        hardware=read.hardware,
        time_scale=read.time_scale,
        startup_scale=read.time_scale if read.startup_scale is None else read.startup_scale,
        seed=read.seed,
        switches=read.switches,
    )


def _positive(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _switches(text: str) -> Switches:
    try:
        return read_switches(json.loads(text))
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem


def read_serve_arguments(argv: Sequence[str]) -> ServeArguments:
    """Read what follows `vllm serve`; exits like vLLM when it cannot be read."""
    plain, dotted = _take_dotted([_dashed(argument) for argument in argv])
    parser = _serve_parser()
    namespace, unknown = parser.parse_known_args(plain)
    if unknown:
        # vLLM's root parser reports these, so the program is `vllm` and not `vllm serve`.
        sys.stderr.write("usage: vllm [-h] [-v] {chat,complete,serve,bench,...} ...\n")
        _exit_with(f"vllm: error: unrecognized arguments: {' '.join(unknown)}\n")
    given = vars(namespace)
    for key, value in dotted.items():
        given[key] = _merged(given.get(key, {}), value)
    if "config" in given:
        given = {**_config_file(given["config"]), **given}
    positional = given.pop("model_tag", None)
    model = positional or given.pop("model", None) or "Qwen/Qwen3-0.6B"
    return ServeArguments(model=model, given=given)


def _exit_with(message: str) -> NoReturn:
    sys.stderr.write(message)
    raise SystemExit(2)


def _dashed(argument: str) -> str:
    """Make `--max_num_seqs` into `--max-num-seqs`, the value behind `=` untouched."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    head, dot, path = name.partition(".")
    return head.replace("_", "-") + dot + path + equals + value


_DOTTED = re.compile(
    r"(?P<flag>--?[A-Za-z][\w-]*)\.(?P<path>[\w.]+)(?P<append>\+?)(=(?P<value>.*))?"
)
_SHORT = {"-sc": "speculative_config", "-cc": "compilation_config", "-ac": "attention_config"}


def _take_dotted(argv: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Separate `--speculative-config.method mtp` from the plain arguments."""
    plain: list[str] = []
    dotted: dict[str, Any] = {}
    rest = iter(argv)
    for argument in rest:
        match = _DOTTED.fullmatch(argument)
        if match is None:
            plain.append(argument)
            continue
        flag = match["flag"]
        root = _SHORT.get(flag) or flag.removeprefix("--").replace("-", "_")
        text = match["value"] if match["value"] is not None else next(rest, "")
        value = _json_or_text(text)
        leaf: Any = [value] if match["append"] else value
        for key in reversed(match["path"].split(".")):
            leaf = {key: leaf}
        dotted[root] = _merged(dotted.get(root, {}), leaf)
    return plain, dotted


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _merged(left: Any, right: Any) -> Any:
    if isinstance(left, dict) and isinstance(right, dict):
        keys = [*left, *(key for key in right if key not in left)]
        return {
            key: _merged(left[key], right[key])
            if key in left and key in right
            else (right[key] if key in right else left[key])
            for key in keys
        }
    if isinstance(left, list) and isinstance(right, list):
        return [*left, *right]
    return right


def _config_file(path: str) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - a server that was not given a file must not pay for the import

    read = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    return {str(key).replace("-", "_"): value for key, value in read.items()}


class _Boolean(argparse.Action):
    """A flag pair under one name: `--enable-x` and `--disable-x`, or `--x` and `--no-x`."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        _values: Any,
        option_string: str | None = None,
    ) -> None:
        first = next(flag for flag in self.option_strings if flag.startswith("--"))
        setattr(namespace, self.dest, not _negates(option_string or first, first))


def _negates(flag: str, first: str) -> bool:
    name = first.removeprefix("--")
    negative = {f"--no-{name}"}
    if name.startswith("enable-"):
        negative.add(f"--disable-{name.removeprefix('enable-')}")
    if name.startswith("disable-"):
        negative.add(f"--enable-{name.removeprefix('disable-')}")
    return flag in negative


def _serve_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vllm serve",
        usage="vllm serve [model_tag] [options]",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("model_tag", nargs="?", default=None)
    for entry in json.loads(_FLAGS_FILE.read_text(encoding="utf-8")):
        _add(parser, entry)
    parser.add_argument("-O", dest="optimization_level", type=str)
    return parser


def _add(parser: argparse.ArgumentParser, entry: Mapping[str, Any]) -> None:
    flags: list[str] = entry["flags"]
    first = next(flag for flag in flags if flag.startswith("--"))
    destination = first.removeprefix("--").replace("-", "_")
    if entry["kind"] == "boolean":
        # 0.32 knows only --no-enable-x, 0.33 hides it and knows --disable-x: accept both.
        hidden = f"--no-{first.removeprefix('--')}"
        names = flags if hidden in flags else [*flags, hidden]
        parser.add_argument(*names, dest=destination, nargs=0, action=_Boolean)
        return
    options: dict[str, Any] = {"dest": destination, "type": _TYPES[entry["kind"]]}
    count = entry.get("count")
    if count == "append":
        options["action"] = "append"
    elif count:
        options["nargs"] = count
    if entry.get("choices"):
        options["choices"] = entry["choices"]
    parser.add_argument(*flags, **options)


def human_integer(text: str) -> int:
    """Read `1k` as 1000, `1K` as 1024 and `25.6k` as 25600.

    >>> human_integer("8K"), human_integer("25.6k"), human_integer("4096")
    (8192, 25600, 4096)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", text.strip())
    if match is None:
        return int(text)
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    if "." in number:
        raise argparse.ArgumentTypeError(
            f"Decimals are not allowed with binary suffixes like {suffix}. Did you mean to use "
            f"{number}{suffix.lower()} instead?"
        )
    return int(number) * _BINARY[suffix]


def _human_integer_or_auto(text: str) -> int:
    return -1 if text.strip().lower() in {"-1", "auto"} else human_integer(text)


def _json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(
            f"Value {text} cannot be converted to <function loads at 0x7f0000000000>."
        ) from problem


_TYPES: Mapping[str, Any] = {
    "integer": int,
    "number": float,
    "text": str,
    "json": _json_value,
    "human_integer": human_integer,
    "human_integer_or_auto": _human_integer_or_auto,
}
