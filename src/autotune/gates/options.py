"""Checks the options of gates, in words that name the option and what it may be."""


def check_asking(calls: object, threshold: object, thinking: object, max_tokens: object) -> None:
    """Check what every gate that asks questions has.

    Raises:
        ValueError: With the option and its legal values.
    """
    check_count("calls", calls)
    check_count("max_tokens", max_tokens)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise ValueError(f"threshold is {threshold!r}: {_SHARE}")  # noqa: TRY004 - one error for a file
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold is {threshold!r}: {_SHARE}")
    if thinking is not None and not isinstance(thinking, bool):
        # A text would reach the chat template, where every text that is not empty is true.
        raise ValueError(f"thinking is {thinking!r}: it must be true, false or left out")


_SHARE = "it must be a number above 0 and up to 1"


def check_count(name: str, value: object) -> None:
    """Refuse what is no whole number from 1 up.

    Raises:
        ValueError: With the option and its legal values.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}: it must be a whole number from 1 up")


def thinking_option(thinking: bool | None) -> dict[str, object]:
    """Body fields that turn thinking on or off; none leaves it to the model's template."""
    return {} if thinking is None else {"chat_template_kwargs": {"enable_thinking": thinking}}
