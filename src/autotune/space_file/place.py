"""A place in the file: a node, the dotted path to it, and typed ways to read it.

Every reading method notes what is wrong and returns None (or nothing at all), so that the caller
goes on and one run tells all mistakes.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Literal

from autotune.model.knob import Value
from autotune.space_file.problems import Problems, choose, closest, listed, shortened
from autotune.space_file.scalars import (
    NULLS,
    SWITCHES,
    Trap,
    exact_number,
    plain_value,
)
from autotune.space_file.yaml_lines import Items, Node, Scalar, Table, dotted


class Unread(Enum):
    """Stands for a value that could not be read; None is a value."""

    UNREAD = "unread"


UNREAD: Final = Unread.UNREAD


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One value of the file and where it stands."""

    node: Node
    path: str
    line: int
    problems: Problems

    @property
    def where(self) -> str:
        return self.problems.place(self.line)

    @property
    def blank(self) -> bool:
        """Nothing stands here, or null: an optional part counts as left out."""
        return isinstance(self.node, Scalar) and self.node.plain and self._word() in {"", *NULLS}

    @property
    def word(self) -> str | None:
        """The bare word, where a single one stands."""
        return self.node.text if isinstance(self.node, Scalar) else None

    @property
    def is_table(self) -> bool:
        return isinstance(self.node, Table)

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, Items)

    def fail(self, text: str) -> None:
        self.problems.add(self.line, self.path, text)

    def missing(self, key: str, text: str) -> None:
        self.problems.add(self.line, dotted(self.path, key), text)

    # --- collections

    def table(self, content: str) -> dict[str, "Place"]:
        """Read a mapping with free keys; nothing there is an empty one."""
        if self.blank:
            return {}
        if not isinstance(self.node, Table):
            self.fail(f"must be a mapping of {content}, not {self._kind()}")
            return {}
        return {
            key: Place(
                node=entry.node,
                path=dotted(self.path, key),
                line=entry.line,
                problems=self.problems,
            )
            for key, entry in self.node.entries.items()
        }

    def fields(self, allowed: Collection[str]) -> dict[str, "Place"]:
        """Read a mapping with fixed keys.

        A misspelled key is noted and then read as the one it is like, so that one slip does not
        look like two: an unknown key and a missing one.
        """
        entries = self.table(f"the keys {listed(allowed)}")
        known = {key: place for key, place in entries.items() if key in allowed}
        for key, place in entries.items():
            if key not in allowed:
                place.fail(f"there is no such key; {choose(key, allowed)}")
                known.setdefault(closest(key, allowed) or key, place)
        return {key: place for key, place in known.items() if key in allowed}

    def items(self, content: str) -> list["Place"]:
        if self.blank:
            return []
        if not isinstance(self.node, Items):
            self.fail(f"must be a list of {content}, not {self._kind()}")
            return []
        return list(self._items(self.node))

    def one_or_more(self) -> list["Place"]:
        """Read `x` like `[x]`."""
        return list(self._items(self.node)) if isinstance(self.node, Items) else [self]

    def _items(self, node: Items) -> Iterator["Place"]:
        for index, item in enumerate(node.items):
            path = f"{self.path}[{index}]"
            yield Place(node=item, path=path, line=item.line, problems=self.problems)

    # --- single values

    def value(self) -> Value | Literal[Unread.UNREAD]:
        """Read a value whose type the file decides: what a vLLM flag may hold."""
        if not isinstance(self.node, Scalar):
            self.fail(f"must be a single value, not {self._kind()}")
            return UNREAD
        if not self.node.plain:
            return self._quoted()
        try:
            return plain_value(self._word())
        except Trap as trap:
            self.fail(str(trap))
            return UNREAD

    def _quoted(self) -> str | Literal[Unread.UNREAD]:
        word = self._word()
        if word.strip().lower() in ("true", "false"):
            # As text, "false" would switch a feature on wherever only its presence counts.
            self.fail(f'"{word}" in quotes is text, not a switch: write {word.strip().lower()}')
            return UNREAD
        return word

    def setting(self) -> Any:
        """Read a value of any shape (or `UNREAD`): fixed arguments and options of plug-ins."""
        if isinstance(self.node, Table):
            entries = {key: place.setting() for key, place in self.table("").items()}
            return UNREAD if UNREAD in entries.values() else entries
        if isinstance(self.node, Items):
            items = [place.setting() for place in self._items(self.node)]
            return UNREAD if UNREAD in items else items
        return self.value()

    def text(self, content: str = "text") -> str | None:
        if not isinstance(self.node, Scalar):
            self.fail(f"must be {content}, not {self._kind()}")
            return None
        word = self._word()
        if not word.strip():
            self.fail(f"must be {content}, not nothing")
            return None
        return None if self.node.plain and not self._is_text(word) else word

    def _is_text(self, word: str) -> bool:
        try:
            value = plain_value(word)
        except Trap as trap:
            if not trap.as_text:
                self.fail(str(trap))
            return trap.as_text
        if not isinstance(value, str):
            self.fail(f'must be text, not {word}; write "{word}" in quotes if that is meant')
        return isinstance(value, str)

    def raw(self) -> str | None:
        """Take the word as it stands, quoted or not."""
        if isinstance(self.node, Scalar):
            return self._word()
        self.fail(f"must be text, not {self._kind()}")
        return None

    def boolean(self) -> bool | None:
        """Read a switch; `on` and `off` are evident here."""
        if isinstance(self.node, Scalar) and self.node.plain and self._word() in SWITCHES:
            return SWITCHES[self._word()]
        value = self.value()
        if isinstance(value, bool):
            return value
        if value is not UNREAD:
            self.fail(f"must be true or false, not {self._shown()}")
        return None

    def number(self, content: str = "a number") -> Decimal | None:
        """Read a number exactly as written; `1e3` counts as one."""
        if not isinstance(self.node, Scalar):
            self.fail(f"must be {content}, not {self._kind()}")
            return None
        word = self._word()
        try:
            number = exact_number(word) if self.node.plain else None
            value = plain_value(word) if self.node.plain else None
        except Trap as trap:
            self.fail(trap.problem)
            return None
        if number is None or isinstance(value, str):
            quoted = "" if self.node.plain else ", without quotes"
            self.fail(f"must be {content}{quoted}, not {self._shown()}")
            return None
        return number

    def integer(self, *, low: int, high: int, content: str = "a whole number") -> int | None:
        number = self.number(content)
        if number is None:
            return None
        if number != number.to_integral_value():
            self.fail(f"must be {content}, not {self._shown()}")
            return None
        if not low <= number <= high:
            self.fail(f"must be from {low} to {high}, not {self._shown()}")
            return None
        return int(number)

    def positive(self, content: str) -> float | None:
        number = self.number(content)
        if number is None:
            return None
        if number <= 0 or not math.isfinite(float(number)) or float(number) == 0:
            self.fail(f"must be {content} above 0, not {self._shown()}")
            return None
        return float(number)

    # --- wording

    def _word(self) -> str:
        return self.node.text if isinstance(self.node, Scalar) else ""

    def _shown(self) -> str:
        quote = "" if isinstance(self.node, Scalar) and self.node.plain else '"'
        return f"{quote}{shortened(self._word())}{quote}"

    def _kind(self) -> str:
        if isinstance(self.node, Table):
            return "a mapping"
        if isinstance(self.node, Items):
            return "a list"
        return self._shown() if self._word() else "nothing"
