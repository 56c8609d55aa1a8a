"""The plug-in names that a search space may use; the tables themselves live in upper layers."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Known plug-ins by name, each with the names of its options. An empty table accepts anything."""

    launchers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    gates: Mapping[str, frozenset[str]] = field(default_factory=dict)
    samplers: Mapping[str, frozenset[str]] = field(default_factory=dict)


ANYTHING = Vocabulary()
