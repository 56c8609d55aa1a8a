"""The search space: what may turn, what is held, what is measured and what counts as better."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.model.knob import Knob, Value, same
from autotune.model.objective import Constraint, Objective, Rule
from autotune.model.serving_config import DRAFT_LENGTH, SPECULATIVE, ServingConfig, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A plug-in as the file names it: which one, with which options, and where it stands."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How the server comes up, whatever the configuration.

    launcher: the plug-in and its own options (executable, image, hardware, ...)
    args: settings held fixed, by name; env: environment held fixed
    startup_timeout_s: when a start is given up, in seconds
    """

    launcher: Part
    args: Mapping[str, Setting] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    startup_timeout_s: float = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """A load by name.

    input_tokens, output_tokens: exact lengths of every request, in tokens
    concurrency: requests in flight, one level each; requests: requests a level sends, by level
    """

    name: str
    input_tokens: int
    output_tokens: int
    concurrency: tuple[int, ...]
    requests: tuple[int, ...]
    preset: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When the study ends: configurations in all, hours of this call, or a time of day."""

    trials: int | None = None
    hours: float | None = None
    until: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """Everything one study is about. Read from a file by `autotune.read_search_space`.

    baseline: where the search starts, a value for every knob
    assumed: knobs that the file gives no start, and that start at the first value of their grid
    """

    name: str
    model: str
    server: ServerSettings
    knobs: tuple[Knob, ...]
    baseline: Mapping[str, Value]
    assumed: tuple[str, ...] = ()
    workloads: tuple[WorkloadSpec, ...]
    objectives: tuple[Objective, ...]
    rules: tuple[Rule, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    gates: tuple[Part, ...] = ()
    repeats: int = 3
    limits: Limits = field(default_factory=Limits)
    sampler: Part = field(default_factory=lambda: Part(kind="serving"))
    source: Path | None = None

    def knob(self, name: str) -> Knob:
        return next(knob for knob in self.knobs if knob.name == name)

    @property
    def size(self) -> int:
        """Points of the grid, conditions and rules not taken off."""
        product = 1
        for knob in self.knobs:
            product *= len(knob.values)
        return product

    def active(self, values: Mapping[str, Value]) -> tuple[str, ...]:
        """Name the knobs that have an effect when the knobs hold these values."""
        known = {**self.server.args, **values}
        return tuple(knob.name for knob in self.knobs if self._is_active(knob, known, ()))

    def _is_active(self, knob: Knob, known: Mapping[str, Setting], asking: tuple[str, ...]) -> bool:
        draft_option = knob.name.startswith(SPECULATIVE + ".") and knob.name != DRAFT_LENGTH
        if draft_option and same(known.get(DRAFT_LENGTH), 0):
            # Options of a draft that is not there have no effect.
            return False
        return all(
            condition.holds(known)
            and self._parent_is_active(condition.name, known, (*asking, knob.name))
            for condition in knob.when
        )

    def _parent_is_active(
        self, name: str, known: Mapping[str, Setting], asking: tuple[str, ...]
    ) -> bool:
        parent = next((knob for knob in self.knobs if knob.name == name), None)
        if parent is None or name in asking:
            return True
        return self._is_active(parent, known, asking)

    def canonical(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Set every inactive knob to its first value, so that equal servers look equal."""
        active = set(self.active(values))
        return {
            knob.name: values[knob.name] if knob.name in active else knob.values[0]
            for knob in self.knobs
        }

    def key(self, values: Mapping[str, Value]) -> str:
        """Identify the server that these values start."""
        return json.dumps(self.canonical(values))

    def config(self, values: Mapping[str, Value]) -> ServingConfig:
        """Build the configuration that is served: what is held, then the active knobs."""
        active = self.active(values)
        environment = {f"env.{name}": text for name, text in self.server.env.items()}
        turned = {name: values[name] for name in active}
        return ServingConfig(
            model=self.model, settings={**environment, **self.server.args, **turned}
        )

    def broken_rules(self, values: Mapping[str, Value]) -> tuple[str, ...]:
        """Name the declared rules that these values break."""
        settings = self.config(values).settings
        return tuple(rule.text for rule in self.rules if rule.broken_by(settings))

    def shown(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Values for a person: inactive knobs as `-`."""
        active = set(self.active(values))
        return {knob.name: values[knob.name] if knob.name in active else "-" for knob in self.knobs}

    def fingerprint(self) -> str:
        """Hash what makes two studies comparable."""
        return hashlib.sha256(json.dumps(self.meaning(), sort_keys=True).encode()).hexdigest()

    def meaning(self) -> dict[str, Any]:
        """Name what a number of this space depends on, ready for JSON.

        Names, limits, the sampler and the place of the file do not change what a number means.
        """
        return {
            "model": self.model,
            "launcher": [self.server.launcher.kind, _plain(self.server.launcher.options)],
            "args": _plain(self.server.args),
            "env": dict(self.server.env),
            "knobs": [
                [
                    k.name,
                    k.kind,
                    list(k.values),
                    [[c.name, c.operator, list(c.operands)] for c in k.when],
                ]
                for k in self.knobs
            ],
            "baseline": dict(self.baseline),
            "rules": [rule.text for rule in self.rules],
            "workloads": [
                [w.name, w.input_tokens, w.output_tokens, w.concurrency, w.requests, w.seed]
                for w in self.workloads
            ],
            "objectives": [[o.quantity.label, o.direction] for o in self.objectives],
            "constraints": [constraint.label for constraint in self.constraints],
            "gates": [[gate.kind, _plain(gate.options)] for gate in self.gates],
            "repeats": self.repeats,
        }


def _plain(value: Any) -> Any:
    """Make frozen settings ready for JSON."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str | None) else str(value)
