"""The plain text inside a regular expression, so that most of a log is searched without one.

`str.find` passes over megabytes in milliseconds; two hundred regular expressions need minutes.
Understands the subset that the signatures use; no lookaround, no backreference.
"""

import re

_ELEMENT = re.compile(
    r"""
    (?P<escape>\\[A-Za-z0-9]) | \\(?P<escaped>.) | (?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])
    | (?P<open>\((?:\?(?::|P<\w+>))?) | (?P<bar>\|) | (?P<special>[.^$]) | (?P<plain>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_QUANTIFIER = re.compile(r"[*?]\??|\{\d+(?:,\d*)?\}|\+")


def literal_phrases(pattern: str) -> tuple[str, ...]:
    r"""Find pieces of plain text of which every match contains at least one.

    >>> literal_phrases(r"Worker proc \S+ died unexpectedly( \(exit code: (-?\d+)\))?")
    (' died unexpectedly',)
    >>> literal_phrases(r"(?:CUDA|HIP) error")
    (' error',)
    >>> literal_phrases(r"\b(?:GatedRepoError|gated repo)\b")
    ('GatedRepoError', 'gated repo')
    """
    found: list[tuple[str, ...]] = []
    branches: list[tuple[str, ...]] = []
    run, position = "", 0
    while position < len(pattern):
        element = _ELEMENT.match(pattern, position)
        assert element is not None  # noqa: S101 - `plain` matches any character
        position = element.end()
        inside = None
        if element["open"] is not None:
            position = _closing(pattern, position)
            inside = pattern[element.end() : position - 1]
        quantifier = _QUANTIFIER.match(pattern, position)
        position = quantifier.end() if quantifier else position
        plain = element["plain"] or element["escaped"]
        if plain is not None and quantifier is None:
            run += plain
            continue
        found.append((run,))
        run = ""
        if element["bar"] is not None:
            branches.append(max(found, key=_worth))
            found = []
        elif inside is not None and (quantifier is None or quantifier[0] == "+"):
            found.append(literal_phrases(inside))
    branches.append(max([*found, (run,)], key=_worth))
    return tuple(phrase for branch in branches for phrase in branch)


def _worth(phrases: tuple[str, ...]) -> int:
    return min(len(phrase) for phrase in phrases)


def _closing(pattern: str, position: int) -> int:
    """Step behind the parenthesis that closes a group whose inside starts here."""
    depth = 1
    while depth:
        element = _ELEMENT.match(pattern, position)
        if element is None:
            raise ValueError(f"a group is not closed: {pattern}")
        position = element.end()
        depth += (element["open"] is not None) - (element["plain"] == ")")
    return position
