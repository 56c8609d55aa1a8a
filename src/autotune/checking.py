"""What `autotune check` finds without starting anything: the grid, the command, flags vLLM lacks."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.exporters.text import shown
from autotune.model.knob import Knob
from autotune.model.search_space import SearchSpace
from autotune.space_file.locate import line_of
from autotune.system import processes
from autotune.vllm_args import Problem, VllmArguments, known_arguments, problems
from autotune.wiring import DEFAULT_TRIALS, build_launcher

SIMULATED_VERSION = "0.33"
"""The vLLM whose surface the simulated server speaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What to print: facts, warnings that stop nobody, and mistakes, each with its line."""

    facts: tuple[str, ...]
    warnings: tuple[str, ...]
    mistakes: tuple[str, ...]


def check_space(space: SearchSpace, *, version: str | None = None) -> Findings:
    """Look at a search space with the eyes of the vLLM that will run it."""
    arguments = _arguments(space, version)
    found = problems(space, arguments)
    return Findings(
        facts=(*_facts(space), f"checked against: {arguments.origin}"),
        warnings=(
            *_assumed(space),
            *(_located(space, p) for p in found if p.kind == "warning"),
        ),
        mistakes=tuple(_located(space, p) for p in found if p.kind != "warning"),
    )


def _arguments(space: SearchSpace, version: str | None) -> VllmArguments:
    if version is None and space.server.launcher.kind == "simulated":
        version = SIMULATED_VERSION
    executable = str(space.server.launcher.options.get("executable", "vllm"))
    return known_arguments(None if version else executable, version=version, run=_run)


def _run(argv: Sequence[str], timeout_s: float) -> tuple[int, str]:
    try:
        ended = processes.run(argv, timeout_s=timeout_s)
    except OSError:
        return 127, ""
    return (1 if ended.exit_code is None else ended.exit_code), ended.stdout


def _facts(space: SearchSpace) -> tuple[str, ...]:
    trials = space.limits.trials or DEFAULT_TRIALS
    config = space.config(space.baseline)
    started = shlex.join(build_launcher(space).command(config))
    return (
        f"{space.source}: a valid search space",
        f"model: {space.model}",
        f"knobs: {len(space.knobs)}, {space.size:,} points, {len(space.rules)} rules",
        *(f"  {knob.name}: {_grid(knob)}" for knob in space.knobs),
        f"objectives: {', '.join(f'{o.name} ({o.direction})' for o in space.objectives)}",
        f"gates: {', '.join(gate.kind for gate in space.gates) or 'none'}",
        f"server starts: {trials}, each with {_passes(space)} measured passes",
        "the baseline's command (host, port and served model name are added at the start):",
        f"  {config.command()}",
        *((f"which is started as: {started}",) if not started.startswith("vllm serve") else ()),
    )


def _assumed(space: SearchSpace) -> tuple[str, ...]:
    """Tell where the baseline is not the user's word: gains are measured against it."""
    if not space.assumed:
        return ()
    values = ", ".join(f"{name}={shown(space.baseline[name])}" for name in space.assumed)
    return (f"{space.source}: baseline: not given, so taken from the start of the grid: {values}",)


def _grid(knob: Knob) -> str:
    return ", ".join(map(shown, knob.values))


def _passes(space: SearchSpace) -> int:
    return space.repeats * sum(len(workload.concurrency) for workload in space.workloads)


def _located(space: SearchSpace, problem: Problem) -> str:
    if space.source is None:
        return f"{problem.name}: {problem.message}"
    line = line_of(space.source, problem.name, problem.value)
    return f"{space.source}:{line}: {problem.name}: {problem.message}"
