"""Words of a command line, as people paste them, become settings by name.

How many words a flag takes is read off the words themselves, as vLLM's own parser is not at hand:
everything up to the next flag.
"""

import json
import math
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from autotune.model.serving_config import Setting

SHORT_FORMS = {
    "-ac": "--attention-config",
    "-asc": "--api-server-count",
    "-cc": "--compilation-config",
    "-dc": "--diffusion-config",
    "-dcp": "--decode-context-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpa": "--data-parallel-address",
    "-dpb": "--data-parallel-backend",
    "-dpe": "--data-parallel-external-lb",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpl": "--data-parallel-size-local",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-dpn": "--data-parallel-rank",
    "-dpp": "--data-parallel-rpc-port",
    "-dpr": "--data-parallel-start-rank",
    "-ep": "--enable-expert-parallel",
    "-n": "--nnodes",
    "-O": "--optimization-level",
    "-pcp": "--prefill-context-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-r": "--node-rank",
    "-sc": "--speculative-config",
    "-tp": "--tensor-parallel-size",
}
"""vLLM 0.33's one-dash flags. Its parser also takes `-O2`, and keys after a dot (`-sc.method`)."""

MAX_DEPTH = 40
INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,29})")
_FLAG = re.compile(r"-{1,2}[A-Za-z]")


class ArgvError(ValueError):
    """A word that is no setting; the message starts with the word."""


def split_line(line: str) -> list[str]:
    """Split a pasted command line; a backslash at a line's end goes on as in a shell.

    Raises:
        ArgvError: A quote stays open.
    """
    joined = re.sub(r"\\\r?\n", " ", line)
    try:
        return shlex.split(joined)
    except ValueError as error:
        raise ArgvError(f"cannot be split into words: {error}") from error


def split_item(item: str) -> list[str]:
    """Split a list item that holds a flag together with its value (`--max-model-len 65536`).

    Raises:
        ArgvError: A quote stays open.
    """
    flag, *rest = item.split(maxsplit=1) or [item]
    if not is_flag(flag) or not rest or "=" in flag:
        return [item]
    return [flag, rest[0]] if rest[0].startswith(("{", "[")) else split_line(item)


def is_flag(word: str) -> bool:
    """Tell a flag from a value; a negative number is a value."""
    return _FLAG.match(word) is not None


def grouped(words: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Group words by flag, each group with the place of its first word among all words."""
    start = 0
    for position in range(1, len(words) + 1):
        if position == len(words) or is_flag(words[position]):
            yield start, list(words[start:position])
            start = position


def setting_of(words: Sequence[str]) -> tuple[str, Setting]:
    """Read a flag and its values: (`max_model_len`, 65536), (`speculative_config.method`, "mtp").

    Raises:
        ArgvError: The first word is no flag, or a switch has a value.
    """
    if not is_flag(words[0]):
        raise ArgvError(f"{words[0]} is not a flag; the model stands at the top of the file")
    flag, values = _split_flag(words[0])
    return _setting(flag, [*values, *words[1:]])


def _split_flag(word: str) -> tuple[str, list[str]]:
    flag, equals, value = word.partition("=")
    if re.fullmatch(r"-O\w+", flag):
        return SHORT_FORMS["-O"], [flag.removeprefix("-O")]
    name, dot, keys = flag.partition(".")
    return SHORT_FORMS.get(name, name) + dot + keys, [value] if equals else []


def _setting(flag: str, values: list[str]) -> tuple[str, Setting]:
    if not flag.startswith("--"):
        raise ArgvError(f"{flag} is not a short form of vllm serve; write the long one")
    name, dot, keys = flag.removeprefix("--").partition(".")
    name = name.replace("-", "_").lower()
    if name.startswith("no_"):
        if values:
            raise ArgvError(f"{flag} switches off and takes no value, but {values[0]} follows")
        return name.removeprefix("no_"), False
    if not values:
        return name + dot + keys, True
    read = [key_value(word) if dot else word_value(word) for word in values]
    return name + dot + keys, read[0] if len(read) == 1 else read


def key_value(word: str) -> Setting:
    """Read the value of a JSON key (`-sc.disable_padded_drafter_batch true`) as vLLM does: as JSON."""
    return {"true": True, "false": False}.get(word, word_value(word))


def word_value(word: str) -> Setting:
    """Read numbers that come back as the same word, and the JSON of a JSON flag.

    >>> word_value("0.85"), word_value("0.90"), word_value('{"method": "mtp"}')
    (0.85, '0.90', {'method': 'mtp'})
    """
    if INTEGER.fullmatch(word) and word != "-0":
        return int(word)
    if re.fullmatch(r"-?[0-9.e+-]{1,30}", word):
        return _float(word)
    found = json_mapping(word)
    return word if found is None else found


def _float(word: str) -> float | str:
    try:
        number = float(word)
    except ValueError:
        return word
    return number if math.isfinite(number) and repr(number) == word else word


def json_mapping(text: str) -> dict[str, Any] | None:
    """Read a JSON object; anything else (a Jinja template, say) is None."""
    if not text.lstrip().startswith("{") or _nesting(text) > MAX_DEPTH:
        return None
    try:
        found = json.loads(
            text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique
        )
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _nesting(text: str) -> int:
    """Bound the depth from above; brackets inside of strings count as well."""
    depth = deepest = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice")
    return found


def _refuse(word: str) -> None:
    raise ValueError(word)


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(word)
    return number
