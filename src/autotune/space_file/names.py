"""Names of settings: `max_num_seqs`, `speculative_config.method`, `env.VLLM_USE_V1`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from autotune.model.serving_config import ENVIRONMENT_PREFIX, Setting

FLAG = re.compile(r"[a-z][a-z0-9_]*")
JSON_KEYS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_][A-Za-z0-9_-]*)*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

LAUNCHER_CHOOSES = "the launcher chooses it, so that no other server is measured by mistake"
RESERVED: Mapping[str, str] = {
    "host": LAUNCHER_CHOOSES,
    "port": LAUNCHER_CHOOSES,
    "uds": LAUNCHER_CHOOSES,
    "served_model_name": LAUNCHER_CHOOSES,
    "api_key": "a key would end up in logs and reports; set VLLM_API_KEY in the environment",
    "model": "write it at the top of the file",
    "model_tag": "write it as model at the top of the file",
}


def name_problem(name: str) -> str | None:
    """Say what is wrong with a setting's name, and how it is spelled right."""
    if name.startswith(ENVIRONMENT_PREFIX):
        variable = name.removeprefix(ENVIRONMENT_PREFIX)
        return (
            None if VARIABLE.fullmatch(variable) else "is not the name of an environment variable"
        )
    flag, dot, keys = name.partition(".")
    if not FLAG.fullmatch(flag):
        return _spelling(flag, dot + keys)
    if dot and not JSON_KEYS.fullmatch(keys):
        return "is not a flag and a key of its JSON, such as speculative_config.method"
    if flag in RESERVED:
        return f"cannot be set here: {RESERVED[flag]}"
    if flag.startswith("no_"):
        return f"write {flag.removeprefix('no_')}: false instead"
    return None


def corrected(name: str) -> str:
    """Spell a flag the way this file does.

    >>> corrected("--max-num-seqs"), corrected("no_async_scheduling")
    ('max_num_seqs', 'async_scheduling')
    """
    flag, dot, keys = name.partition(".")
    return flag.lstrip("-").replace("-", "_").lower().removeprefix("no_") + dot + keys


def _spelling(flag: str, rest: str) -> str:
    snake = flag.lstrip("-").replace("-", "_").lower()
    if VARIABLE.fullmatch(flag) and flag.upper() == flag:
        return f"is not a flag; an environment variable is written env.{flag}"
    if FLAG.fullmatch(snake):
        return f"flags are written in snake_case here: {snake}{rest}"
    return "is not the name of a flag; write it as vllm serve does, in snake_case"


def leaves(name: str, value: Setting) -> dict[str, Setting]:
    """Spread a JSON flag over its keys.

    >>> leaves("speculative_config", {"method": "mtp", "num_speculative_tokens": 1})
    {'speculative_config.method': 'mtp', 'speculative_config.num_speculative_tokens': 1}
    """
    if not isinstance(value, Mapping) or not value:
        return {name: value}
    spread: dict[str, Setting] = {}
    for key, item in value.items():
        spread |= leaves(f"{name}.{key}", item)
    return spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Settings that stand already. A flag and a key of its JSON stand in each other's way."""

    names: set[str] = field(default_factory=set)
    parents: dict[str, str] = field(default_factory=dict)

    def add(self, name: str) -> None:
        self.names.add(name)
        for parent in parents(name):
            self.parents.setdefault(parent, name)

    def clash(self, name: str) -> str | None:
        """Name what sets the same thing, wholly or in part."""
        if name in self.names:
            return name
        upper = next((parent for parent in parents(name) if parent in self.names), None)
        return upper or self.parents.get(name)


def parents(name: str) -> Iterator[str]:
    """Name the JSON flags that a dotted name is part of."""
    parts = name.split(".")
    # `env.X` is no key of a flag called env.
    first = 2 if name.startswith(ENVIRONMENT_PREFIX) else 1
    for length in range(first, len(parts)):
        yield ".".join(parts[:length])
