"""How values and suggestions are put into words."""

import difflib
import json
from collections.abc import Iterable, Mapping

from autotune.model.serving_config import Setting

_SHOWN_CHOICES = 24
_SHOWN_TEXT = 60


def shown(value: Setting) -> str:
    """Show a value as it stands in the file.

    >>> shown(True), shown("fp8"), shown(0.5)
    ('true', "'fp8'", '0.5')
    """
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _SHOWN_TEXT else text[: _SHOWN_TEXT - 1] + "…"


def did_you_mean(
    word: str, choices: Iterable[str], *, shown_as: Mapping[str, str] | None = None
) -> str:
    """Point to the nearest choice, or to all of them.

    shown_as: how a choice is written where it is compared in another spelling

    >>> did_you_mean("marlim", ["marlin", "triton"]), did_you_mean("x", ["b", "a"])
    ('did you mean marlin?', 'choose from: a, b')
    """
    spelled = {choice: (shown_as or {}).get(choice, choice) for choice in choices}
    near = closest(word, spelled)
    if near is not None:
        return f"did you mean {spelled[near]}?"
    names = sorted(set(spelled.values()))
    tail = [f"… ({len(names)} in all)"] if len(names) > _SHOWN_CHOICES else []
    return f"choose from: {', '.join([*names[:_SHOWN_CHOICES], *tail])}"


def closest(word: str, choices: Iterable[str]) -> str | None:
    """Find what was meant: the nearest word, else the only one that begins like it.

    >>> closest("num_spec", ["num_speculative_tokens", "revision"])
    'num_speculative_tokens'
    """
    known = list(choices)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    longer = [choice for choice in known if word and choice.startswith(word)]
    return near[0] if near else longer[0] if len(longer) == 1 else None
