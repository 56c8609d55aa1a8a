"""Child processes: started in a group of their own, and gone afterwards, whole group included.

A process is recognized by a token in its environment and by its start time, never by its name:
other servers of the same kind may run on this host, and process ids are used again.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from autotune.errors import HostError

TOKEN_VARIABLE = "AUTOTUNE_TOKEN"  # noqa: S105  a name tag, not a secret
POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that ended; `exit_code` is None when it ran out of time."""

    exit_code: int | None
    stdout: str
    stderr: str


def run(
    argv: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None
) -> Completed:
    """Run a command to its end and keep what it printed.

    Raises:
        OSError: The command cannot be started.
    """
    with subprocess.Popen(
        list(argv),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
        text=True,
        errors="replace",
    ) as child:
        try:
            stdout, stderr = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _signal_group(child.pid, signal.SIGKILL)
            stdout, stderr = child.communicate()
            return Completed(exit_code=None, stdout=stdout, stderr=stderr)
        except BaseException:
            _signal_group(child.pid, signal.SIGKILL)
            raise
        return Completed(exit_code=child.returncode, stdout=stdout, stderr=stderr)


class Child:
    """A server process of ours, leader of its own session and process group."""

    def __init__(self, process: "subprocess.Popen[bytes]", token: str) -> None:
        self._process = process
        self.token = token
        self.pid = process.pid
        self.started = start_ticks(process.pid)

    def exit_code(self) -> int | None:
        """Return None while the leader runs; negative for the signal that ended it."""
        return self._process.poll()

    def members(self) -> list[int]:
        """Find every live process that belongs to this start, by its id."""
        return find_members(Mark(token=self.token, leader=self.pid, started=self.started))

    def listens_on(self, port: int) -> bool:
        """Tell whether the port's listener is one of ours."""
        return any(_listens(member, port) for member in self.members())

    def stop(self, *, grace_s: float = 30.0) -> None:
        """End the whole group: TERM once, wait, KILL, wait until nothing is left.

        A second TERM would break vLLM's own clean-up, so there is none. KILL goes to the group even
        when its leader is already dead: engine processes outlive their API server.

        Raises:
            HostError: Something of ours survived even KILL.
        """
        try:
            _signal_group(self.pid, signal.SIGTERM)
            self._wait_until_gone(grace_s)
        finally:
            self._kill()

    def _wait_until_gone(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        pause = POLL_S / 4
        while time.monotonic() < deadline:
            if self._process.poll() is not None and not self.members():
                return True
            time.sleep(pause)
            pause = min(pause * 1.2, 0.25)
        return False

    def _kill(self) -> None:
        for _ in range(3):
            members = self.members()
            if not members and self._process.poll() is not None:
                return
            _signal_group(self.pid, signal.SIGKILL)
            _signal_each(members, signal.SIGKILL)
            if self._wait_until_gone(5.0):
                return
        raise HostError(
            f"processes {self.members()} of the server survived SIGKILL",
            hint="They are stuck in the driver: look at dmesg, and reboot if they stay.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How processes of one start are recognized.

    token: in the environment of the leader and, unless they wrote over it, of its children
    leader, started: process id (also group and session) of the leader, and its start in ticks since boot
    """

    token: str
    leader: int | None = None
    started: int | None = None


def start(
    argv: Sequence[str],
    *,
    token: str,
    log: Path,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Child:
    """Start a server with both outputs in one log file. No shell, no terminal, own session.

    Raises:
        OSError: The executable cannot be started.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(argv),
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, **(environment or {}), TOKEN_VARIABLE: token},
        )
    return Child(process, token)


def find_members(mark: Mark) -> list[int]:
    """Find live processes by the token in their environment or by the leader's group and session.

    Both are needed: vLLM's engine processes write their title over the environment, and a process
    may leave the group. A group counts only while its number can still be ours: not when its leader
    runs but started at another time.
    """
    text = f"{TOKEN_VARIABLE}={mark.token}".encode()
    group = mark.leader if _group_is_ours(mark) else None
    return [pid for pid in _process_ids() if _belongs(pid, group, text)]


def kill_leftovers(mark: Mark, *, grace_s: float = 10.0) -> list[int]:
    """End what an earlier run of ours left behind; return the process ids that were found."""
    found = find_members(mark)
    _signal_each(found, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while find_members(mark) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    _signal_each(find_members(mark), signal.SIGKILL)
    deadline = time.monotonic() + 5.0
    while find_members(mark) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return found


def start_ticks(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process, None when it is gone.

    Unlike a time of day it does not move when the clock is set.
    """
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def free_port() -> int:
    """Pick a port of the loopback interface that nothing listens on."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def port_answers(port: int) -> bool:
    """Tell whether anything accepts connections on a loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _process_ids() -> list[int]:
    mine = os.getpid()
    return [pid for pid in psutil.pids() if pid != mine]


def _group_is_ours(mark: Mark) -> bool:
    if mark.leader is None or mark.started is None:
        return False
    return start_ticks(mark.leader) in (None, mark.started)


def _belongs(pid: int, group: int | None, token: bytes) -> bool:
    """Look at state, group, session and token; zombies are dead, whatever the table says."""
    fields = _stat(pid)
    if fields is None or fields[0] == "Z":
        return False
    if group is not None and str(group) in (fields[2], fields[3]):
        return True
    try:
        return token in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command's name stands in parentheses and may itself hold blanks and parentheses.
    return text.rpartition(")")[2].split()


def _listens(pid: int, port: int) -> bool:
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.Error:
        return False
    return any(
        entry.status == psutil.CONN_LISTEN and entry.laddr.port == port for entry in connections
    )


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _signal_each(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
