"""Search spaces of a few lines, for tests of what vLLM takes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.model.knob import Knob, Value
from autotune.model.search_space import Part, SearchSpace, ServerSettings
from autotune.vllm_args import Problem, problems, shipped_arguments

SHIPPED_SPACES = sorted((Path(__file__).parents[2] / "search_spaces").glob("*.yaml"))


def space(
    *,
    args: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    knobs: Mapping[str, tuple[Value, ...]] | None = None,
    model: str = "some/model",
) -> SearchSpace:
    return SearchSpace(
        name="test",
        model=model,
        server=ServerSettings(launcher=Part(kind="local"), args=args or {}, env=env or {}),
        knobs=tuple(
            Knob(name=name, values=values, kind="categorical")
            for name, values in (knobs or {}).items()
        ),
        baseline={},
        workloads=(),
        objectives=(),
    )


def found(version: str = "0.33", **parts: Any) -> tuple[Problem, ...]:
    return problems(space(**parts), shipped_arguments(version))


def messages(version: str = "0.33", **parts: Any) -> list[str]:
    return [f"{problem.name}: {problem.message}" for problem in found(version, **parts)]
