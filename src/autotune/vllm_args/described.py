"""Reads what `dump.py` prints, from a vLLM that was asked or from a list that is shipped."""

import json
from collections.abc import Mapping
from typing import Any, get_args

from autotune.vllm_args.arguments import (
    Argument,
    ArgumentKind,
    Folding,
    VllmArguments,
    by_name,
)

SCHEMA_VERSION = 1

_KINDS: tuple[ArgumentKind, ...] = get_args(ArgumentKind)
_FOLDINGS: tuple[Folding, ...] = get_args(Folding)


class DescriptionError(ValueError):
    """The text is no description of a vLLM's arguments."""


def read_described(text: str) -> dict[str, Any]:
    """Find the description in what a process printed.

    Raises:
        DescriptionError: There is none, or of a form that is not known here.
    """
    # Plug-ins may write around it.
    start = text.find("{")
    try:
        described, _ = json.JSONDecoder().raw_decode(text[start:]) if start >= 0 else (None, 0)
    except ValueError as error:
        raise DescriptionError(str(error)) from error
    if not isinstance(described, dict) or described.get("schema_version") != SCHEMA_VERSION:
        raise DescriptionError("no description of arguments")
    return described


def arguments_of(described: Mapping[str, Any], *, origin: str) -> VllmArguments:
    """Build the nouns.

    Raises:
        DescriptionError: The parser could not be described, or the form is wrong.
    """
    entries = described.get("arguments")
    if not isinstance(entries, list) or not entries:
        raise DescriptionError(str(described.get("error") or "no arguments"))
    variables = described.get("variables")
    try:
        return VllmArguments(
            origin=origin,
            version=version_of(described),
            by_name=by_name(tuple(_argument(entry) for entry in entries)),
            speculative_keys={
                str(key): tuple(words)
                for key, words in (described.get("speculative_keys") or {}).items()
            },
            variables=None if variables is None else frozenset(map(str, variables)),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DescriptionError(f"malformed: {error!r}") from error


def version_of(described: Mapping[str, Any]) -> str | None:
    """Read the version without the name of its build (`0.32.0+cpu`)."""
    version = described.get("version")
    return version.partition("+")[0] if isinstance(version, str) else None


def _argument(entry: Mapping[str, Any]) -> Argument:
    kind, folding = entry["kind"], entry.get("folding")
    return Argument(
        flags=tuple(entry["flags"]),
        kind=kind if kind in _KINDS else "any",
        choices=tuple(entry.get("choices", ())),
        folding=folding if folding in _FOLDINGS else None,
        many=bool(entry.get("many", False)),
        default=entry.get("default"),
    )
