"""The pick as a `vllm serve` command line."""

import shlex
from dataclasses import dataclass

from autotune.exporters.recipe import SECRET
from autotune.model.results import Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What to paste into a shell; secrets are left out."""

    pick: str = "balanced"
    filename: str = "command.txt"

    def render(self, results: Results) -> str:
        member = results.pick(self.pick)
        if member is None:
            return ""
        config = results.space.config(member.trial.values)
        environment = [
            f"{name}={shlex.quote(value)}"
            for name, value in config.environment().items()
            if not SECRET.search(name)
        ]
        words = [*environment, "vllm", "serve", *map(shlex.quote, config.argv())]
        return " ".join(words) + "\n"
