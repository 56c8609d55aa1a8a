"""The clock on the wall."""

import datetime as dt
import time


class SystemClock:
    """Time as this machine tells it."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def seconds_until(self, time_of_day: str) -> float:
        """Seconds from now to the next `HH:MM` of the local clock."""
        hour, minute = map(int, time_of_day.split(":"))
        now = dt.datetime.now().astimezone()
        then = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        if then <= now:
            then += dt.timedelta(days=1)
        return (then - now).total_seconds()
