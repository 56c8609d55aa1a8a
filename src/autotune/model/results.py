"""The study so far, judged: what stands on the front and by how much it beats the baseline."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from autotune.model.host import HostFacts
from autotune.model.knob import Value
from autotune.model.outcome import Trial
from autotune.model.search_space import SearchSpace

Standing: TypeAlias = Literal["front", "possible", "dominated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over repeats and its 95 % interval; no interval from a single run."""

    mean: float
    low: float | None = None
    high: float | None = None
    runs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A usable configuration with its objectives' estimates.

    estimates: by objective name; dominance: probability that another one beats it in everything
    """

    trial: Trial
    standing: Standing
    estimates: Mapping[str, Estimate]
    dominance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All trials of a study and the members among them, best standing first."""

    study: str
    space: SearchSpace
    trials: tuple[Trial, ...]
    members: tuple[Member, ...]
    baseline: Member | None
    host: HostFacts | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def front(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.standing == "front")

    def ratio(self, member: Member, objective: str) -> float | None:
        """Divide a member's mean by the baseline's; None without a baseline."""
        if self.baseline is None:
            return None
        reference = self.baseline.estimates[objective].mean
        return member.estimates[objective].mean / reference if reference else None

    @property
    def simulated(self) -> bool:
        """Whether no real server was behind the numbers."""
        return self.space.server.launcher.kind == "simulated"

    def is_baseline(self, member: Member) -> bool:
        return self.baseline is not None and member.trial.number == self.baseline.trial.number

    def differences(self, member: Member) -> tuple[dict[str, Value], dict[str, Value]]:
        """Give a member's knobs and the baseline's, as they are shown to a person."""
        return self.space.shown(member.trial.values), self.space.shown(self.space.baseline)

    def pick(self, how: str) -> Member | None:
        """Choose a member: `throughput`, `ttft`, `balanced` or the number of a trial.

        Balanced is the largest sum of log(objective) over what is maximized, minus the rest:
        for the default objectives log(tok/s) - log(TTFT).
        """
        if how.isdecimal():
            wanted = int(how)
            return next((m for m in self.members if m.trial.number == wanted), None)
        # What is within the noise of the front may well be the best in one objective.
        candidates = [member for member in self.members if member.standing != "dominated"]
        if not candidates:
            return None
        return max(candidates, key=lambda member: self._score(member, how))

    def _score(self, member: Member, how: str) -> float:
        total = 0.0
        for objective in self.space.objectives:
            if how == "throughput" and objective.sign < 0:
                continue
            if how == "ttft" and not objective.quantity.metric.startswith("ttft_ms"):
                continue
            mean = member.estimates[objective.name].mean
            total += objective.sign * (math.log(mean) if mean > 0 else -math.inf)
        return total
