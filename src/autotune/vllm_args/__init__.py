"""Which flags and values the `vllm serve` that will run knows, and what of a search space it does not.

    arguments = known_arguments("vllm", run=...)
    for problem in problems(space, arguments): ...

Whether a configuration fits the machine is not known here: that takes a start.
"""

from autotune.vllm_args.arguments import Argument, VllmArguments
from autotune.vllm_args.asking import Run, known_arguments
from autotune.vllm_args.problems import Problem, problems
from autotune.vllm_args.shipped import shipped_arguments

__all__ = [
    "Argument",
    "Problem",
    "Run",
    "VllmArguments",
    "known_arguments",
    "problems",
    "shipped_arguments",
]
