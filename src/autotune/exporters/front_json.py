"""`front.json`: the Pareto front for programs."""

import json
from dataclasses import dataclass
from typing import Any

from autotune.model.results import Member, Results

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontJson:
    """Members of every standing, with means and 95 % intervals (null from a single run)."""

    filename: str = "front.json"

    def render(self, results: Results) -> str:
        content = {
            "schema_version": SCHEMA_VERSION,
            "study": results.study,
            "objectives": [
                {"name": o.name, "unit": o.unit, "direction": o.direction}
                for o in results.space.objectives
            ],
            "baseline": None if results.baseline is None else _member(results, results.baseline),
            "members": [_member(results, member) for member in results.members],
        }
        return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _member(results: Results, member: Member) -> dict[str, Any]:
    return {
        "trial": member.trial.number,
        "class": member.standing,
        "config": results.space.shown(member.trial.values),
        "values": {
            name: {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}
            for name, estimate in member.estimates.items()
        },
    }
