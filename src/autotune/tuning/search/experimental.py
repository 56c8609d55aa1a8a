"""Optuna features that we use although it still calls them experimental."""

import contextlib
import warnings
from collections.abc import Iterator

import optuna


@contextlib.contextmanager
def knowingly() -> Iterator[None]:
    """Use an experimental feature without a warning to people who did not choose it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield
