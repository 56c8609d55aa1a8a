"""Reads the text of `vllm serve --help=all`.

The text tells flags and choices, not types, nor what the configuration refuses later on: a second
best, for a vLLM whose parser cannot be built from outside.
"""

import re
from collections.abc import Iterator

from autotune.vllm_args.arguments import Argument, VllmArguments, by_name

ORIGIN = "the text of `vllm serve --help=all`"
FEWEST = 50
"""vLLM has about 300 arguments; a text with fewer than this is some other program's."""

_INVOCATION = re.compile(r"  (-{1,2}[A-Za-z]\S*(?: \S+)*)(?:  .*)?")
_NEGATIVE = ("--no-", "--disable-")


def arguments_in_help(text: str) -> VllmArguments | None:
    """Read the flags; None where the text is not vLLM's."""
    found = tuple(_arguments(text))
    if len(found) < FEWEST:
        return None
    return VllmArguments(origin=ORIGIN, version=None, by_name=by_name(found))


def _arguments(text: str) -> Iterator[Argument]:
    for line in text.splitlines():
        match = _INVOCATION.fullmatch(line)
        if match is not None:
            yield _argument(match.group(1))


def _argument(invocation: str) -> Argument:
    """Read one entry's first line.

    >>> _argument("--kv-cache {auto,fp8}, -k {auto,fp8}").choices
    ('auto', 'fp8')
    """
    flags: list[str] = []
    placeholder = ""
    for part in invocation.split(", "):
        flag, _, rest = part.partition(" ")
        if flag.startswith("-"):
            flags.append(flag)
            placeholder = placeholder or rest
    if not placeholder:
        is_pair = len(flags) > 1 and any(flag.startswith(_NEGATIVE) for flag in flags)
        return Argument(flags=tuple(flags), kind="pair" if is_pair else "switch")
    choices = re.match(r"\{([^{}\s]+)\}", placeholder)
    return Argument(
        flags=tuple(flags),
        kind="any",
        choices=tuple(choices.group(1).split(",")) if choices else (),
        # The text does not tell whether case matters, so it is not held against anybody.
        folding="lower_underscore" if choices else None,
        many="[" in placeholder,
    )
