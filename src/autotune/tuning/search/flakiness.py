"""Starts that fail by chance: told apart from configurations that cannot start.

The same server failing twice says more than once; one that came up after a failure shows that chance
plays a part on this host, and casts doubt on every failure that was seen only once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autotune.tuning.search.evidence import STARTUP, Start
from autotune.tuning.search.grid import Rows

PROBES = 3
"""Failed starts that are tried again before chance is ruled out."""
_CRASHING = 0.2
"""Share of servers that cannot start, before anything is known of one."""
_DOUBTFUL = 0.3


@dataclass(slots=True)
class _Server:
    start: Start
    failed: int = 0
    came_up: int = 0


@dataclass(slots=True)
class Attempts:
    """Every attempt to bring a server up, by server."""

    _servers: dict[bytes, _Server] = field(default_factory=dict)

    def add(self, row: Rows, failures: Mapping[str, float]) -> None:
        start = Start(row=row, failures=failures)
        server = self._servers.setdefault(row.tobytes(), _Server(start))
        if failures.get(STARTUP, 0.0) > 0:
            server.failed += 1
        else:
            server.start = start
            server.came_up += 1

    def starts(self) -> list[Start]:
        """Give one verdict a server, with the doubt that is left."""
        rate = self._rate()
        return [
            server.start if server.came_up else replace(server.start, doubt=_doubt(server, rate))
            for server in self._servers.values()
        ]

    def deserves_another(self, row: Rows) -> bool:
        """Tell whether to try a server of the sweep again that failed once."""
        server = self._servers.get(row.tobytes())
        if server is None or server.came_up or server.failed != 1:
            return False
        confirmed = sum(not one.came_up and one.failed > 1 for one in self._servers.values())
        return self._rate() > 0 or confirmed < PROBES

    def settled(self) -> set[bytes]:
        """List the servers that another start would tell nothing about."""
        rate = self._rate()
        return {
            key
            for key, server in self._servers.items()
            if server.came_up or _doubt(server, rate) < _DOUBTFUL
        }

    def failed(self, row: Rows) -> int:
        server = self._servers.get(row.tobytes())
        return 0 if server is None or server.came_up else server.failed

    def __len__(self) -> int:
        return len(self._servers)

    def _rate(self) -> float:
        """Share of starts that failed among servers that are known to start."""
        healthy = [server for server in self._servers.values() if server.came_up]
        failed = sum(server.failed for server in healthy)
        total = failed + sum(server.came_up for server in healthy)
        return failed / total if total else 0.0


def _doubt(server: _Server, rate: float) -> float:
    chance = rate**server.failed * (1 - _CRASHING)
    return chance / (chance + _CRASHING)
