"""Runs another program to its end without blocking the event loop.

It gets a session of its own, so that all of it ends when we do not want it any more.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from autotune.system.processes import Completed


async def complete(
    argv: Sequence[str],
    *,
    folder: Path,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> Completed:
    """Run a command in a folder and keep what it printed; exit_code None where it took too long.

    Raises:
        OSError: The command cannot be started.
    """
    child = await asyncio.create_subprocess_exec(
        *argv,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        async with asyncio.timeout(timeout_s):
            stdout, stderr = await child.communicate()
    except TimeoutError:
        await _end(child)
        return Completed(exit_code=None, stdout="", stderr="")
    except BaseException:
        await _end(child)
        raise
    return Completed(
        exit_code=child.returncode,
        stdout=stdout.decode(errors="replace"),
        stderr=stderr.decode(errors="replace"),
    )


async def _end(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.wait()
