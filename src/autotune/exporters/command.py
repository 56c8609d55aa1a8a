"""The pick as a `vllm serve` command line."""

from dataclasses import dataclass

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
        return results.space.config(member.trial.values).command() + "\n"
