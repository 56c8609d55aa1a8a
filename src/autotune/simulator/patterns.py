"""The shortest string that a regular expression of the usual kind matches.

Reads literals, classes, groups, alternatives and repeats; look-arounds and back references are not
honoured.
"""

import re
from collections.abc import Iterable
from typing import Any

# The parser is public in all but name: sre_parse was its documented-by-use name until 3.11.
_parser: Any = re._parser  # type: ignore[attr-defined]  # noqa: SLF001 - no other parser in the library

_CATEGORIES = {
    "CATEGORY_DIGIT": "5",
    "CATEGORY_WORD": "a",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_DIGIT": "a",
    "CATEGORY_NOT_SPACE": "a",
    "CATEGORY_NOT_WORD": "-",
}


def example_of(pattern: str) -> str:
    r"""Build a match.

    >>> example_of(r"^[A-Z]{3}-\d{2,4}$")
    'AAA-55'
    """
    return "".join(_render(_parser.parse(pattern)))


def _render(tokens: Iterable[Any]) -> Iterable[str]:
    for operation, argument in tokens:
        name = str(operation)
        if name == "LITERAL":
            yield chr(argument)
        elif name == "NOT_LITERAL":
            yield "a" if argument != ord("a") else "b"
        elif name == "ANY":
            yield "a"
        elif name == "IN":
            yield _one_of(argument)
        elif name == "BRANCH":
            yield from _render(argument[1][0])
        elif name == "SUBPATTERN":
            yield from _render(argument[3])
        elif name in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
            least, _, inner = argument
            yield "".join(_render(inner)) * least


def _one_of(members: list[Any]) -> str:
    if str(members[0][0]) == "NEGATE":
        excluded = {chr(value) for operation, value in members[1:] if str(operation) == "LITERAL"}
        return next(letter for letter in "axyz019_-" if letter not in excluded)
    operation, value = members[0]
    if str(operation) == "RANGE":
        return chr(value[0])
    if str(operation) == "CATEGORY":
        return _CATEGORIES.get(str(value), "a")
    return chr(value)
