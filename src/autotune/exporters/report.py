"""`report.md`: what a person reads in the morning."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.exporters.text import change, interval, number, plain, settings, shown, table
from autotune.exporters.trials_csv import mean_metric, reason
from autotune.model.objective import Objective
from autotune.model.outcome import Failed, Measured, Rejected, Trial
from autotune.model.results import Estimate, Member, Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Verdict, front, what was thrown out and why, where the hours went, how it was measured."""

    filename: str = "report.md"

    def render(self, results: Results) -> str:
        sections = (
            f"# {plain(results.study)}\n\n{verdict(results)}\n",
            _front(results),
            _thrown_out(results),
            _warnings(results),
            _time(results),
            _method(results),
            _command(results),
        )
        return "\n".join(section for section in sections if section)


def verdict(results: Results) -> str:
    """Say in a few sentences what was found, and how far it can be trusted."""
    if not results.members:
        return "No configuration could be measured and used."
    sentences = [_best(results, objective) for objective in results.space.objectives]
    if results.simulated:
        sentences.insert(0, "SIMULATED: no model was served, every time comes from a model of one.")
    if any(not results.is_baseline(member) for member in results.front):
        sentences.append(
            "Not confirmed yet: each was chosen for being the best of many, on one server start, so "
            "expect a little less when it is measured again."
        )
    return " ".join(sentences)


def _best(results: Results, objective: Objective) -> str:
    """Name the best configuration in one objective, and whether it is clearly better."""
    best = max(
        results.members,
        key=lambda member: objective.sign * member.estimates[objective.name].mean,
    )
    estimate = best.estimates[objective.name]
    sentence = (
        f"Best {objective.name}: {interval(estimate)} {objective.unit} with trial "
        f"{best.trial.number}"
    )
    ratio = results.ratio(best, objective.name)
    if results.baseline is None or ratio is None:
        return sentence + "."
    if results.is_baseline(best):
        return f"{sentence}, the baseline itself."
    reference = results.baseline.estimates[objective.name]
    clear = "" if _apart(estimate, reference) else ", no clear difference"
    return f"{sentence}, {change(ratio)} against the baseline ({interval(reference)}){clear}."


def _apart(one: Estimate, other: Estimate) -> bool:
    """Tell whether the interval of the two means' difference leaves out zero."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    half = math.hypot(one.high - one.low, other.high - other.low) / 2
    return abs(one.mean - other.mean) > half


def _front(results: Results) -> str:
    if not results.members:
        return ""
    objectives = results.space.objectives
    header = [
        "trial",
        "class",
        *(f"{o.name} ({o.unit})" for o in objectives),
        *(f"{o.name} vs baseline" for o in objectives),
        "acceptance",
        "start-up (s)",
        "differs from the baseline in",
    ]
    shown_members = [m for m in results.members if m.standing != "dominated"]
    if results.baseline is not None and results.baseline.trial.number not in {
        member.trial.number for member in shown_members
    }:
        shown_members.append(results.baseline)
    rows = [_member_row(results, member) for member in shown_members]
    note = (
        "`front`: with a probability of 0.8 or more nothing beats it in everything; `possible`: within "
        "the noise of the front. ±: half of the 95 % interval over the repeats on one server start, "
        "with the noise of all trials pooled in."
    )
    return f"## Front\n\n{table(header, rows)}\n{note}\n"


def _member_row(results: Results, member: Member) -> list[str]:
    outcome = member.trial.outcome
    measurement = outcome.measurement if isinstance(outcome, Measured) else None
    acceptance = mean_metric(results, measurement, "acceptance_rate")
    return [
        f"{member.trial.number}{' (baseline)' if results.is_baseline(member) else ''}",
        member.standing,
        *(interval(member.estimates[o.name]) for o in results.space.objectives),
        *(change(results.ratio(member, o.name)) for o in results.space.objectives),
        "-" if acceptance is None else f"{acceptance:.1%}",
        "-" if measurement is None else number(measurement.startup_s),
        plain(settings(*results.differences(member)) or "nothing"),
    ]


def _thrown_out(results: Results) -> str:
    thrown = [trial for trial in results.trials if trial.counts and trial.usable is None]
    if not thrown:
        return ""
    families = Counter(_kind(trial) for trial in thrown)
    summary = ", ".join(f"{count}x {plain(kind)}" for kind, count in families.most_common())
    rows = [
        [
            str(trial.number),
            plain(_kind(trial)),
            plain(reason(trial) or ""),
            plain(_remedy(trial)),
            plain(
                settings(
                    results.space.shown(trial.values), results.space.shown(results.space.baseline)
                )
                or "nothing"
            ),
        ]
        for trial in thrown
    ]
    header = ["trial", "why", "decisive line", "remedy", "differs from the baseline in"]
    return f"## Thrown out\n\n{summary}\n\n{table(header, rows)}"


def _kind(trial: Trial) -> str:
    match trial.outcome:
        case Failed() as failed:
            return failed.family
        case Rejected() as rejected:
            return f"gate {rejected.verdict.gate}"
        case _:
            return "misses an SLO"


def _remedy(trial: Trial) -> str:
    match trial.outcome:
        case Failed() as failed:
            return failed.remedy or ""
        case Rejected() as rejected:
            return rejected.verdict.remedy or ""
        case _:
            return ""


def _warnings(results: Results) -> str:
    lines = [
        f"- trial {trial.number}: {plain(warning)}\n"
        for trial in results.trials
        if isinstance(trial.outcome, Measured)
        for warning in _one_of_each_kind(trial.outcome.warnings)
    ]
    return "## Warnings\n\n" + "".join(lines) if lines else ""


def _one_of_each_kind(warnings: Sequence[str]) -> list[str]:
    """Keep the first of warnings that differ in their numbers only: one a repeat is enough."""
    kinds = {re.sub(r"[\d.,]+", "#", warning): warning for warning in reversed(warnings)}
    return list(reversed(kinds.values()))


def _time(results: Results) -> str:
    phases: Counter[str] = Counter()
    for trial in results.trials:
        phases.update(dict(trial.seconds))
    total = sum(phases.values())
    if not total:
        return ""
    rows = [
        [name.replace("_", "-"), number(seconds), f"{seconds / total:.0%}"]
        for name, seconds in phases.most_common()
    ]
    return f"## Where the time went\n\n{table(['phase', 'seconds', 'share'], rows)}"


def _method(results: Results) -> str:
    space = results.space
    loads = "".join(
        f"- {plain(w.name)}: {w.input_tokens} tokens in, exactly {w.output_tokens} out, closed loop "
        f"at {', '.join(map(str, w.concurrency))} in flight "
        f"({', '.join(map(str, w.requests))} requests), {space.repeats} repeats\n"
        for w in space.workloads
    )
    gates = ", ".join(gate.kind for gate in space.gates) or "none"
    constraints = "".join(f"- constraint: {plain(c.label)}\n" for c in space.constraints)
    fixed = ", ".join(f"{name}={shown(value)}" for name, value in space.server.args.items())
    host = results.host
    where = "- the server was simulated\n" if results.simulated else ""
    where += (
        ""
        if host is None
        else f"- host: {host.machine}, {host.cpu_count} cores, {host.memory_gib:g} GiB, "
        f"GPU {plain(', '.join(host.gpus) or 'none')}\n"
    )
    return (
        "## How it was measured\n\n"
        f"- model: {plain(space.model)}\n- held fixed: {plain(fixed) or 'nothing'}\n{where}{loads}"
        f"{constraints}- gates: {plain(gates)}\n"
        "- each trial is one server start; prompts are the same for every configuration and new in "
        "every repeat; TTFT includes the time in the queue\n"
    )


def _command(results: Results) -> str:
    best = results.pick("balanced")
    if best is None:
        return ""
    command = results.space.config(best.trial.values).command()
    fence = "````"
    return f"## The balanced pick (trial {best.trial.number})\n\n{fence}\n{command}\n{fence}\n"
