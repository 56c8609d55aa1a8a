"""What an unquoted word of YAML means, and where YAML's two versions disagree about it.

PyYAML reads YAML 1.1, in which `on` is true, `010` is eight and `1:30` is ninety, while `1e3` is
text; YAML 1.2 reads those otherwise, and so do people. Words that both read alike are read here;
the rest is a `Trap` with the way out, unless the place they stand in settles the meaning.
"""

import re
from decimal import Decimal

from autotune.model.knob import Value
from autotune.space_file.problems import shortened

MAX_DIGITS = 30
MAX_EXPONENT = 400

NULLS = {"~", "null", "Null", "NULL"}
BOOLEANS = {
    spelled: word == "true"
    for word in ("true", "false")
    for spelled in (word, word.capitalize(), word.upper())
}
SWITCHES = {
    spelled: word in ("on", "yes")
    for word in ("on", "off", "yes", "no")
    for spelled in (word, word.capitalize(), word.upper())
}
LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+(\.[0-9_]*)?")
BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
INTEGER = re.compile(r"[-+]?[0-9][0-9_]*")
HEXADECIMAL = re.compile(r"[-+]?0x[0-9a-fA-F][0-9a-fA-F_]*")
OTHER_BASE = re.compile(r"[-+]?0[bo][0-7_]+")
FLOAT = re.compile(r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?")
NOT_FINITE = re.compile(r"[-+]?\.?(inf|infinity|nan)", re.IGNORECASE)


class Trap(ValueError):  # noqa: N818 -- a trap of YAML's, named as people name it
    """A word that YAML's versions read differently, or that no setting can hold.

    problem: what is wrong with the word as a number; way_out: what to do if text was meant
    as_text: the word is harmless where text is due
    """

    def __init__(self, problem: str, *, way_out: str = "", as_text: bool = False) -> None:
        super().__init__(problem + way_out)
        self.problem = problem
        self.as_text = as_text


def plain_value(text: str) -> Value:
    """Read an unquoted word.

    `1e3` is the number 1000: nobody means the text, and vLLM wants an integer where it can be one.

    >>> plain_value("1e3"), plain_value("0.85"), plain_value("fp8"), plain_value("~")
    (1000, 0.85, 'fp8', None)

    Raises:
        Trap: YAML's versions disagree about the word, or it is no finite number.
    """
    if text in NULLS:
        return None
    if text in BOOLEANS:
        return BOOLEANS[text]
    _refuse_traps(text)
    number = exact_number(text)
    if number is None:
        return text
    return int(number) if _is_whole(text, number) else float(number)


def exact_number(text: str) -> Decimal | None:
    """Read the number exactly as written, so that grids carry no rounding noise.

    Raises:
        Trap: The number is beyond any setting.
    """
    if HEXADECIMAL.fullmatch(text):
        _refuse_length(text)
        return Decimal(int(text.replace("_", ""), 16))
    match = FLOAT.fullmatch(text)
    if match is None:
        return None
    _refuse_length(text)
    exponent = match.group(3) or "e0"
    if abs(int(exponent[1:])) > MAX_EXPONENT:
        raise Trap(f"{shortened(text)} is beyond every setting")
    number = Decimal(text.replace("_", ""))
    if abs(number) > Decimal("1e300"):
        raise Trap(f"{shortened(text)} is beyond every setting")
    return number


def _refuse_length(text: str) -> None:
    if len(text) > MAX_DIGITS:
        raise Trap(
            f"a number of more than {MAX_DIGITS} digits is beyond every setting",
            way_out="; write it in quotes if it is text",
        )


def _is_whole(text: str, number: Decimal) -> bool:
    if INTEGER.fullmatch(text) or HEXADECIMAL.fullmatch(text):
        return True
    return "e" in text.lower() and number == number.to_integral_value()


def _refuse_traps(text: str) -> None:
    word = shortened(text)
    quoted = f', or "{word}" in quotes'
    if not text:
        raise Trap("has no value", way_out="; write null if none is meant")
    if text in SWITCHES:
        meaning = str(SWITCHES[text]).lower()
        problem = f"{word} is a switch to some YAML readers and text to others: write {meaning}"
        raise Trap(problem, way_out=quoted, as_text=True)
    if LEADING_ZERO.fullmatch(text):
        problem = (
            f"{word} with a leading zero is octal to some YAML readers: write {_decimal(word)}"
        )
        raise Trap(problem, way_out=quoted)
    if BASE_60.fullmatch(text):
        problem = f"{word} is a base-60 number to some YAML readers: write the plain number"
        raise Trap(problem, way_out=quoted, as_text=True)
    if OTHER_BASE.fullmatch(text):
        problem = f"{word} is a number only to some YAML readers: write it in decimal"
        raise Trap(problem, way_out=quoted)
    if NOT_FINITE.fullmatch(text):
        way_out = f'; write "{word}" in quotes if it is text'
        raise Trap(f"{word} is not a finite number", way_out=way_out, as_text=True)


def _decimal(text: str) -> str:
    sign = "-" if text.startswith("-") else ""
    digits = text.lstrip("+-0_") or "0"
    return sign + (f"0{digits}" if digits.startswith(".") else digits)
