"""Asks the gates at the moments of a server's life, and says when its answers cannot be used.

    cold    the very first requests after the start: recorded; they reject only with `strict_cold`
    warm    after the first warm-up, before anything is measured
    load    while the busiest workload runs at its highest concurrency, after everything is measured
    after   when that load is gone: some servers answer wrong until they are started again
    final   once more and longer, where the measurement would enter the front

The load of `load` is one of its own. The measured one must not be disturbed by questions.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from autotune.errors import HostError
from autotune.model.host import RunningServer
from autotune.model.outcome import Reference, Verdict
from autotune.protocols import Connector, Gate, Workload

HOPELESS = frozenset(("unauthorized", "model_not_found"))
"""What every request of every configuration would be refused for, in the same way."""


@dataclass(slots=True, kw_only=True)
class Interview:
    """The gates' side of one trial; `verdicts` is everything that was found so far.

    require_alive: raises what happened to a server that is not there any more; `doubtful` gives one
    that is going down the time to end
    """

    server: RunningServer
    gates: tuple[Gate, ...]
    workloads: tuple[Workload, ...]
    connect: Connector
    reference: Reference | None
    enter: Callable[[str], None]
    require_alive: Callable[..., None]
    verdicts: list[Verdict] = field(default_factory=list)

    async def ask(self, moment: str) -> Verdict | None:
        """Ask every gate that has something to ask now; return the verdict that rejects.

        Raises:
            HostError: The server refuses everything, and no other configuration will do better.
        """
        gates = [gate for gate in self.gates if moment in gate.moments]
        if not gates:
            return None
        self.enter(moment)
        async with self.connect(self.server) as client:
            verdicts = await asyncio.gather(
                *(gate.check(client, moment=moment, reference=self.reference) for gate in gates)
            )
        self.require_alive(doubtful=any(map(_unanswered, verdicts)))
        self.verdicts += verdicts
        for gate, verdict in zip(gates, verdicts, strict=True):
            _require_possible(verdict)
            if not verdict.passed and (moment != "cold" or gate.strict_cold):
                return verdict
        return None

    async def ask_under_load(self) -> Verdict | None:
        busiest = max(self.workloads, key=lambda workload: max(workload.levels), default=None)
        if busiest is None or not any("load" in gate.moments for gate in self.gates):
            return None
        self.enter("load")
        async with busiest.pressed(self.server):
            return await self.ask("load")

    def notes(self) -> tuple[str, ...]:
        """Say what a person should know although nothing of it rejects."""
        healed = [
            f"failed at first, then healed: {verdict.reason}"
            for verdict in self.verdicts
            if not verdict.passed
        ]
        return (*healed, *(verdict.note for verdict in self.verdicts if verdict.note))


def _unanswered(verdict: Verdict) -> bool:
    return any(case.verdict == "request_failed" for case in verdict.cases)


def _require_possible(verdict: Verdict) -> None:
    refused = next((case for case in verdict.cases if case.reason in HOPELESS), None)
    if refused is not None:
        raise HostError(f"gate {verdict.gate}: {refused.why}", hint=verdict.remedy)
