"""The engine's counters around and during a load, over the connections that are open anyway."""

from dataclasses import dataclass

import aiohttp

from autotune.system.metrics import Counters, read_page

_TIMEOUT = aiohttp.ClientTimeout(total=5.0)


async def fetch_counters(session: aiohttp.ClientSession) -> Counters | None:
    """Scrape; None where the server counts nothing or does not answer."""
    try:
        async with session.get("/metrics", timeout=_TIMEOUT) as response:
            return read_page(response.status, await response.text())
    except (aiohttp.ClientError, OSError, UnicodeDecodeError):
        return None


@dataclass(slots=True)
class UsageWatch:
    """Remembers the fullest that the KV cache was seen."""

    session: aiohttp.ClientSession
    _highest: float | None = None

    async def look(self) -> None:
        counters = await fetch_counters(self.session)
        self._highest = _higher(self._highest, counters)

    def highest(self, *others: Counters | None) -> float | None:
        """Answer for the looks so far and these scrapes."""
        found = self._highest
        for counters in others:
            found = _higher(found, counters)
        return found


def _higher(usage: float | None, counters: Counters | None) -> float | None:
    seen = None if counters is None else counters.kv_cache_usage
    return max((value for value in (usage, seen) if value is not None), default=None)
