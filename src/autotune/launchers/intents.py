"""What a trial folder knows about the server it started: written before, and right after, the start.

A run that was killed leaves these files behind; the next one finds by them what is still running.
"""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.system.files import read_json, write_json
from autotune.system.host import read_boot_id
from autotune.system.processes import Child, Mark, kill_leftovers

FILENAME = "server.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A start that is about to happen, or has happened."""

    folder: Path
    token: str
    port: int

    @classmethod
    def declare(cls, folder: Path, *, port: int, argv: tuple[str, ...]) -> "Intent":
        """Put the token on disk, before anything is started."""
        intent = cls(folder=folder, token=secrets.token_hex(16), port=port)
        intent._write(argv=list(argv))
        return intent

    def started(self, child: Child, argv: tuple[str, ...]) -> None:
        self._write(argv=list(argv), pid=child.pid, started=child.started)

    def ended(self, exit_code: int | None) -> None:
        """Note that the server is verified gone: there is nothing to look for any more."""
        self._write(gone=True, exit_code=exit_code)

    def _write(self, **facts: Any) -> None:
        content = {"schema_version": 1, "token": self.token, "port": self.port}
        write_json(self.folder / FILENAME, {**content, "boot_id": read_boot_id(), **facts})


def reap(folder: Path) -> str | None:
    """Stop what the start of this folder left running; say what it was, None when there is nothing.

    Ids are believed only within the same boot of the machine.
    """
    found = read_json(folder / FILENAME)
    if not isinstance(found, dict) or found.get("gone") or found.get("boot_id") != read_boot_id():
        return None
    mark = Mark(
        token=str(found.get("token")), leader=found.get("pid"), started=found.get("started")
    )
    killed = kill_leftovers(mark)
    write_json(folder / FILENAME, {**found, "gone": True})
    if not killed:
        return None
    return f"stopped a server left over from an interrupted run (processes {killed})"
