"""The lists that come along, for hosts where the vLLM that will run cannot be asked.

A list is made by running `dump.py` with that vLLM's Python: `data/VERSION.json` says how.
"""

import importlib.resources
import re

from autotune.errors import UsageError
from autotune.vllm_args.arguments import VllmArguments
from autotune.vllm_args.described import arguments_of, read_described

VERSIONS = ("0.26", "0.32", "0.33")


def shipped_arguments(version: str | None = None, *, why: str | None = None) -> VllmArguments:
    """Read the list of the version that is nearest to the one asked for, or the newest.

    why: what kept anybody from asking vLLM itself; becomes part of the origin

    Raises:
        UsageError: `version` is no version.
    """
    name = nearest(version) if version is not None else VERSIONS[-1]
    origin = f"shipped list for {name}"
    if version is not None and _release(version) != _release(name):
        origin += f", the nearest to {version}"
    if why is not None:
        origin += f" ({why})"
    text = (
        importlib.resources.files(__package__).joinpath("data", f"{name}.json").read_text("utf-8")
    )
    return arguments_of(read_described(text), origin=origin)


def nearest(version: str) -> str:
    """Choose the shipped version nearest to another one; of two as near, the newer.

    >>> nearest("0.32.1"), nearest("0.26.1rc1.dev693+g7f7a32cfe"), nearest("0.29"), nearest("1.0")
    ('0.32', '0.26', '0.32', '0.33')

    Raises:
        UsageError: `version` is no version.
    """
    wanted = _release(version)
    return min(reversed(VERSIONS), key=lambda own: _distance(_release(own), wanted))


def _distance(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    return abs(left[0] - right[0]), abs(left[1] - right[1]) if left[0] == right[0] else -left[1]


def _release(version: str) -> tuple[int, int]:
    match = re.match(r"v?(\d{1,6})\.(\d{1,6})(?![0-9])", version.strip())
    if match is None:
        raise UsageError(
            f"{version!r} is not a version of vLLM",
            hint=f"Write it like 0.33. There are lists for {', '.join(VERSIONS)}.",
        )
    return int(match.group(1)), int(match.group(2))
