"""Paths in the file are relative to the file, whatever folder the command runs in."""

import contextlib
import os
from pathlib import Path


def as_path(text: str, folder: Path) -> str:
    """Make a path absolute; links stay as they are, so that the user recognizes it."""
    path = Path(text)
    # `~name` of nobody is an ordinary, if unusual, file name.
    with contextlib.suppress(RuntimeError):
        path = path.expanduser()
    return os.path.normpath(folder.absolute() / path)


def as_existing(text: str, folder: Path) -> str:
    """Make a path absolute if something is there, else leave the text alone."""
    path = as_path(text, folder)
    return path if is_file(path) or is_folder(path) else text


def as_model(text: str, folder: Path) -> str:
    """Tell a folder from a name on a model hub, which may look alike."""
    path = as_path(text, folder)
    if text.startswith(("./", "../", "~")) or text in {".", ".."}:
        return path
    return path if is_folder(path) else text


def is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:  # too long a name, or a folder that may not be read
        return False


def is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:
        return False
