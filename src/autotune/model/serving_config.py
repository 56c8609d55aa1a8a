"""One configuration of `vllm serve`: named settings, and how they become argv and environment.

Names are those of the search-space file: `max_num_seqs`, `speculative_config.method`, `env.VAR`.
What a launcher adds on its own (host, port, served model name) is not part of it.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Setting: TypeAlias = Any
"""A knob's value, or for fixed settings also a list or a mapping (rendered as JSON)."""

ENVIRONMENT_PREFIX = "env."
SECRET = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(API|ACCESS|PRIVATE|AUTH)_?KEY)(_|$)",
    re.IGNORECASE,
)
"""Names of environment variables whose values are nobody's business."""
DRAFT_LENGTH = "speculative_config.num_speculative_tokens"
SPECULATIVE = "speculative_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingConfig:
    """A model and the settings it is served with, in the order they are rendered."""

    model: str
    settings: Mapping[str, Setting] = field(default_factory=dict)

    def argv(self) -> tuple[str, ...]:
        """Render what follows `vllm serve`.

        >>> ServingConfig(model="m", settings={"max_num_seqs": 4, "async_scheduling": False}).argv()
        ('m', '--max-num-seqs', '4', '--no-async-scheduling')
        """
        return (self.model, *self.flags())

    def flags(self) -> tuple[str, ...]:
        return tuple(
            word for name, value in self.arguments().items() for word in _words(name, value)
        )

    def arguments(self) -> dict[str, Setting]:
        """Collect the settings by flag: keys of JSON flags are merged, absent ones left out."""
        merged: dict[str, Setting] = {}
        for name, value in self.settings.items():
            if name.startswith(ENVIRONMENT_PREFIX) or value is None:
                continue
            flag, _, key = name.partition(".")
            if key:
                merged[flag] = _put({**merged.get(flag, {})}, key, value)
            elif isinstance(value, Mapping) and isinstance(merged.get(flag), Mapping):
                merged[flag] = {**value, **merged[flag]}
            else:
                merged[flag] = value
        if not _speculates(merged.get(SPECULATIVE)):
            merged.pop(SPECULATIVE, None)
        return merged

    def environment(self) -> dict[str, str]:
        return {
            name.removeprefix(ENVIRONMENT_PREFIX): _text(value)
            for name, value in self.settings.items()
            if name.startswith(ENVIRONMENT_PREFIX) and value is not None
        }

    def speculates(self) -> bool:
        return SPECULATIVE in self.arguments()

    def command(self) -> str:
        """Render the whole command as a person would paste it into a shell, secrets left out."""
        env = [f"{name}={shlex.quote(value)}" for name, value in self.shown_environment().items()]
        return " ".join([*env, "vllm", "serve", *map(shlex.quote, self.argv())])

    def shown_environment(self) -> dict[str, str]:
        """Leave out what may be a secret: this goes to records, reports and recipes."""
        return {n: value for n, value in self.environment().items() if not SECRET.search(n)}


def flag_name(name: str) -> str:
    """Turn a setting's name into its flag.

    >>> flag_name("max_num_seqs")
    '--max-num-seqs'
    """
    return "--" + name.replace("_", "-")


def _put(target: dict[str, Setting], path: str, value: Setting) -> dict[str, Setting]:
    key, _, rest = path.partition(".")
    target[key] = _put({**target.get(key, {})}, rest, value) if rest else value
    return target


def _speculates(value: Setting) -> bool:
    """Zero draft tokens means no speculative config at all: vLLM refuses a zero."""
    return not (isinstance(value, Mapping) and value.get("num_speculative_tokens") == 0)


def _words(name: str, value: Setting) -> Iterator[str]:
    flag = flag_name(name)
    if value is True:
        yield flag
    elif value is False:
        # `--no-x` parses in every version; `--disable-x` only from 0.33 on.
        yield "--no-" + flag.removeprefix("--")
    elif isinstance(value, Mapping):
        yield from (flag, json.dumps(value, separators=(",", ":")))
    elif isinstance(value, list | tuple):
        yield from (flag, *map(_text, value))
    else:
        yield from (flag, _text(value))


def _text(value: Setting) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)
