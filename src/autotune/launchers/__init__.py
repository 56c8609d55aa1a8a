"""How vLLM comes up and goes away: one file and one entry in the table for each way."""

from collections.abc import Mapping

from autotune.launchers.local import LocalLauncher
from autotune.launchers.simulated import SimulatedLauncher

LAUNCHERS: Mapping[str, type[LocalLauncher] | type[SimulatedLauncher]] = {
    "local": LocalLauncher,
    "simulated": SimulatedLauncher,
}
