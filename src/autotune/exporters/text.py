"""How values are written for people: short, and harmless in Markdown."""

from collections.abc import Iterable, Mapping, Sequence

from autotune.model.knob import Value, same
from autotune.model.results import Estimate
from autotune.model.serving_config import DRAFT_LENGTH


def shown(value: object) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def number(value: float) -> str:
    """Write about four digits.

    >>> number(732.51), number(20.4), number(0.7103), number(12345.6)
    ('732.5', '20.40', '0.710', '12346')
    """
    size = abs(value)
    digits = 0 if size >= 10_000 else 1 if size >= 100 else 2 if size >= 10 else 3  # noqa: PLR2004
    return f"{value:.{digits}f}"


def interval(estimate: Estimate) -> str:
    """Write a mean with half the width of its 95 % interval."""
    if estimate.low is None or estimate.high is None:
        return number(estimate.mean)
    return f"{number(estimate.mean)} ± {number((estimate.high - estimate.low) / 2)}"


def change(ratio: float | None) -> str:
    """Write a value's ratio to the baseline's as a change in percent.

    >>> change(1.204), change(0.31), change(None)
    ('+20.4 %', '-69.0 %', '-')
    """
    return "-" if ratio is None else f"{(ratio - 1) * 100:+.1f} %"


def plain(text: str) -> str:
    """Make text of unknown origin harmless in a Markdown table."""
    one_line = " ".join(text.split())
    for character in "\\`|*_<>[]":
        one_line = one_line.replace(character, "\\" + character)
    return one_line


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table; cells must be harmless already."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def settings(config: Mapping[str, Value], reference: Mapping[str, Value] | None = None) -> str:
    """Write a configuration on one line: inactive knobs left out, or only what differs.

    >>> settings({"max_num_seqs": 8, "dtype": "-"}), settings({"a": 1, "b": 2}, {"a": 1, "b": 3})
    ('max_num_seqs=8', 'b=2')
    """
    return ", ".join(
        f"{_short(name)}={shown(value)}"
        for name, value in config.items()
        if (value != "-" if reference is None else not same(value, reference.get(name)))
    )


def _short(name: str) -> str:
    """Drop the flag's name where the key alone is known to everybody."""
    return "num_speculative_tokens" if name == DRAFT_LENGTH else name
