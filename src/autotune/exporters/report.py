"""`report.md`: what a person reads in the morning."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.exporters.text import change, interval, number, plain, settings, shown, table
from autotune.exporters.trials_csv import mean_metric, reason
from autotune.model.outcome import Failed, Measured, Rejected, Trial
from autotune.model.results import Member, Results


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
    """Say in one or two sentences what was found, and how far it can be trusted."""
    best = results.pick("throughput")
    if best is None:
        return "No configuration could be measured and used."
    first = results.space.objectives[0]
    estimate = best.estimates[first.name]
    sentence = (
        f"Best {first.name}: {interval(estimate)} {first.unit} with trial {best.trial.number}"
    )
    ratio = results.ratio(best, first.name)
    if results.baseline is None or ratio is None:
        return sentence + "."
    if results.is_baseline(best):
        return sentence + ": the baseline itself. Nothing that was tried is better."
    base = results.baseline.estimates[first.name]
    return f"{sentence}, {change(ratio)} against the baseline ({interval(base)}). {_trust(results, best)}"


def _trust(results: Results, best: Member) -> str:
    first = results.space.objectives[0]
    own, base = best.estimates[first.name], results.baseline.estimates[first.name]  # type: ignore[union-attr]
    if None in (own.low, own.high, base.low, base.high):
        return "One run each: noise alone could explain it."
    apart = (
        own.low > base.high  # type: ignore[operator]
        if first.sign > 0
        else own.high < base.low  # type: ignore[operator]
    )
    if not apart:
        return "The intervals overlap: no clear difference."
    return (
        "Not confirmed yet: it was chosen for being the best of many, on one server start each, "
        "so expect a little less when it is measured again."
    )


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
        "`front`: nothing beats it in everything (probability 0.8 or more); `possible`: within the "
        "noise of the front. Intervals are 95 %, over repeats on one server start."
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
    where = (
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
