"""How a trial ends. Four endings, and no failure is ever a number."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from autotune.model.diagnosis import ServerFacts
from autotune.model.knob import Value
from autotune.model.measurement import Measurement

CaseVerdict: TypeAlias = Literal["pass", "fail", "inconclusive", "request_failed", "setup_error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One question of a gate: what was found (`reason`, one word) and why, as a sentence."""

    id: str
    verdict: CaseVerdict
    reason: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a gate found. `score` is the share of cases that passed (0..1).

    threshold: the score that is due; against a baseline: the baseline's, less the margin
    note: what is no reason to reject, but worth knowing
    answers: what was said to each question, where later answers are compared with it
    compared: how the comparison with the baseline came out, where that decides
    signals: further results by name, numbers and versions
    """

    gate: str
    moment: str
    passed: bool
    score: float
    threshold: float
    cases: tuple[CaseResult, ...] = ()
    remedy: str | None = None
    note: str = ""
    compared: str = ""
    answers: Mapping[str, str] = field(default_factory=dict)
    signals: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def set_up_wrong(self) -> bool:
        """Whether the server refuses such requests for good: no change of knobs heals that."""
        return any(case.verdict == "setup_error" for case in self.cases)

    @property
    def reason(self) -> str:
        """Say in one line why the gate did not pass, by its first case that failed."""
        harmless = ("pass", "inconclusive")
        failed = next((case for case in self.cases if case.verdict not in harmless), None)
        detail = "" if failed is None else f": {failed.id}: {failed.why or failed.reason}"
        measure = self.compared or f"{self.score:.0%} < {self.threshold:.0%}"
        return f"{self.gate} {measure} ({self.moment}){detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What the gates found of the baseline: what other configurations are held against."""

    verdicts: tuple[Verdict, ...] = ()

    def verdict(self, gate: str, moment: str) -> Verdict | None:
        """Find the same gate at the same moment, or else at the latest one before."""
        own = [verdict for verdict in self.verdicts if verdict.gate == gate]
        same = [verdict for verdict in own if verdict.moment == moment]
        return next(reversed(same or own), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Served, passed its gates, and was measured. `violations` names the SLOs that it misses."""

    measurement: Measurement
    facts: ServerFacts
    verdicts: tuple[Verdict, ...] = ()
    violations: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Served, but a gate says that its answers cannot be used."""

    verdict: Verdict
    facts: ServerFacts
    verdicts: tuple[Verdict, ...] = ()
    measurement: Measurement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Could not be served or measured. `family` says what a tuner does about it."""

    family: str
    message: str
    line: str | None = None
    remedy: str | None = None
    log: str | None = None
    facts: ServerFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """Somebody stopped it; says nothing about the configuration."""

    message: str = "interrupted"


Outcome: TypeAlias = Measured | Rejected | Failed | Interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One configuration of the study and how it ended; the content of a record.

    number: Optuna's trial number; values: one for every knob, inactive ones included
    started_at, ended_at: seconds since the epoch; seconds: by phase, of the clock on the wall
    """

    number: int
    values: Mapping[str, Value]
    outcome: Outcome
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    started_at: float = 0.0
    ended_at: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether it is one of the N configurations of the study."""
        return not isinstance(self.outcome, Interrupted)

    @property
    def usable(self) -> Measured | None:
        """The measurement, where it may stand on the front."""
        if isinstance(self.outcome, Measured) and not self.outcome.violations:
            return self.outcome
        return None
