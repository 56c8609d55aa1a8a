"""What one version of `vllm serve` takes: its arguments by name, and how a word is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

ArgumentKind: TypeAlias = Literal[
    "switch",
    "pair",
    "integer",
    "human_integer",
    "human_integer_or_auto",
    "number",
    "text",
    "json",
    "text_or_json",
    "any",
]
"""A `switch` can only be set, a `pair` can be set and unset; `any` takes a value nobody knows more about."""

Folding: TypeAlias = Literal["lower", "lower_underscore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of `vllm serve`.

    choices: the words it takes, all of them; empty where any will do
    folding: how vLLM spells a word before it looks among the choices
    many: takes several words
    """

    flags: tuple[str, ...]
    kind: ArgumentKind
    choices: tuple[str, ...] = ()
    folding: Folding | None = None
    many: bool = False
    default: bool | int | float | str | None = None

    @property
    def is_boolean(self) -> bool:
        return self.kind in ("switch", "pair")

    @property
    def takes_json(self) -> bool:
        return self.kind in ("json", "text_or_json", "any")

    def knows(self, word: str) -> bool:
        """Tell whether a word is among the choices, spelled as vLLM would spell it."""
        if not self.choices:
            return True
        wanted = self.folded(word)
        return any(self.folded(choice) == wanted for choice in self.choices)

    def folded(self, word: str) -> str:
        if self.folding is None:
            return word
        lower = word.lower()
        return lower.replace("-", "_") if self.folding == "lower_underscore" else lower


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmArguments:
    """All that a version of `vllm serve` takes.

    origin: where this is from, for a person to read
    by_name: every spelling of every long flag in snake_case, as a search space has it
    speculative_keys: keys of `--speculative-config`, each with its choices if it has some
    variables: environment variables that vLLM reads; None where nobody said
    """

    origin: str
    version: str | None
    by_name: Mapping[str, Argument]
    speculative_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    variables: frozenset[str] | None = None

    @property
    def label(self) -> str:
        """Name it in a message.

        >>> VllmArguments(origin="", version="0.33.0", by_name={}).label
        'vLLM 0.33.0'
        """
        return f"vLLM {self.version}" if self.version else "this vLLM"


def by_name(arguments: tuple[Argument, ...]) -> dict[str, Argument]:
    """Index arguments by their long flags.

    >>> list(by_name((Argument(flags=("-q", "--max-num-seqs"), kind="integer"),)))
    ['max_num_seqs']
    """
    return {
        flag.removeprefix("--").replace("-", "_"): argument
        for argument in arguments
        for flag in argument.flags
        if flag.startswith("--")
    }
