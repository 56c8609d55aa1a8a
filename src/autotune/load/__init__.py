"""The load generator: `WORKLOADS` by kind, and `closed_loop`, which a search space asks for."""

from collections.abc import Callable, Mapping

from autotune.load.closed_loop import ClosedLoop, closed_loop
from autotune.load.self_check import ClientLimits
from autotune.model.search_space import WorkloadSpec
from autotune.protocols import Workload

__all__ = ["WORKLOADS", "ClientLimits", "ClosedLoop", "closed_loop"]

WORKLOADS: Mapping[str, Callable[[WorkloadSpec], Workload]] = {"closed_loop": closed_loop}
