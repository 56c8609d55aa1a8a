"""What `autotune gate` does: the gates of the table, on a server that somebody else started.

Left out: load and the baseline. Without a study there is neither, so every gate judges by its own
threshold, once.
"""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autotune.errors import HostError, UsageError
from autotune.model.host import RunningServer
from autotune.model.outcome import Verdict
from autotune.model.search_space import Part
from autotune.protocols import Gate
from autotune.system.openai_client import connect, is_there, probe_models
from autotune.wiring import build_gate, gate_names

KEY_VARIABLE = "VLLM_API_KEY"
"""vLLM's own variable: a key on the command line would be seen by every user of the host."""
SETUP_EXIT = 3
USUAL_GATES = ("json_schema", "tool_calls")
UNNAMED = "default"
"""Asked for where a server does not list its models; a real vLLM refuses it by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """What the gates found."""

    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        return all(verdict.passed for verdict in self.verdicts)

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 3 where the server is set up wrong."""
        if any(verdict.set_up_wrong for verdict in self.verdicts):
            return SETUP_EXIT
        return 0 if self.passed else 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "gates": [
                {
                    "name": verdict.gate,
                    "passed": verdict.passed,
                    "score": verdict.score,
                    "threshold": verdict.threshold,
                    "cases": [
                        {
                            "id": case.id,
                            "verdict": case.verdict,
                            "reason": case.reason,
                            "why": case.why,
                        }
                        for case in verdict.cases
                    ],
                }
                for verdict in self.verdicts
            ],
        }


def gate_server(url: str, *, model: str | None, gates: str | None, fixtures: Path | None) -> Gated:
    """Ask a running server.

    Raises:
        UsageError: There is no such gate, or the address is none.
        SearchSpaceError: The fixtures have mistakes.
        HostError: Nobody answers there.
    """
    chosen = _chosen(gates, fixtures)
    server = _server(url, model)
    return Gated(verdicts=asyncio.run(_ask(server, chosen)))


def _chosen(gates: str | None, fixtures: Path | None) -> list[Gate]:
    """Take what was named; fixtures alone are all there is to ask."""
    names = [name.strip() for name in (gates or "").split(",") if name.strip()]
    if fixtures is not None and "fixtures" not in names:
        names.append("fixtures")
    if "fixtures" in names and fixtures is None:
        raise UsageError("--gates fixtures: needs questions", hint="Add --fixtures FILE.")
    known = gate_names()
    for name in names:
        if name not in known:
            raise UsageError(
                f"--gates {name}: there is no such gate", hint=f"Choose from {', '.join(known)}."
            )
    return [_gate(name, fixtures) for name in dict.fromkeys(names or USUAL_GATES)]


def _gate(name: str, fixtures: Path | None) -> Gate:
    options = {"file": str(fixtures)} if name == "fixtures" else {}
    return build_gate(Part(kind=name, options=options, where=f"--{name}"))


def _server(url: str, model: str | None) -> RunningServer:
    base_url = _base_url(url)
    key = os.environ.get(KEY_VARIABLE)
    if not is_there(base_url):
        raise HostError(
            f"--url {url}: nobody answers there", hint="Start the server, or correct the address."
        )
    served = () if model is not None else probe_models(base_url, key) or ()
    named = next((str(entry["id"]) for entry in served if "id" in entry), UNNAMED)
    length = next((entry.get("max_model_len") for entry in served), None)
    return RunningServer(
        base_url=base_url,
        served_model=model or named,
        log="",
        startup_s=0.0,
        api_key=key,
        max_model_len=length if isinstance(length, int) else None,
    )


def _base_url(url: str) -> str:
    """Take an address with or without the /v1 that other tools want.

    Raises:
        UsageError: It is no address.
    """
    whole = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(whole)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise UsageError(f"--url {url}: is no address", hint="Like http://127.0.0.1:8000.")
    return whole.rstrip("/").removesuffix("/v1").rstrip("/")


async def _ask(server: RunningServer, gates: Sequence[Gate]) -> tuple[Verdict, ...]:
    async with connect(server) as client:
        return tuple([await gate.check(client, moment="warm") for gate in gates])
