"""Asks the vLLM that will run which arguments it takes, as precisely as it lets itself be asked.

Its own parser under its own Python, else the text of its help, else a list that is shipped.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from autotune.vllm_args import dump
from autotune.vllm_args.arguments import VllmArguments
from autotune.vllm_args.described import (
    DescriptionError,
    arguments_of,
    read_described,
    version_of,
)
from autotune.vllm_args.help_text import arguments_in_help
from autotune.vllm_args.shipped import shipped_arguments

Run: TypeAlias = Callable[[Sequence[str], float], tuple[int | None, str]]
"""Runs a command for so many seconds at most: its exit code (None: time is up), its stdout."""

TIMEOUT_S = 180.0
"""vLLM's imports take 15 to 20 s on a slow CPU that does nothing else."""

_INTERPRETER = re.compile(r"(?:^#!\s*|'''exec' \"?)(/[^\s\"]*python[^\s\"/]*)")


def known_arguments(
    executable: str | None, *, run: Run, version: str | None = None
) -> VllmArguments:
    """Find out what `vllm serve` takes.

    executable: a `vllm` command or a Python; None where none will run here
    version: take the shipped list of this version and ask nobody

    Raises:
        UsageError: `version` is no version.
    """
    if version is not None:
        return shipped_arguments(version)
    if executable is None:
        return shipped_arguments()
    path = shutil.which(executable)
    if path is None:
        return shipped_arguments(why=f"there is no {executable} on this host")
    python = python_of(path)
    described = _describe(python, run) if python is not None else None
    if described is not None:
        try:
            own = f"vLLM {version_of(described) or ''}".strip()
            return arguments_of(described, origin=f"{own}'s own parser")
        except DescriptionError:
            pass  # it told its version at most; its help may tell more
    told = version_of(described) if described else None
    helped = _ask_for_help(path, run)
    return helped or shipped_arguments(told, why=f"{executable} did not answer")


def python_of(executable: str) -> str | None:
    """Find the Python that a `vllm` script runs under: the script says it, or it stands beside."""
    path = Path(executable)
    if path.name.startswith("python"):
        return executable
    folder = path.resolve().parent
    beside = next((own for name in ("python3", "python") if (own := folder / name).is_file()), None)
    return _interpreter(path) or (str(beside) if beside else None)


def _interpreter(script: Path) -> str | None:
    """Read the first lines of a script, with pip's detour through `sh` for long paths."""
    try:
        with script.open("rb") as file:
            head = file.read(4096).decode("utf-8", errors="replace")
    except OSError:
        return None
    for line in head.splitlines()[:3]:
        match = _INTERPRETER.match(line)
        if match is not None and Path(match.group(1)).is_file():
            return match.group(1)
    return None


def _describe(python: str, run: Run) -> dict[str, Any] | None:
    output = _output(run, [python, str(Path(dump.__file__))])
    try:
        return read_described(output) if output else None
    except DescriptionError:
        return None


def _ask_for_help(path: str, run: Run) -> VllmArguments | None:
    is_python = Path(path).name.startswith("python")
    program = [path, "-m", "vllm.entrypoints.cli.main"] if is_python else [path]
    output = _output(run, [*program, "serve", "--help=all"])
    return arguments_in_help(output) if output else None


def _output(run: Run, argv: Sequence[str]) -> str | None:
    try:
        exit_code, output = run(argv, TIMEOUT_S)
    except OSError:
        return None
    return output if exit_code == 0 else None
