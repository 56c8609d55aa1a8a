"""Search-space files as a person would write them, and what reading them says."""

import textwrap
from pathlib import Path

import pytest

from autotune.errors import SearchSpaceError
from autotune.model.search_space import SearchSpace
from autotune.space_file import Vocabulary, read_search_space

ANYTHING = Vocabulary()
SMALLEST = "model: m\nknobs:\n  max_num_seqs: {choices: [1, 2, 4]}\n"
KNOWN = Vocabulary(
    launchers={"local": frozenset({"executable"}), "simulated": frozenset({"hardware"})},
    gates={
        "json_schema": frozenset({"cases"}),
        "tool_calls": frozenset(),
        "fixtures": frozenset({"file"}),
    },
    samplers={"tpe": frozenset({"startup"}), "random": frozenset()},
)


def write(folder: Path, text: str) -> Path:
    path = folder / "space.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def space_of(folder: Path, text: str, vocabulary: Vocabulary = ANYTHING) -> SearchSpace:
    return read_search_space(write(folder, text), vocabulary=vocabulary)


def problems_of(folder: Path, text: str, vocabulary: Vocabulary = ANYTHING) -> list[str]:
    """Read a wrong file and return its problems, the folder taken off."""
    with pytest.raises(SearchSpaceError) as caught:
        space_of(folder, text, vocabulary)
    return [problem.replace(f"{folder}/", "") for problem in caught.value.problems]


def only_problem_of(folder: Path, text: str, vocabulary: Vocabulary = ANYTHING) -> str:
    (problem,) = problems_of(folder, text, vocabulary)
    return problem
