"""Files that are either whole or not there."""

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.errors import HostError, StudyError


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a crash at any moment leaves the old one or the new one.

    Raises:
        HostError: The disk is full or the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_and_replace(path, text)
    except OSError as error:
        raise HostError(
            f"{path}: cannot be written: {error.strerror or error}",
            hint="Free some disk space or choose another folder with --studies; the same command then "
            "goes on where it stopped.",
        ) from error


def make_folder(path: Path) -> None:
    """Make a folder and its parents.

    Raises:
        HostError: It cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(
            f"{path}: this folder cannot be made: {error.strerror or error}",
            hint="Choose another one with --studies.",
        ) from error


def _write_and_replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # noqa: PTH101  mkstemp makes it private, results are for everyone
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, content: Any) -> None:
    """Write JSON whole. NaN and infinity have no place in it."""
    write_whole(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> Any | None:
    """Read a JSON file; None when it is missing, torn or no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def read_tail(path: Path, size: int = 4_000_000) -> bytes:
    """Read a log: its beginning and its end where it is longer than twice `size` bytes."""
    try:
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            if length <= 2 * size:
                return file.read()
            head = file.read(size)
            file.seek(length - size)
            return head + b"\n[...]\n" + file.read()
    except OSError:
        return b""


@contextlib.contextmanager
def alone_on_this_host() -> Iterator[bool]:
    """Tell, for the length of a block, whether no other run of this user had begun before."""
    path = Path(tempfile.gettempdir()) / f"autotune-{os.getuid()}.lock"
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("a+", encoding="utf-8"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock file for the length of a block; the kernel lets go of it when we are killed.

    Raises:
        StudyError: Another process holds it.
    """
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StudyError(
                f"{path.parent}: another autotune is at work there",
                hint="Wait for it, or give the space another `name`.",
            ) from error
        yield
