"""Tunes how vLLM serves a model.

import autotune
from autotune.tuning.search import ServingSampler

space = autotune.read_search_space("search_spaces/spark.yaml")
study = optuna.create_study(directions=["maximize", "minimize"], sampler=ServingSampler(space))
"""

import typing

if typing.TYPE_CHECKING:
    from pathlib import Path

    from autotune.model.search_space import SearchSpace

__version__ = "0.1.0"
__all__ = ["__version__", "read_search_space"]


def read_search_space(path: "str | Path") -> "SearchSpace":
    """Read a search-space file; plug-ins are taken as they are named.

    Raises:
        SearchSpaceError: Every mistake in the file, each as `file:line: path: what is wrong`.
    """
    # Imported here, so that `autotune --help` need not read YAML.
    from pathlib import Path  # noqa: PLC0415

    from autotune.space_file import read_search_space as read  # noqa: PLC0415

    return read(Path(path))
